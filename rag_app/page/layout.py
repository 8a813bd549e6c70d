"""The page's parts, where they stand and what they do; `rag_app.ui` serves it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.errors import USER_ERRORS
from rag_app.page.examples import example_questions
from rag_app.page.render import (
    render_answer,
    render_header,
    render_message,
    render_passages,
    render_seconds,
    render_verdict,
)
from rag_app.page.run import LONGEST_QUESTION, MOST_PASSAGES, Snapshot, run_comparison
from rag_app.pipeline import Pipeline

TITLE = "MagRAG"
EXPLANATION = (
    "One question, two retrievers: see which passages each puts first, why, and what a language model answers from "
    "them. Cosine compares directions alone; QNorm also counts the length of a passage's vector."
)
COMPARISONS_AT_ONCE = 8
"""More wait in the queue: beyond a few, sharing the reader makes everybody slower and nobody faster."""


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

    def all(self) -> list[Any]:
        """Every component, as an event lists its outputs."""
        shown = [[pane.answer, pane.passages, pane.seconds] for pane in self.panes]
        return [self.question, self.button, self.verdict, *shown[0], *shown[1]]


def lay_out(pipeline: Pipeline) -> gr.Blocks:
    """The page around a pipeline, which is only read; all else is local to a visitor's call."""
    config = pipeline.config
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        _html(render_header(TITLE, EXPLANATION))
        with gr.Row(elem_classes="mg-ask"):
            question = gr.Textbox(
                label="Question",
                placeholder="Who built …? When did …? Which …?",
                max_length=LONGEST_QUESTION,
                max_lines=4,
                autofocus=True,
                scale=5,
                elem_id="question",
            )
            button = gr.Button("Compare", variant="primary", scale=1, min_width=120, elem_id="compare")
        settings = _settings(config)
        chips = _examples(config)
        verdict = _html(elem_id="verdict")
        with gr.Row(elem_classes="mg-sides"):
            outputs = Outputs(question, button, verdict, (_pane("a"), _pane("b")))

        def show(
            asked: str, retriever_a: str, retriever_b: str, k: int, event: gr.EventData
        ) -> Iterator[dict[Any, Any]]:
            # A click on an example brings its question along.
            text = next((chip.value for chip in chips if chip is event.target), asked)
            yield {question: text, button: gr.Button("Comparing …", interactive=False), **_cleared(outputs)}
            yield from _fill(outputs, pipeline, text, (retriever_a, retriever_b), k)
            yield {button: gr.Button("Compare", interactive=True)}

        gr.on(
            [button.click, question.submit, *(chip.click for chip in chips)],
            show,
            inputs=[question, *settings],
            outputs=outputs.all(),
            api_visibility="private",
            show_progress="minimal",
            show_progress_on=verdict,
            trigger_mode="once",
            concurrency_id="reader",
            concurrency_limit=COMPARISONS_AT_ONCE,
        )
        _add_api(pipeline)
    return page


def _settings(config: Config) -> list[Any]:
    """Retriever A, retriever B and k."""
    names = [*config.retrievers, CLOSED_BOOK]
    first = config.page.retrievers[0]
    second = next((name for name in (*config.page.retrievers, *names) if name != first), first)
    k = min(config.retriever(first).k, MOST_PASSAGES)
    with gr.Row(elem_classes="mg-settings"):
        return [
            gr.Dropdown(names, value=first, label="Retriever A", elem_id="retriever-a", min_width=150),
            gr.Dropdown(names, value=second, label="Retriever B", elem_id="retriever-b", min_width=150),
            gr.Slider(1, MOST_PASSAGES, k, step=1, label="Passages a side (k)", elem_id="k", min_width=220),
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
        return Pane(*(_html(elem_classes=f"mg-pane-{part}") for part in ("answer", "passages", "seconds")))


def _html(value: str = "", **placing: Any) -> gr.HTML:
    """Markup of ours as it is: none of Gradio's styles for prose, no script."""
    return gr.HTML(value, apply_default_css=False, js_on_load=None, **placing)


def _cleared(outputs: Outputs) -> dict[Any, str]:
    """Nothing of the last question stays beside the next one."""
    return dict.fromkeys(outputs.all()[2:], "")


def _fill(
    outputs: Outputs, pipeline: Pipeline, question: str, names: tuple[str, str], k: int
) -> Iterator[dict[Any, Any]]:
    """Updates of the page as a comparison goes on."""
    try:
        for number, snapshot in enumerate(run_comparison(pipeline, question, names, k)):
            update = {outputs.verdict: render_verdict(snapshot)} if number == 0 else {}
            for side, pane in enumerate(outputs.panes):
                update |= _fill_pane(pane, snapshot, side, first=number == 0)
            yield update
    except USER_ERRORS as error:
        yield {outputs.verdict: render_message(str(error))}


def _fill_pane(pane: Pane, snapshot: Snapshot, side: int, *, first: bool) -> dict[Any, str]:
    shown, answer, stage = snapshot.sides[side], snapshot.answers[side], snapshot.stages[side]
    update = {pane.answer: render_answer(shown, answer, stage), pane.seconds: render_seconds(answer, stage)}
    if first:
        update[pane.passages] = render_passages(shown, answer, snapshot.answers[1 - side])
    return update


def _add_api(pipeline: Pipeline) -> None:
    """The same comparison for gradio_client: `client.predict(question, "cosine", "qnorm", 3, api_name="/compare")`."""

    def compare(question: str, retriever_a: str, retriever_b: str, k: int = 3) -> Iterator[dict[str, Any]]:
        """Ask two retrievers; yields {question, answers, badge, summary} as the answers grow."""
        try:
            for snapshot in run_comparison(pipeline, question, (retriever_a, retriever_b), k):
                yield snapshot.to_json()
        except USER_ERRORS as error:
            raise gr.Error(str(error), print_exception=False) from error

    gr.api(compare, api_name="compare", concurrency_id="reader", concurrency_limit=COMPARISONS_AT_ONCE)
