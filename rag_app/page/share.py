"""A comparison to take along: as a link that asks it again, and as a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.errors import ConfigError
from rag_app.page.cards import shortened
from rag_app.page.run import MOST_PASSAGES, Snapshot, bounded


@dataclass(frozen=True, slots=True)
class Link:
    """What a link asks; None stands for what the page opens with.

    Attributes:
        question: "" when the link asks nothing.
        names: The two retrievers.
        k: Passages a side.
        corpus: The id of a corpus; "" for the configuration's own.
    """

    question: str
    names: tuple[str | None, str | None] = (None, None)
    k: int | None = None
    corpus: str = ""


def permalink(snapshot: Snapshot, corpus: str = "") -> str:
    """An address relative to the page's own, so that it holds behind any proxy."""
    fields = {"q": snapshot.question, "a": snapshot.sides[0].name, "b": snapshot.sides[1].name, "k": snapshot.k}
    return "?" + urlencode({**fields, **({"c": corpus} if corpus else {})}, quote_via=quote)


def read_link(query: Mapping[str, str], config: Config) -> Link:
    """What the page's address asks.

    Raises:
        ConfigError: A question that is too long, a retriever that is not there, or a number of passages that cannot be used.
    """
    question = bounded(query.get("q", ""))
    known = [*config.retrievers, CLOSED_BOOK]
    names = query.get("a"), query.get("b")
    for name in names:
        if name is not None and name not in known:
            raise ConfigError(f'the link asks for a retriever "{name}" that this page does not have: choose another')
    k = query.get("k")
    if k is not None and not (re.fullmatch(r"[1-9][0-9]?", k) and int(k) <= MOST_PASSAGES):
        raise ConfigError(f"the link asks for k = {k[:12]}; choose a number of passages from 1 to {MOST_PASSAGES}")
    return Link(question, names, None if k is None else int(k), query.get("c", ""))


def download(snapshot: Snapshot) -> str:
    """The comparison as a data URL of JSON: nothing of it stays on the server. Passages are as long as they are shown."""
    told = snapshot.to_json()
    for answer in told["answers"]:
        for passage in answer["passages"]:
            passage["text"] = shortened(passage["text"])
    content = json.dumps(told, ensure_ascii=False, indent=1)
    return f"data:application/json;charset=utf-8,{quote(content)}"
