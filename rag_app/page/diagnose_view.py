"""What norms say, as HTML: readings in words, a histogram, norm against length, and the same as tables."""

from __future__ import annotations

from eval.report.html.markup import text
from rag_app.diagnosis.figures import cards, norm_charts
from rag_app.diagnosis.passages import Diagnosed
from rag_app.diagnosis.words import readings, verdict


def render_diagnosis(found: Diagnosed) -> str:
    """The whole of it."""
    figures = found.figures
    title = f"{found.encoder} over {found.corpus}"
    return (
        f'<div class="mg-report mg-diagnosis"><h2 class="mg-title">{text(title)}</h2>'
        f'<p class="how">{figures.n:,} passages · {text(found.model)}</p>'
        f'<p class="mg-words">{text(verdict(found))}</p>{cards(readings(found))}'
        f'<section><div class="grid">{norm_charts(figures)}</div></section></div>'
    )
