"""From a fresh checkout to an environment that runs: `python3 rag_app/bootstrap.py`, which the Makefile calls.

Makes `.venv` with a Python that suits, installs MagRAG there (`rag_app.installing`) and fetches the demo's weights. A
stamp in `.venv` says what was done: a start that finds nothing changed does nothing and needs no network.

Nothing is installed yet when this runs, so it is written for the standard library alone and Python 3.8 or later.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if not __package__:
    # Run as a file, Python looks for modules beside it rather than beside its package.
    sys.path[0] = str(ROOT)

from rag_app.installing import (  # noqa: E402
    Done,
    Installer,
    SetupError,
    has_gpu,
    pip_settings,
    reason,
    run,
    usable_uv,
    uv_environment,
    vllm_has_wheels,
    ways,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

OLDEST = (3, 11)
# The newest that every dependency has wheels for; a newer one is taken only where there is no other.
NEWEST_PREFERRED = (3, 13)
PYTHON_NAMES = ("python3", "python3.13", "python3.12", "python3.11")
EXTRAS = ("cpu", "gpu", "none")
STAMP = "magrag-setup.json"
LOG = "magrag-setup.log"
# Raise it when a changed set-up ought to run again although pyproject.toml is the same.
RECIPE = 1
PROBE_TIMEOUT_S = 300


class Python(NamedTuple):
    """An interpreter that answered; `can_venv` is false where Debian's package python3-venv is missing."""

    path: str
    version: tuple[int, int, int]
    can_venv: bool

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


def choose_python(found: Sequence[Python], *, has_uv: bool = False) -> Python:
    """Return the newest suitable interpreter; one newer than NEWEST_PREFERRED comes last.

    Raises:
        SetupError: None is 3.11 or newer, or none can make an environment.
    """
    suitable = [python for python in found if python.version >= OLDEST]
    usable = [python for python in suitable if python.can_venv or has_uv]
    if usable:
        return max(usable, key=lambda python: (python.version[:2] <= NEWEST_PREFERRED, python.version))
    if suitable:
        raise SetupError(
            f"{suitable[0].path} ({suitable[0]}) can't make environments: `sudo apt-get install python3-venv`"
        )
    seen = ", ".join(sorted({str(python) for python in found})) or "none"
    raise SetupError(
        f"Python 3.11 or newer is needed, found {seen}: `sudo apt-get install python3 python3-venv` on Debian, "
        "`brew install python@3.13` on macOS, `winget install Python.Python.3.13` on Windows"
    )


def find_pythons() -> list[Python]:
    """Ask this interpreter and those on PATH; one that doesn't answer (a shim without its Python) is left out."""
    commands = [sys.executable, *(shutil.which(name) for name in PYTHON_NAMES)]
    found = [ask_python(command) for command in dict.fromkeys(commands) if command]
    return [python for python in found if python]


def ask_python(command: str) -> Python | None:
    """Ask an interpreter what it is; None when it does not run."""
    code = (
        "import sys\ntry:\n import ensurepip, venv\n ok = 1\nexcept ImportError:\n ok = 0\n"
        'print(*sys.version_info[:3], ok, getattr(sys, "_base_executable", sys.executable))'
    )
    done = run([command, "-I", "-c", code], os.environ)
    fields = done.text.split(maxsplit=4)
    if done.code != 0 or len(fields) != 5 or not all(field.isdigit() for field in fields[:4]):
        return None
    return Python(fields[4].strip(), (int(fields[0]), int(fields[1]), int(fields[2])), fields[3] == "1")


def in_venv(venv: Path, name: str) -> Path:
    """Where an environment keeps a program."""
    return venv / "Scripts" / f"{name}.exe" if os.name == "nt" else venv / "bin" / name


# --- what was done before --------------------------------------------------------------------------------------------


def wanted_stamp(root: Path, python: str, extra: str, dev: bool) -> dict[str, Any]:
    """Describe what an environment depends on: when it changes, something has to be installed."""
    digest = hashlib.sha256((root / "pyproject.toml").read_bytes()).hexdigest()
    return {"recipe": RECIPE, "pyproject": digest, "python": python, "extra": extra, "dev": dev}


def read_stamp(venv: Path) -> dict[str, Any]:
    """Read the stamp; {} when there is none that can be read."""
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(venv: Path, stamp: Mapping[str, Any]) -> None:
    """Replace the stamp in one step."""
    partial = venv / f"{STAMP}.{os.getpid()}.tmp"
    partial.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    os.replace(str(partial), str(venv / STAMP))


def why_stale(stamp: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Say why something has to be installed; "" when nothing has."""
    if not stamp:
        return "it was not set up yet"
    if not stamp.get("complete"):
        return "the last set-up did not finish"
    names = {"extra": "the extra", "python": "Python", "pyproject": "pyproject.toml", "recipe": "the set-up"}
    for key, name in names.items():
        if stamp.get(key) != wanted[key]:
            return f"{name} changed"
    # What a developer installed serves the demo too.
    return "the tools for tests are missing" if wanted["dev"] and not stamp.get("dev") else ""


# --- steps -----------------------------------------------------------------------------------------------------------


class Setup:
    """One run of the steps, which tells what it does and how long that took.

    Args:
        root: The checkout.
        extra: "cpu", "gpu", "none", or "auto": as MAGRAG_EXTRA says, else as before, else by whether a GPU answers.
        dev: Whether the tools for tests are wanted.

    Raises:
        SetupError: There is no such extra, or not for this system.
    """

    def __init__(self, root: Path, extra: str = "auto", *, dev: bool = False) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.stamp = read_stamp(self.venv)
        self.extra = self._choose_extra(extra)
        path = in_venv(self.venv, "python")
        python = ask_python(str(path)) if path.exists() else None
        self.python = python if python and python.version >= OLDEST else None
        # What was installed for tests stays.
        self.dev = dev or bool(self.stamp.get("dev"))
        self.stale = self._why_stale()

    def _choose_extra(self, asked: str) -> str:
        if asked == "auto":
            # Taken out since the program reads every MAGRAG_ variable as a setting of its own.
            asked = os.environ.pop("MAGRAG_EXTRA", "") or "auto"
        if asked == "auto":
            # A second start neither asks the driver nor undoes a person's choice.
            kept = str(self.stamp.get("extra"))
            return kept if kept in EXTRAS else "gpu" if has_gpu(shutil.which("nvidia-smi")) else "cpu"
        if asked not in EXTRAS:
            raise SetupError(
                f"the extra must be auto, {', '.join(EXTRAS)}, got {asked!r}: correct MAGRAG_EXTRA or --extra"
            )
        if asked == "gpu" and sys.platform != "linux":
            raise SetupError(f"the extra gpu needs Linux, and this is {platform.system()}: use cpu")
        return asked

    def _why_stale(self) -> str:
        if self.python is None:
            return "its Python does not run" if self.venv.exists() else "there is none yet"
        return why_stale(self.stamp, wanted_stamp(self.root, str(self.python), self.extra, self.dev))

    def state(self) -> str:
        """Say in one line what is installed, or why it is not up to date."""
        if self.stale:
            return f".venv is not up to date: {self.stale}; `make demo` or `make test` sets it up"
        parts = [
            f"Python {self.python}",
            f"extra {self.extra}",
            *(["dev"] if self.dev else []),
            str(self.stamp.get("way")),
        ]
        return f".venv is up to date: {', '.join(parts)}"

    def install(self) -> None:
        """Make or complete the environment, where that is needed.

        Raises:
            SetupError: What stopped it.
        """
        if not self.stale:
            say(self.state())
            return
        started = time.monotonic()
        uv = usable_uv(shutil.which("uv"))
        base = self.python
        if base is None or self._must_start_anew(uv):
            base = choose_python(find_pythons(), has_uv=bool(uv))
            self._make_venv(base, uv)
        say(f"installing into .venv ({self.stale}): Python {base} from {base.path}, extra {self.extra}")
        # The weights lie outside .venv and stay.
        kept = {"complete": False, "weights": self.stamp.get("weights")}
        self.stamp = {**wanted_stamp(self.root, str(base), self.extra, self.dev), **kept}
        write_stamp(self.venv, self.stamp)
        self._warn_of_disk()
        python = in_venv(self.venv, "python")
        listing = run([str(python), "-m", "pip", "config", "list"], os.environ)
        environ = uv_environment(pip_settings(listing.text if listing.code == 0 else ""), os.environ)
        if uv is None:
            uv = self._own_uv(environ)
        installer = Installer(uv, python, self.root, environ, self._logged)
        with step("choosing versions", "under a minute"):
            way = installer.choose(
                ways(self.extra, dev=self.dev, has_vllm=vllm_has_wheels()), lambda line: say(f"      {line}")
            )
        if way.note:
            say(f"      {way.note}")
        with step(f"installing, {way.size} to download at most", "1 to 15 minutes by your network"):
            installer.install(way)
        if self.extra == "cpu" and "vLLM" not in way.note:
            warn_of_libnuma()
        self.stamp.update(complete=True, way=way.name)
        write_stamp(self.venv, self.stamp)
        self.python, self.stale = base, ""
        say(f"{self.state()} (after {_duration(time.monotonic() - started)})")

    def fetch(self) -> None:
        """Get the demo's weights, where they were not got before.

        Raises:
            SetupError: What stopped it.
        """
        folders = self.stamp.get("weights")
        if isinstance(folders, list) and folders and all(Path(str(folder)).is_dir() for folder in folders):
            return
        with step("fetching the demo's models, 0.2 GB", "a minute, once"):
            done = self._logged([str(in_venv(self.venv, "python")), "-m", "rag_app.cli", "fetch"], os.environ)
            if done.code != 0:
                raise SetupError(f"the demo's models could not be fetched: {reason(done.text)}")
        # Each line ends in the folder that a setting resolved to.
        ends = [Path(line.rsplit(": ", 1)[-1].strip()) for line in done.text.splitlines()]
        self.stamp["weights"] = [str(path) for path in ends if path.is_absolute() and path.is_dir()]
        write_stamp(self.venv, self.stamp)

    def _must_start_anew(self, uv: str | None) -> bool:
        # The extras bring rivals of one another (faiss-cpu and faiss-gpu, two vLLMs), which must not meet.
        if self.stamp and self.stamp.get("extra") != self.extra:
            return True
        # The making of the environment was cut off, or another tool made it.
        return uv is None and run([str(in_venv(self.venv, "python")), "-m", "pip", "--version"], os.environ).code != 0

    def _make_venv(self, python: Python, uv: str | None) -> None:
        with step(f"making .venv with Python {python}", "seconds"):
            if python.can_venv:
                command = [python.path, "-m", "venv", "--clear", str(self.venv)]
            else:
                command = [str(uv), "venv", "--quiet", "--seed", "--clear", "--python", python.path, str(self.venv)]
            done = run(command, os.environ)
            if done.code != 0:
                raise SetupError(f"{' '.join(command)} failed ({reason(done.text)}): is {self.root} writable?")

    def _own_uv(self, environ: Mapping[str, str]) -> str:
        uv = str(in_venv(self.venv, "uv"))
        if not usable_uv(uv):
            python = str(in_venv(self.venv, "python"))
            with step("getting uv, which installs the rest", "seconds"):
                done = self._logged(
                    [python, "-m", "pip", "install", "--quiet", "--no-input", "--upgrade", "uv"], environ
                )
                if done.code != 0:
                    raise SetupError(f"pip could not install uv ({reason(done.text)}): check the network and try again")
        return uv

    def _logged(self, command: Sequence[str], environ: Mapping[str, str]) -> Done:
        probing = "--dry-run" in command
        # At a terminal uv draws its own progress bars; elsewhere it is silent until something fails.
        show = not probing and command[1:3] == ["pip", "install"] and sys.stderr is not None and sys.stderr.isatty()
        done = run(command, environ, cwd=self.root, timeout=PROBE_TIMEOUT_S if probing else None, show=show)
        with (self.venv / LOG).open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{done.text}\n")
        return done

    def _warn_of_disk(self) -> None:
        needed = 20 if self.extra == "gpu" else 5
        free = shutil.disk_usage(str(self.root)).free / 1e9
        if free < needed:
            say(f"      note: {free:.1f} GB are free here, and this may need {needed} GB")


def warn_of_libnuma() -> None:
    """Say so when the one system library that vLLM for CPUs loads is missing."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        say("      note: vLLM on a CPU needs libnuma: `sudo apt-get install libnuma1` (elsewhere: numactl-libs)")


def say(line: str) -> None:
    """Print a line at once, even into a pipe."""
    print(line, flush=True)


@contextmanager
def step(what: str, expected: str) -> Iterator[None]:
    """Print what is being done and how long it may take, then how long it took."""
    say(f"  - {what} ({expected})")
    started = time.monotonic()
    ended = "stopped"
    try:
        yield
        ended = "done"
    finally:
        say(f"    {ended} after {_duration(time.monotonic() - started)}")


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up as the arguments say; 0 done, 1 failed or not up to date."""
    parser = argparse.ArgumentParser(prog="bootstrap.py", description="Make .venv and install MagRAG into it.")
    parser.add_argument("--extra", default="auto", help="auto (see MAGRAG_EXTRA), cpu, gpu or none")
    parser.add_argument("--dev", action="store_true", help="with the tools for tests")
    parser.add_argument("--no-weights", action="store_true", help="leave the demo's models for later")
    parser.add_argument("--check", action="store_true", help="only say whether everything is installed")
    parser.add_argument("--demo", action="store_true", help="open the page afterwards")
    options = parser.parse_args(arguments)
    setup = None
    try:
        setup = Setup(ROOT, options.extra, dev=options.dev)
        if options.check:
            say(setup.state())
            return 1 if setup.stale else 0
        setup.install()
        if not options.no_weights:
            setup.fetch()
    except SetupError as error:
        log = f"; details in {setup.venv / LOG}" if setup and (setup.venv / LOG).exists() else ""
        print(f"error: {error}{log}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command continues", file=sys.stderr, flush=True)
        return 130
    return open_page(in_venv(setup.venv, "python")) if options.demo else 0


def open_page(python: Path) -> int:
    """Become the page's process, so that Ctrl-C and the exit code are its own."""
    os.chdir(str(ROOT))
    if os.name == "nt":
        return subprocess.call([str(python), "app.py"])
    os.execv(str(python), [str(python), "app.py"])


if __name__ == "__main__":
    sys.exit(main())
