"""What every tab of the page works on."""

from __future__ import annotations

import re
import secrets

import gradio as gr

from rag_app.config import Config
from rag_app.pipeline import Pipeline
from rag_app.shelf import Shelf

# Long enough that nobody guesses another's.
_BROWSER_ID = re.compile(r"[A-Za-z0-9_-]{32,64}")


class Room:
    """Shared by all visitors and only read by them; what belongs to one of them never lies here.

    Attributes:
        pipeline: Over the configuration's own corpus.
        shelf: The corpora that visitors make, each for its owner.
        browser: Holds the id that a visitor's browser keeps; give it to an event as an input, and its value to `owner_of`.

    Args:
        pipeline: As above. A room is made inside the page's `gr.Blocks`.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.shelf = Shelf(pipeline)
        # The secret is no secret: it goes to every browser. It is fixed so that ids outlive a restart of the page.
        self.browser = gr.BrowserState("", storage_key="magrag-visitor", secret="magrag-visitor")

    @property
    def config(self) -> Config:
        """The page's configuration."""
        return self.pipeline.config


def browser_id(kept: object) -> str:
    """The id that a browser keeps, or a new one where it has none that can be used."""
    return kept if isinstance(kept, str) and _BROWSER_ID.fullmatch(kept) else secrets.token_urlsafe(24)


def owner_of(request: gr.Request, kept: object) -> str:
    """Whose things a visitor sees: the user's, where people log in, else the browser's; "" for nobody's.

    Args:
        request: The visitor's.
        kept: The value of `Room.browser`, which comes from outside and may be anything.
    """
    # Told apart by the words before them, so that no browser can pass for a user where there is no login.
    if request.username:
        return f"user:{request.username}"
    return f"browser:{kept}" if isinstance(kept, str) and _BROWSER_ID.fullmatch(kept) else ""
