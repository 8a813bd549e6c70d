"""Nothing is fetched from elsewhere, not even when a visitor asks for it."""

from __future__ import annotations

from typing import Any

import safehttpx  # type: ignore[import-untyped]

from rag_app.errors import ConfigError


def refuse_fetching() -> None:
    """Have Gradio refuse the addresses that a request may name in place of an uploaded file.

    Gradio fetches such an address itself, for its own file route (`/gradio_api/file=https://…`) and for any input of an
    event. Both ways lead through these two functions, and there is no setting that turns them off.
    """
    for name in ("get", "async_validate_url"):
        setattr(safehttpx, name, _refuse)


async def _refuse(*_: Any, **__: Any) -> None:
    raise ConfigError("this page fetches nothing from elsewhere: upload the file itself")
