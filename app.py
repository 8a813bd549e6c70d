"""The page on the demo: `python app.py` (the same as `magrag serve`)."""

from __future__ import annotations


def main() -> None:
    """Serve the demo, with what the environment overrides; an error is one line."""
    from rag_app.config import load_config
    from rag_app.errors import USER_ERRORS
    from rag_app.ui import launch

    try:
        launch(load_config())
    except USER_ERRORS as error:
        raise SystemExit(f"error: {error}") from None


# vLLM starts a process that imports this file again: without the guard it would open another page.
if __name__ == "__main__":
    main()
