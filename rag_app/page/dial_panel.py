"""The magnitude dial and the plots, below a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from rag_app.page.dial import Candidates
from rag_app.page.place import answer_place, place
from rag_app.page.render import render_dial

EXPLANATION = (
    '<h2 class="mg-heading">Why: direction and magnitude</h2><p class="mg-explanation">The dial ranks this question’s '
    "passages anew: at 0 the score keeps a passage’s magnitude |d| whole, at 1 it drops it and only the direction counts.</p>"
)


@dataclass(frozen=True, slots=True)
class DialPanel:
    """The panel's parts. Its state is one visitor's: the candidates of the question that stands above.

    The page's style sheet hides the panel while it has no ranking, and the choice of vectors while there is none.
    """

    state: gr.State
    encoder: gr.Radio
    slider: gr.Slider
    ranking: gr.HTML
    plot: gr.HTML

    def outputs(self) -> list[Any]:
        """Every component, as an event lists its outputs."""
        return [self.state, self.encoder, self.slider, self.ranking, self.plot]

    def hidden(self) -> dict[Any, Any]:
        """Updates for a page without candidates."""
        return {self.state: (), self.ranking: "", self.plot: ""}

    def shown(self, candidates: tuple[Candidates, ...]) -> dict[Any, Any]:
        """Updates for new candidates: the dial starts where their own side stands."""
        first = candidates[0]
        ranking, plot = render_dial(first, first.start, len(candidates))
        names = [(one.names[one.home], number) for number, one in enumerate(candidates)]
        return {
            self.state: candidates,
            self.encoder: gr.Radio(names, value=0),
            self.slider: first.start,
            self.ranking: ranking,
            self.plot: plot,
        }


def lay_out_dial() -> tuple[gr.HTML, DialPanel]:
    """The slope chart's place and the dial's panel, which answers to nothing but its own controls."""
    slopes = answer_place(elem_id="slopes")
    with gr.Column(elem_classes="mg-why", elem_id="dial"):
        place(EXPLANATION)
        with gr.Row(elem_classes="mg-dial"):
            with gr.Column(min_width=0, elem_classes="mg-dial-left"):
                encoder = gr.Radio([("", 0)], value=0, label="Vectors of", elem_id="dial-encoder")
                slider = gr.Slider(
                    0, 1, 1, step=0.05, label="γd: 0 keeps the magnitude, 1 is cosine", elem_id="gamma", min_width=0
                )
                ranking = answer_place(elem_id="dial-ranking")
            plot = answer_place(elem_id="dial-plot")
    made = DialPanel(gr.State(()), encoder, slider, ranking, plot)

    def dial(candidates: tuple[Candidates, ...], number: int, gamma_d: float) -> tuple[str, str]:
        if not 0 <= number < len(candidates):
            return "", ""
        return render_dial(candidates[number], min(1.0, max(0.0, gamma_d)), len(candidates))

    def choose(candidates: tuple[Candidates, ...], number: int) -> tuple[Any, str, str]:
        if not 0 <= number < len(candidates):
            return gr.skip(), "", ""
        start = candidates[number].start
        return start, *render_dial(candidates[number], start, len(candidates))

    at_once = {"api_visibility": "private", "show_progress": "hidden", "queue": False, "trigger_mode": "always_last"}
    slider.input(dial, [made.state, encoder, slider], [ranking, plot], **at_once)
    encoder.input(choose, [made.state, encoder], [slider, ranking, plot], **at_once)
    return slopes, made
