"""The tab that says what the magnitudes of a corpus are worth under an encoder."""

from __future__ import annotations

from typing import Any

import gradio as gr

from rag_app.diagnosis.passages import Diagnosed, diagnose_encoder
from rag_app.diagnosis.words import readings, verdict
from rag_app.errors import USER_ERRORS
from rag_app.once import Once
from rag_app.page.api import text_argument, told_in_a_line
from rag_app.page.diagnose_view import render_diagnosis
from rag_app.page.place import place
from rag_app.page.render import render_message
from rag_app.page.room import Room
from rag_app.pipeline import Pipeline

EXPLANATION = (
    "Cosine looks at directions alone; dot and QNorm multiply by the length |d| of a passage's vector. Whether that helps "
    "depends on what the encoder puts into the length."
)


class Diagnoses:
    """Each encoder's, made once: index and questions stay as they are while the page is open. Thread-safe."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._made: Once[str, Diagnosed] = Once()

    def of(self, encoder: str) -> Diagnosed:
        """That of a configured encoder.

        Raises:
            ConfigError: There is none of that name; or as `diagnose_encoder`.
        """
        self._pipeline.config.encoder(encoder)
        return self._made.get(encoder, lambda: diagnose_encoder(self._pipeline, encoder))


def lay_out_diagnose(room: Room) -> None:
    """The tab with its events."""
    config = room.config
    diagnoses = Diagnoses(room.pipeline)
    # Those that a retriever uses are loaded: another one would hold everybody up while it encodes the corpus.
    used = [own.encoder for own in config.retrievers.values() if own.kind == "dense"]
    names = list(dict.fromkeys([*config.page_encoders, *used]))
    with gr.Tab("Diagnose", id="diagnose") as tab:
        place(f'<p class="mg-lead">{EXPLANATION}</p>')
        encoder = gr.Dropdown(names, value=names[0], label="Encoder", elem_id="diagnose-encoder")
        shown = place(elem_id="diagnosis")

        def show(name: str) -> str:
            try:
                return render_diagnosis(diagnoses.of(name))
            except USER_ERRORS as error:
                return render_message(str(error))

        gr.on(
            [tab.select, encoder.input],
            show,
            encoder,
            shown,
            api_visibility="private",
            show_progress="minimal",
            concurrency_id="diagnose",
            concurrency_limit=2,
        )

        def diagnose(encoder: str) -> dict[str, Any]:
            """What the corpus's magnitudes say under an encoder: figures with their meanings, and all in a few sentences."""
            with told_in_a_line("a diagnosis"):
                found = diagnoses.of(text_argument(encoder, "encoder", "the name of an encoder"))
            figures = [
                {"title": own.title, "value": own.value, "detail": own.detail, "meaning": own.meaning}
                for own in readings(found)
            ]
            return {"encoder": found.encoder, "corpus": found.corpus, "summary": verdict(found), "figures": figures}

        gr.api(diagnose, api_name="diagnose", concurrency_id="diagnose")
