"""A diagnosis as text, JSON and one HTML page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

import numpy as np

from eval.report.html.markup import items, table_html, text
from eval.report.html.page import html_document
from eval.report.render import aligned
from eval.report.tables import Table
from rag_app.diagnosis.figures import cards, count_chart, interval_table, norm_charts
from rag_app.diagnosis.pairs import Followed, PairsDiagnosed
from rag_app.diagnosis.passages import Diagnosed
from rag_app.diagnosis.pilot import TRAINED, Pilot
from rag_app.diagnosis.pilot_words import pilot_differences, pilot_headline, pilot_reading, pilot_reasons
from rag_app.diagnosis.queries import Asked
from rag_app.diagnosis.query_words import (
    headline,
    pair_readings,
    pair_verdict,
    query_readings,
    query_reasons,
)
from rag_app.diagnosis.words import UNDEFINED, Reading, readings, reasons
from retriever.fisher import FisherDiagnostic

WIDTH = 110


@dataclass(frozen=True, slots=True)
class DiagnosisReport:
    """What was found, ready to be written.

    Attributes:
        title: Encoder and what it was looked at over.
        how: Numbers and model, in a line.
        headline: The verdict in a sentence.
        reasons: A sentence each.
        readings: Every figure with its meaning.
        charts: HTML.
        figures: Every figure as JSON values.
    """

    title: str
    how: str
    headline: str
    reasons: list[str]
    readings: list[Reading]
    charts: str
    figures: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Verdict, words and figures; what is undefined is null, and "reason" or "undefined" beside it says why."""
        return {
            **{name: value for name, value in self.figures.items() if not isinstance(value, dict)},
            "verdict": self.headline,
            "reasons": self.reasons,
            "readings": [asdict(reading) for reading in self.readings],
            "figures": {name: value for name, value in self.figures.items() if isinstance(value, dict)},
        }

    def to_text(self) -> str:
        """A terse table, why figures are missing in it, then the verdict and its reasons."""
        rows: list[tuple[str, ...]] = [(own.title, own.value, own.detail) for own in self.readings]
        table = Table(
            "", ("figure", "value", "over"), [(title, value, detail) for title, value, detail in rows], names=3
        )
        lines = [self.title, self.how, "", aligned(table), ""]
        why = [
            fill(f"{UNDEFINED} {own.title}: {own.meaning}", WIDTH) for own in self.readings if own.value == UNDEFINED
        ]
        lines += [*why, ""] if why else []
        lines += [fill(f"Verdict: {self.headline}", WIDTH)]
        lines += [fill(line, WIDTH, initial_indent="- ", subsequent_indent="  ") for line in self.reasons]
        return "\n".join(lines)

    def to_html(self) -> str:
        """One file that opens without a network."""
        return html_document(
            f"Diagnosis of {self.title}",
            '<a class="skip" href="#main">To the figures</a>'
            f'<header><h1>Diagnosis</h1><p class="lead">{text(self.title)}</p><p class="how">{text(self.how)}</p></header>'
            '<main id="main" class="mg-diagnosis"><section aria-labelledby="verdict"><h2 id="verdict">Verdict</h2>'
            f'<p class="mg-words">{text(self.headline)}</p>{items(self.reasons)}</section>'
            f'<section aria-labelledby="readings"><h2 id="readings">Figures</h2>{cards(self.readings)}</section>'
            f"{self.charts}</main>",
        )


def index_report(found: Diagnosed, asked: Asked | None, pilot: Pilot | None = None) -> DiagnosisReport:
    """Of an index, with the questions asked of it where there are any, and with a pilot's trainings."""
    own = readings(found)
    why = reasons(found, math.nan if asked is None else asked.overlap)
    charts = _section("Passages", "passages", f'<div class="grid">{norm_charts(found.figures)}</div>')
    if asked is not None:
        # What the encoder was trained for comes last.
        own = [*own[:-1], *query_readings(asked), own[-1]]
        why += query_reasons(asked)
        charts += _questions(asked)
    else:
        why.append("Without questions, rankings, hubness and the side to normalise were not looked at.")
    head = headline(found, asked)
    if pilot is not None:
        own.insert(-1, pilot_reading(pilot))
        why = [*pilot_reasons(pilot), *why]
        head = f"{pilot_headline(pilot)} As it comes: {head}"
        charts += _pilot(pilot)
    return DiagnosisReport(
        title=f"{found.encoder} over {found.corpus}",
        how=f"{found.figures.n:,} passages"
        + (f" · {asked.queries.n:,} questions of {asked.dataset}" if asked else "")
        + f" · {found.model}",
        headline=head,
        reasons=why,
        readings=own,
        charts=charts,
        figures=_plain(
            {
                "encoder": found.encoder,
                "model": found.model,
                "trained_for": found.trained_for,
                "corpus": found.corpus,
                "datasets": found.datasets,
                "unmarked": found.unmarked,
                "passages": asdict(found.figures),
                **({} if asked is None else {"questions": asdict(asked)}),
                **({} if pilot is None else {"pilot": {"side": pilot.side, "advised": pilot.advised, **asdict(pilot)}}),
            }
        ),
    )


def pairs_report(found: PairsDiagnosed) -> DiagnosisReport:
    """Of sentence pairs."""
    head, why = pair_verdict(found)
    scored = interval_table(
        "Spearman's correlation with people's scores",
        [
            (
                row.similarity,
                row.spearman.value,
                row.spearman.interval,
                _bracketed(row.spearman.value, row.spearman.interval),
            )
            for row in found.rows
        ],
    )
    changes = [(row.similarity, row.change) for row in found.rows if row.change is not None]
    lost = interval_table(
        "Difference from cosine, paired by sentence pair",
        [(name, own.value, own.interval, _bracketed(own.value, own.interval, "+")) for name, own in changes],
        zero=True,
    )
    charts = "".join(
        norm_charts(figures, f"{place} sentences", "|v|")
        for place, figures in zip(("first", "second"), found.sides, strict=True)
    )
    return DiagnosisReport(
        title=f"{found.encoder} on {found.dataset}",
        how=f"{found.sides[0].n:,} sentence pairs · {found.model}",
        headline=head,
        reasons=why,
        readings=pair_readings(found),
        charts=_section("Similarities", "similarities", f'<div class="stack">{scored}{lost}</div>')
        + _section("Norms", "norms", f'<div class="grid">{charts}</div>'),
        figures=_plain(
            {
                "encoder": found.encoder,
                "model": found.model,
                "trained_for": found.trained_for,
                "dataset": found.dataset,
                "sides": {"first": asdict(found.sides[0]), "second": asdict(found.sides[1])},
                "anisotropy": {"first": found.anisotropy[0], "second": found.anisotropy[1]},
                "similarities": {row.similarity: _followed(row) for row in found.rows},
            }
        ),
    )


def _followed(row: Followed) -> dict[str, Any]:
    """Cosine has no change from itself."""
    few = {} if row.spearman.interval else {"undefined": {"interval": "it needs three pairs"}}
    return {name: value for name, value in asdict(row).items() if value is not None} | few


def _questions(asked: Asked) -> str:
    k, overlapping = asked.k, ""
    if asked.shares:
        both = np.bincount(np.rint(np.array(asked.shares) * k).astype(int), minlength=k + 1).tolist()
        overlapping = count_chart(
            both, f"Passages that both rankings have among their {k} best", f"of {k}, in both", "questions"
        )
    hubs = table_html(
        Table(
            f"How unevenly passages occur among the {k} best",
            ("ranking by", f"skewness of N_{k}", "by chance", "most frequent", "never ranked"),
            [
                (name, _plainly(own.skewness), _plainly(own.chance), f"{own.most:,}", f"{100 * own.never:.1f} %")
                for name, own in (("cosine", asked.by_cosine), ("magnitude", asked.by_magnitude))
            ],
        )
    )
    return _section(
        "Questions", "questions", f'<div class="grid">{norm_charts(asked.queries, "questions", "|q|")}</div>'
    ) + _section("Rankings", "rankings", f'<div class="grid">{overlapping}</div>{hubs}{_fisher(asked.fisher)}')


def _fisher(found: FisherDiagnostic) -> str:
    if found.qnorm is None or found.dnorm is None:
        return ""
    kappas = table_html(
        Table(
            "Condition numbers κ of the Fisher-type matrix (our definition)",
            ("variant", "κ", "query side alone", "passage side alone", "scale α"),
            [
                (name, f"{own.kappa:.2f}", f"{own.queries:.2f}", f"{own.passages:.2f}", f"{own.scale:.3g}")
                for name, own in (("qnorm", found.qnorm), ("dnorm", found.dnorm))
            ],
        )
    )
    if not math.isfinite(found.difference):
        return kappas
    words = _bracketed(found.difference, found.interval, "+")
    return kappas + interval_table(
        "ln κ(qnorm) − ln κ(dnorm): below 0 qnorm is the better conditioned one",
        [("difference", found.difference, found.interval, words)],
        zero=True,
    )


def _pilot(pilot: Pilot) -> str:
    rows = [pilot.row("untrained", "cosine"), pilot.row("untrained", "dot"), *map(pilot.row, TRAINED)]
    lines: list[tuple[str, ...]] = []
    for row in rows:
        norms = pilot.norms(row.trained_for)
        lines.append(
            (
                row.trained_for,
                row.searched_by,
                _bracketed(row.value, row.interval),
                ", ".join(f"{value:.4f}" for value in row.by_seed),
                f"{100 * norms.cv:.1f} %",
                f"{norms.length:+.2f}" if math.isfinite(norms.length) else UNDEFINED,
            )
        )
    trained = table_html(
        Table(
            f"nDCG@10 of {pilot.difference.n:,} questions over {pilot.passages:,} of {pilot.of:,} passages, after {pilot.steps:,} "
            "updates",
            ("trained for", "searched by", "nDCG@10, mean over seeds", "by seed", "spread of norms", "norm and length"),
            lines,
            names=2,
        )
    )
    difference = interval_table(
        "Differences in nDCG@10, paired by question: above 0 the first ranks better",
        [
            (name, own.difference, own.interval, _bracketed(own.difference, own.interval, "+"))
            for name, own in pilot_differences(pilot)
        ],
        zero=True,
    )
    return _section("Pilot", "pilot", f'<div class="stack">{difference}{trained}</div>')


def _section(title: str, anchor: str, content: str) -> str:
    return f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{text(title)}</h2>{content}</section>'


def _bracketed(value: float, interval: tuple[float, float] | None, sign: str = "") -> str:
    return f"{value:{sign}.4f}" + (f" [{interval[0]:{sign}.4f}, {interval[1]:{sign}.4f}]" if interval else "")


def _plainly(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else UNDEFINED


def _plain(value: Any) -> Any:
    """As JSON has it: what is not a finite number is null. Points of clouds, one for each passage, are left out."""
    if isinstance(value, Mapping):
        return {name: _plain(own) for name, own in value.items() if name != "points"}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
