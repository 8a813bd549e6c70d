"""Reading HTML in tests of what is shown."""

from __future__ import annotations

from html.parser import HTMLParser


class Markup(HTMLParser):
    """Tags and text of a piece of HTML, as a browser's parser sees them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def text_of(html: str) -> str:
    """The text of a piece of HTML, its spaces as one."""
    return " ".join(Markup(html).text.split())
