"""Who may see the page: users and passwords of `page.auth`."""

from __future__ import annotations

import asyncio
import hmac
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from rag_app.errors import ConfigError

WRONG_PASSWORD_S = 1.0
"""What a wrong password costs, so that guessing takes long."""


def read_users(setting: str) -> dict[str, str]:
    """Users and their passwords.

    Args:
        setting: A file with a line USER:PASSWORD for each (blank lines and those that begin with # don't count), or one
            such pair.

    Raises:
        ConfigError: Neither, or a line that cannot be used. A message never holds a password.
    """
    path = Path(setting).expanduser()
    try:
        lines = path.read_text("utf-8").splitlines() if path.is_file() else None
    except (OSError, ValueError) as error:
        if ":" not in setting:
            raise ConfigError(f"page.auth: the file cannot be read: {_reason(error)}") from None
        lines = None
    if lines is None:
        if ":" not in setting:
            raise ConfigError("page.auth is neither a file that is there nor of the form USER:PASSWORD")
        user, password = _pair(setting, "page.auth")
        return {user: password}
    users: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        user, password = _pair(line, f"{path}:{number}")
        if user in users:
            raise ConfigError(f"{path}:{number}: the user {user!r} stands there twice")
        users[user] = password
    if not users:
        raise ConfigError(f"{path} names no user: write a line USER:PASSWORD for each")
    return users


def readable_by_others(setting: str) -> bool:
    """Whether `page.auth` is a file that other users of this machine can read."""
    try:
        path = Path(setting).expanduser()
        return path.is_file() and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except (OSError, ValueError):
        return False


def checker(users: dict[str, str]) -> Callable[[str, str], Awaitable[bool]]:
    """What Gradio asks whether a user may come in; it takes its time over wrong passwords."""

    async def check(user: str, password: str) -> bool:
        # Compared even for users there are not, so that the time tells nothing.
        right = hmac.compare_digest(users.get(user, "").encode(), password.encode())
        if right and user in users:
            return True
        await asyncio.sleep(WRONG_PASSWORD_S)
        return False

    return check


def _pair(line: str, where: str) -> tuple[str, str]:
    user, _, password = line.partition(":")
    user, password = user.strip(), password.strip()
    if not user or not password:
        raise ConfigError(f"{where}: write USER:PASSWORD, neither of them empty")
    return user, password


def _reason(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "it is not UTF-8 text"
