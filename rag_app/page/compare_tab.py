"""The tab that puts two retrievers side by side on one question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr
from gradio.events import Dependency

from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.errors import ConfigError, in_words
from rag_app.page.api import text_argument, told_in_a_line, whole_argument
from rag_app.page.cards import render_passages
from rag_app.page.dial_panel import DialPanel, lay_out_dial
from rag_app.page.examples import example_questions
from rag_app.page.golds import GoldBook
from rag_app.page.place import NEXT_QUESTION, answer_place
from rag_app.page.plots import render_slopes
from rag_app.page.render import render_answer, render_message, render_seconds, render_verdict
from rag_app.page.room import Room, owner_of
from rag_app.page.run import DOING, MOST_PASSAGES, Snapshot, run_comparison
from rag_app.page.share import read_link
from rag_app.shelf import Shelved

COMPARISONS_AT_ONCE = 8
"""More wait in the queue: beyond a few, sharing the reader makes everybody slower and nobody faster."""

GONE = "not there (any more)"
"""Stands for a corpus that cannot be asked; asking it says so (`shelf.NOT_THERE`)."""

# Gradio's page has a base address, so that a bare "#card" would load the page anew and lose the comparison.
JUMP = """element.addEventListener('click', (event) => {
  const link = event.target.closest('a[href^="#"]');
  const card = link && document.getElementById(link.getAttribute('href').slice(1));
  if (card) { event.preventDefault(); card.scrollIntoView({block: 'center'}); card.focus({preventScroll: true}); }
});"""

# Where the server is gone, Gradio sends nothing and changes nothing, so the browser itself puts the old answer away. While a
# comparison runs, nothing else is sent.
SENT = f"""const sent = () => {{
  if (!document.getElementById('compare').disabled) document.dispatchEvent(new Event('{NEXT_QUESTION}'));
}};
document.addEventListener('click', (event) => {{ if (event.target.closest('#compare, .mg-example')) sent(); }}, true);
document.addEventListener('keydown', (event) => {{
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && event.target.closest('#question')) sent();
}}, true);"""


@dataclass(frozen=True, slots=True)
class Pane:
    """The three outputs of one side, each updated alone so that an unfolded passage stays unfolded."""

    answer: gr.HTML
    passages: gr.HTML
    seconds: gr.HTML


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a comparison writes to."""

    question: gr.Textbox
    button: gr.Button
    verdict: gr.HTML
    panes: tuple[Pane, Pane]
    slopes: gr.HTML
    dial: DialPanel

    def texts(self) -> list[gr.HTML]:
        """Those that hold something of one question."""
        shown = [[pane.answer, pane.passages, pane.seconds] for pane in self.panes]
        return [self.verdict, *shown[0], *shown[1], self.slopes]

    def all(self) -> list[Any]:
        """Every component, as an event lists its outputs."""
        return [self.question, self.button, *self.texts(), *self.dial.outputs()]


@dataclass(frozen=True, slots=True)
class CompareParts:
    """What other tabs fill in to open a question here."""

    question: gr.Textbox
    retriever_a: gr.Dropdown
    retriever_b: gr.Dropdown
    k: gr.Slider
    corpus: gr.Dropdown
    ask_after: Callable[[Dependency], None] = lambda event: None
    """Has the question asked when that event is over, in place of what stands there."""

    def settings(self) -> list[Any]:
        """All but the question."""
        return [self.retriever_a, self.retriever_b, self.k, self.corpus]


def lay_out_compare(room: Room, page: gr.Blocks, tab: gr.Tab) -> CompareParts:
    """The tab's parts and events; all but the room is local to a visitor's call."""
    config = room.config
    golds = GoldBook(config)
    with gr.Row(elem_classes="mg-ask"):
        question = gr.Textbox(
            label="Question",
            placeholder="Who built …? When did …? Which …?",
            max_lines=4,
            autofocus=True,
            scale=5,
            elem_id="question",
        )
        button = gr.Button("Compare", variant="primary", scale=1, min_width=120, elem_id="compare")
    parts = CompareParts(question, *_settings(config))
    chips = _examples(config)
    verdict = answer_place(script=SENT, elem_id="verdict")
    with gr.Row(elem_classes="mg-sides"):
        panes = (_pane("a"), _pane("b"))
    slopes, dial = lay_out_dial()
    outputs = Outputs(question, button, verdict, panes, slopes, dial)

    def compare(
        asked: str, retriever_a: str, retriever_b: str, k: int, corpus: str | None, owner: str
    ) -> Iterator[dict[Any, Any]]:
        yield {question: asked, button: gr.Button("Comparing …", interactive=False), **_cleared(outputs)}
        try:
            pipeline = room.shelf.pipeline(corpus or "", owner)
            known = None if corpus else golds.find(asked)
            comparison = run_comparison(pipeline, asked, (retriever_a, retriever_b), k, known)
            yield from _updates(outputs, comparison, corpus or "")
        except Exception as error:  # noqa: BLE001 - whatever it is, the button must come back
            yield {verdict: render_message(in_words(error, DOING))}
        yield {button: gr.Button("Compare", interactive=True)}

    def show(
        asked: str,
        retriever_a: str,
        retriever_b: str,
        k: int,
        corpus: str | None,
        kept: str,
        event: gr.EventData,
        request: gr.Request,
    ) -> Iterator[dict[Any, Any]]:
        # A click on an example brings its question along.
        text = next((chip.value for chip in chips if chip is event.target), asked)
        yield from compare(text, retriever_a, retriever_b, k, corpus, owner_of(request, kept))

    def reopen(kept: str, request: gr.Request) -> dict[Any, Any]:
        corpora, query = room.shelf.corpora(owner_of(request, kept)), dict(request.query_params)
        try:
            link = read_link(query, config)
        except ConfigError as error:
            # Nothing is asked; what is wrong can be mended here.
            told = {verdict: render_message(str(error)), parts.corpus: corpus_choices(corpora, query.get("c", ""))}
            return told | ({question: query["q"].strip()} if query.get("q", "").strip() else {})
        asked = {
            question: link.question,
            linked: link.question,
            parts.retriever_a: link.names[0],
            parts.retriever_b: link.names[1],
            parts.k: link.k,
        }
        # What the link leaves open stays as it is: a quick visitor may have chosen already.
        given: dict[Any, Any] = {part: value for part, value in asked.items() if value}
        return given | {parts.corpus: corpus_choices(corpora, link.corpus)}

    def refresh(chosen: str | None, kept: str, request: gr.Request) -> gr.Dropdown:
        return corpus_choices(room.shelf.corpora(owner_of(request, kept)), chosen or "")

    waiting = {"concurrency_id": "reader", "concurrency_limit": COMPARISONS_AT_ONCE}
    quiet = {"api_visibility": "private", "show_progress": "minimal", "show_progress_on": verdict}
    gr.on(
        [button.click, question.submit, *(chip.click for chip in chips)],
        show,
        inputs=[question, *parts.settings(), room.browser],
        outputs=outputs.all(),
        trigger_mode="once",
        **quiet,
        **waiting,
    )
    tab.select(refresh, [parts.corpus, room.browser], parts.corpus, api_visibility="private", show_progress="hidden")
    _add_api(room, golds)

    def ask_there(
        asked: str, retriever_a: str, retriever_b: str, k: int, corpus: str | None, kept: str, request: gr.Request
    ) -> Iterator[dict[Any, Any]]:
        nothing: list[dict[Any, Any]] = [{verdict: gr.skip()}]
        yield from (
            compare(asked, retriever_a, retriever_b, k, corpus, owner_of(request, kept)) if asked.strip() else nothing
        )

    def then_ask(event: Dependency, asked: gr.Textbox | gr.State) -> None:
        event.success(ask_there, [asked, *parts.settings(), room.browser], outputs.all(), **quiet, **waiting)

    def ask_after(event: Dependency) -> None:
        then_ask(event.success(lambda: _cleared(outputs), None, outputs.all(), **quiet), question)

    linked = gr.State("")
    then_ask(page.load(reopen, room.browser, [question, linked, verdict, *parts.settings()], **quiet), linked)
    return replace(parts, ask_after=ask_after)


def corpus_choices(corpora: list[Shelved], chosen: str = "") -> gr.Dropdown:
    """The corpora as a choice. One that is gone, or somebody else's, stays chosen, so that no other one answers in its place."""
    choices = [(corpus.name, corpus.id) for corpus in corpora]
    if chosen not in [id for _, id in choices]:
        choices.append((GONE, chosen))
    return gr.Dropdown(choices, value=chosen, visible=len(choices) > 1)


def _settings(config: Config) -> list[Any]:
    """Retriever A, retriever B, k and the corpus."""
    names = [*config.retrievers, CLOSED_BOOK]
    first = config.page.retrievers[0]
    second = next((name for name in (*config.page.retrievers, *names) if name != first), first)
    k = min(config.retriever(first).k, MOST_PASSAGES)
    with gr.Row(elem_classes="mg-settings"):
        return [
            gr.Dropdown(names, value=first, label="Retriever A", elem_id="retriever-a", min_width=150),
            gr.Dropdown(names, value=second, label="Retriever B", elem_id="retriever-b", min_width=150),
            gr.Slider(1, MOST_PASSAGES, k, step=1, label="Passages a side (k)", elem_id="k", min_width=220),
            gr.Dropdown([("", "")], value="", label="Corpus", elem_id="corpus", min_width=150, visible=False),
        ]


def _examples(config: Config) -> list[gr.Button]:
    examples = example_questions(config)
    if not examples:
        return []
    with gr.Row(elem_classes="mg-examples"):
        return [
            gr.Button(text, size="sm", min_width=0, elem_classes=["mg-example", f"mg-kind-{kind}"])
            for kind, text in examples
        ]


def _pane(letter: str) -> Pane:
    with gr.Column(elem_classes="mg-side", min_width=0, elem_id=f"side-{letter}"):
        return Pane(
            answer_place(script=JUMP, elem_classes="mg-pane-answer"),
            answer_place(elem_classes="mg-pane-passages"),
            answer_place(elem_classes="mg-pane-seconds"),
        )


def _cleared(outputs: Outputs) -> dict[Any, Any]:
    """Nothing of the last question stays beside the next one."""
    return {**dict.fromkeys(outputs.texts(), ""), **outputs.dial.hidden()}


def _updates(outputs: Outputs, comparison: Iterator[Snapshot], corpus: str) -> Iterator[dict[Any, Any]]:
    """Updates of the page as a comparison goes on: what has changed, and nothing else."""
    drawn: dict[Any, tuple[object, str]] = {}
    dial_shown = False
    for snapshot in comparison:
        changed: dict[Any, Any] = {}
        for part, (state, draw) in _parts(outputs, snapshot, corpus).items():
            if part in drawn and drawn[part][0] == state:
                continue
            text = draw()
            if part not in drawn or drawn[part][1] != text:
                changed[part] = text
            drawn[part] = state, text
        if snapshot.candidates and not dial_shown:
            changed |= outputs.dial.shown(snapshot.candidates)
            dial_shown = True
        if changed:
            yield changed


def _parts(outputs: Outputs, snapshot: Snapshot, corpus: str) -> dict[Any, tuple[object, Callable[[], str]]]:
    """What each part depends on beyond the passages, and how it is drawn: with a token, only an answer changes."""
    parts: dict[Any, tuple[object, Callable[[], str]]] = {
        outputs.verdict: (snapshot.done, partial(render_verdict, snapshot, corpus)),
        outputs.slopes: (None, partial(render_slopes, snapshot)),
    }
    for side, pane in enumerate(outputs.panes):
        stage = snapshot.stages[side]
        parts[pane.answer] = (snapshot.answers[side], stage, snapshot.done), partial(render_answer, snapshot, side)
        parts[pane.passages] = stage == "done", partial(render_passages, snapshot, side)
        parts[pane.seconds] = stage == "done", partial(render_seconds, snapshot, side)
    return parts


def _add_api(room: Room, golds: GoldBook) -> None:
    """The same comparison for gradio_client: `client.predict(question, "cosine", "qnorm", 3, api_name="/compare")`."""

    def compare(
        question: str,
        retriever_a: str,
        retriever_b: str,
        k: int = 3,
        corpus: str = "",
        request: gr.Request | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Ask two retrievers; yields {question, golds, answers, badge, summary} as the answers grow.

        `corpus` is the id of a corpus of the user who has logged in; without, the page's own is asked.
        """
        with told_in_a_line(DOING):
            asked = text_argument(question, "question", "what to ask")
            names = _named(retriever_a, "retriever_a", room.config), _named(retriever_b, "retriever_b", room.config)
            passages = whole_argument(k, "k", 1, MOST_PASSAGES)
            place = text_argument(corpus, "corpus", 'the id of a corpus, or "" for the page\'s own')
            pipeline = room.shelf.pipeline(place, owner_of(request, "") if request else "")
            known = None if place else golds.find(asked)
            for snapshot in run_comparison(pipeline, asked, names, passages, known):
                yield snapshot.to_json()

    gr.api(compare, api_name="compare", concurrency_id="reader", concurrency_limit=COMPARISONS_AT_ONCE)


def _named(value: object, argument: str, config: Config) -> str:
    name = text_argument(value, argument, "the name of a retriever")
    if name != CLOSED_BOOK:
        config.retriever(name)
    return name
