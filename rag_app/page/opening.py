"""From a question of a run to the same question in the Compare tab: which retrievers, how many passages, or why not."""

from __future__ import annotations

from dataclasses import dataclass

from eval.flips import require_system
from eval.view import RunView
from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.errors import ConfigError
from rag_app.page.run import MOST_PASSAGES


@dataclass(frozen=True, slots=True)
class Opening:
    """What the Compare tab is filled with.

    Attributes:
        question: Its text.
        retrievers: Of side A and side B.
        k: Passages a side.
    """

    question: str
    retrievers: tuple[str, str]
    k: int


def why_closed(view: RunView, config: Config) -> str:
    """Why a run's questions cannot be opened in Compare, in a sentence; "" where they can."""
    own = config.index.path or config.corpus
    for name, facts in view.manifest["datasets"].items():
        if facts.get("corpus", own) != own:
            return f"{name} was asked over another corpus than this page's, so its questions are not opened in Compare."
    return ""


def open_question(view: RunView, id: str, a: str, b: str, config: Config) -> Opening:
    """A question as two systems of a run answered it.

    Raises:
        ConfigError: There is no such question, or a system whose retriever this page does not have.
        EvalError: There is no such system.
    """
    found = next((question for question in view.questions if question.id == id), None)
    if found is None:
        raise ConfigError(f"this run has no question {id!r}")
    if closed := why_closed(view, config):
        raise ConfigError(closed)
    names = []
    for system in (a, b):
        require_system(view, system)
        # A system is called by its retriever, then by k and reader where there are several.
        name = system.split()[0]
        if name != CLOSED_BOOK:
            config.retriever(name)
        names.append(name)
    offered = [view.rows[system, id]["k"] for system in (a, b) if (system, id) in view.rows]
    k = min(max([1, *offered]), MOST_PASSAGES)
    return Opening(found.question, (names[0], names[1]), k)
