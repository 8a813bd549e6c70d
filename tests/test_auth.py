"""Who may see the page: reading users, and that no password is ever told."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rag_app.auth import WRONG_PASSWORD_S, checker, read_users, readable_by_others
from rag_app.cli import app
from rag_app.config import Config, load_config
from rag_app.errors import ConfigError
from rag_app.ui import access


def test_users_come_from_a_file_or_a_pair(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# people\n\nanna:se:cret\n ben : word \n")
    assert read_users(str(file)) == {"anna": "se:cret", "ben": "word"}
    assert read_users("anna:se:cret") == {"anna": "se:cret"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("anna:a\nanna:hunter2", r"users:2: the user 'anna' stands there twice"),
        ("\n# nobody\n", "names no user"),
        ("anna:a\nhunter2", "users:2: write USER:PASSWORD"),
        (":hunter2", "users:1: write USER:PASSWORD"),
        ("anna:", "users:1: write USER:PASSWORD"),
    ],
)
def test_a_bad_file_is_told_by_its_line_and_without_a_password(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "users"
    file.write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        read_users(str(file))
    assert "hunter2" not in str(caught.value)


def test_what_is_neither_is_not_repeated(tmp_path: Path) -> None:
    for setting in ("hunter2", ":hunter2", str(tmp_path / "hunter2"), "hunter2" * 1000):
        with pytest.raises(ConfigError) as caught:
            read_users(setting)
        assert "hunter2" not in str(caught.value)
    (tmp_path / "binary").write_bytes(b"\xff\xfe:")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_users(str(tmp_path / "binary"))


def test_only_the_right_password_opens_and_a_wrong_one_takes_its_time() -> None:
    check = checker({"anna": "söcret", "ben": "word"})

    async def ask(user: str, password: str) -> bool:
        return await check(user, password)

    assert asyncio.run(ask("anna", "söcret"))
    started = time.monotonic()

    async def all_wrong() -> list[bool]:
        pairs = [("anna", "word"), ("anna", ""), ("ben", "söcret"), ("eve", ""), ("eve", "word")]
        return await asyncio.gather(*(ask(*pair) for pair in pairs))

    assert asyncio.run(all_wrong()) == [False] * 5
    assert time.monotonic() - started >= WRONG_PASSWORD_S


def test_a_file_that_others_can_read_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("anna:a")
    file.chmod(0o644)
    assert readable_by_others(str(file))
    file.chmod(0o600)
    assert not readable_by_others(str(file))
    assert not readable_by_others("anna:a") and not readable_by_others("")


def test_the_configuration_does_not_show_the_password() -> None:
    config = load_config(environ={"MAGRAG_PAGE__AUTH": "anna:hunter2"})
    assert config.page.auth == "anna:hunter2"
    assert "hunter2" not in repr(config) and "hunter2" not in str(config.page)
    assert "page" not in config.fingerprintable()


def test_gradio_is_given_limits_root_path_and_users_and_neither_share_nor_everywhere() -> None:
    plain = access(Config())
    assert plain == {"max_file_size": "50mb"}
    assert Config().page.host == "127.0.0.1"
    given = access(
        load_config(overrides=["page.root_path=/magrag", "page.auth=anna:a", "page.max_upload_mb=7"], environ={})
    )
    assert given["root_path"] == "/magrag" and given["max_file_size"] == "7mb"
    assert asyncio.run(given["auth"]("anna", "a"))


@pytest.mark.parametrize("path", ["magrag", "/mag rag", "/a/", "http://x/y", "/a?b"])
def test_a_root_path_is_a_path(path: str) -> None:
    with pytest.raises(ConfigError, match=r"page\.root_path must be a path such as"):
        load_config(overrides=[f'page.root_path="{path}"'], environ={})


def test_the_command_says_where_a_password_is_safe() -> None:
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown).split())
    assert "MAGRAG_PAGE__AUTH" in words and "--root-path" in words and "--host" in words
    assert "everybody on this machine can read a command line" in words
    refused = CliRunner().invoke(app, ["serve", "--auth", "hunter2", "--port", "1"])
    assert refused.exit_code != 0 and "hunter2" not in refused.output
