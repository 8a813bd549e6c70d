"""What the figures that need questions, or sentence pairs, mean; as `rag_app.diagnosis.words` those of passages."""

from __future__ import annotations

import math
from typing import Literal

from rag_app.diagnosis.pairs import PairsDiagnosed
from rag_app.diagnosis.passages import Diagnosed
from rag_app.diagnosis.queries import Asked
from rag_app.diagnosis.words import (
    ALIKE,
    EVEN,
    Reading,
    at_limit,
    beyond_length,
    counts_passages,
    cut,
    length_bias,
    undefined,
    untold,
)
from retriever.diagnostics import Diagnosis
from retriever.fisher import FisherDiagnostic

DEFAULT_SIDE = (
    "qnorm or dot for encoders that were trained contrastively before, dnorm for those that come from a language model"
)
"""After table 1 of Feng & Watanabe (arXiv 2602.09229v1): Contriever, of the first kind, has its best means out of domain by qnorm
and dot, RetroMAE, of the second, by dnorm or learnable. Two models, so no more than a default."""
_DECIDES = (
    f"a short training of both, compared on questions of another domain (--pilot), decides; without one, {DEFAULT_SIDE}"
)


def query_readings(asked: Asked) -> list[Reading]:
    """Every figure of questions and rankings with its meaning."""
    return [
        _norms(asked.queries, "Question norms", "|q|", "questions"),
        _length(asked.queries, "Question norm and length", "questions"),
        _anisotropy(asked.anisotropy, ("questions", "passages")),
        _overlap(asked),
        *_hubness(asked),
        fisher_reading(asked.fisher),
    ]


def _norms(figures: Diagnosis, title: str, symbol: str, what: str) -> Reading:
    title = f"{title} (coefficient of variation)"
    if not math.isfinite(figures.cv):
        return undefined(title, figures.undefined["cv"])
    detail = f"mean {symbol} {figures.mean:.3f}; 90 % of {figures.n:,} {what} between {figures.low:.3f} and {figures.high:.3f}"
    meaning = (
        "The length of a question's vector multiplies all of its scores (dot, dnorm) and moves no passage past another; it "
        "matters to thresholds, to fusion of scores and to training."
        if what == "questions"
        else "Coefficient of variation. What a similarity that counts magnitude multiplies the pairs' cosines by."
    )
    return Reading(title, f"{100 * figures.cv:.1f} %", detail, meaning)


def _length(figures: Diagnosis, title: str, what: str) -> Reading:
    title = f"{title} (Pearson, log tokens)"
    if not math.isfinite(figures.length):
        return undefined(title, figures.undefined["length"])
    interval = figures.length_interval
    detail = f"95 % interval {interval[0]:+.2f} to {interval[1]:+.2f}, " if interval else ""
    meaning = f"Length goes with {100 * figures.length**2:.0f} % of the variance of these norms.{cut(figures, what)}"
    return Reading(title, f"{figures.length:+.2f}", f"{detail}{figures.sampled:,} texts{at_limit(figures)}", meaning)


def _anisotropy(found: tuple[float, float], sides: tuple[str, str]) -> Reading:
    meaning = (
        f"0 is directions spread evenly, 1 all the same. Its square is the mean cosine of two {sides[1]}, {found[1] ** 2:.2f}: the "
        "higher, the closer cosines lie together, and the more a difference in magnitude weighs beside them."
    )
    value = " / ".join(f"{value:.2f}" for value in found)
    return Reading("Anisotropy (length of the mean unit vector)", value, " / ".join(sides), meaning)


def _overlap(asked: Asked) -> Reading:
    title = f"Overlap@{asked.k} of cosine and magnitude"
    if not math.isfinite(asked.overlap):
        return undefined(title, asked.undefined["overlap"])
    interval = asked.overlap_interval
    detail = f"95 % interval {100 * interval[0]:.1f} to {100 * interval[1]:.1f} %, " if interval else ""
    kept = asked.overlap * asked.k
    meaning = (
        f"Of the {asked.k} best passages by cosine, {kept:.1f} on average are among the {asked.k} best by magnitude (dot and "
        "qnorm rank alike). It says how much the choice changes, not which is better."
    )
    return Reading(title, f"{100 * asked.overlap:.1f} %", f"{detail}{asked.queries.n:,} questions", meaning)


def _hubness(asked: Asked) -> list[Reading]:
    found = []
    for name, own in (("cosine", asked.by_cosine), ("magnitude", asked.by_magnitude)):
        title = f"Hubness by {name} (skewness of N_{asked.k})"
        if not math.isfinite(own.skewness):
            found.append(undefined(title, own.reason))
            continue
        meaning = (
            f"If questions drew passages at random it would be {own.chance:.1f}; above that, some passages are near to many "
            f"questions. The most frequent one is among the {asked.k} best of {own.most:,} questions, and "
            f"{100 * own.never:.0f} % of the passages of none."
        )
        found.append(Reading(title, f"{own.skewness:.1f}", f"{asked.queries.n:,} questions", meaning))
    return found


def fisher_reading(found: FisherDiagnostic) -> Reading:
    """Which side to normalise, or why the diagnostic abstains."""
    title = "Side to normalise before fine-tuning (Fisher-type, our definition)"
    if found.qnorm is None or found.dnorm is None:
        return Reading(title, "abstains", "", f"Not computed: {found.reason}. Then {_DECIDES}.")
    interval = found.interval
    detail = f"ln κ(qnorm)/κ(dnorm) {found.difference:+.2f}, " if math.isfinite(found.difference) else ""
    detail += f"95 % interval {interval[0]:+.2f} to {interval[1]:+.2f}, " if interval else ""
    detail += f"{found.n:,} questions × {found.candidates} passages"
    if found.verdict:
        meaning = (
            f"Points to {found.verdict}: {found.reason}. It is a guess about a training that has not begun; {_DECIDES}."
        )
    else:
        meaning = f"Abstains, since {found.reason}. Then {_DECIDES}."
    kappas = f" κ is {found.qnorm.kappa:.1f} for qnorm and {found.dnorm.kappa:.1f} for dnorm."
    return Reading(title, found.verdict or "abstains", detail, meaning + kappas)


def headline(found: Diagnosed, asked: Asked | None) -> str:
    """The verdict in a sentence: how to search with this encoder, by what these figures show."""
    trained, overlap = found.trained_for, math.nan if asked is None else asked.overlap
    if overlap >= ALIKE:
        return "Magnitude hardly matters here: rankings by cosine and by magnitude are nearly the same."
    # Where rankings were compared, they decide.
    if found.figures.cv < EVEN and math.isnan(overlap):
        return "Magnitude hardly matters here: all vectors are nearly of one length."
    sign = beyond_length(found.figures)
    if not counts_passages(trained):
        if sign == 1:
            return (
                "Search by cosine, which ranks as the encoder was trained to. Relevant passages have the longer vectors for their "
                "length, but nothing trained these magnitudes, and that alone does not make dot or qnorm rank better."
            )
        tells = (
            "whether they tell of relevance cannot be told"
            if untold(found)
            else "they tell little of relevance, if anything"
        )
        return f"Search by cosine, which ranks as the encoder was trained to: its magnitudes were not trained, and {tells}."
    by = f"by {trained}, which the encoder was trained for" if trained else "by dot or qnorm"
    if sign == 1 and length_bias(found.figures) and not trained:
        return (
            "Measure before counting magnitude: for their length, relevant passages have the longer vectors, but much of the "
            "magnitude is length."
        )
    if sign == 1:
        return f"Search {by}: beyond length, relevant passages have the longer vectors."
    if sign == -1:
        return "Measure before counting magnitude: for their length, relevant passages have the shorter vectors."
    unseen = "cannot be told" if sign is None else "cannot be seen here"
    if trained:
        return f"Search {by}; whether its magnitudes tell of relevance {unseen}, so compare it with cosine first."
    return (
        f"Search by cosine unless `magrag eval` shows otherwise: whether these magnitudes tell of relevance {unseen}."
    )


def query_reasons(asked: Asked) -> list[str]:
    """What questions and rankings add to the reasons, a sentence each."""
    kept = asked.overlap * asked.k
    lines = [
        f"{kept:.1f} of the {asked.k} best passages by cosine are among the {asked.k} best by magnitude."
        if math.isfinite(kept)
        else f"How far rankings by cosine and by magnitude agree cannot be told: {asked.undefined['overlap']}."
    ]
    own, other = asked.by_magnitude.skewness, asked.by_cosine.skewness
    if math.isfinite(own) and math.isfinite(other):
        lines.append(
            f"Counting magnitude concentrates rankings {'more' if own > other else 'less'} on few passages (hubness {own:.1f} against "
            f"{other:.1f})."
            if _differ(own, other)
            else f"Counting magnitude concentrates rankings on few passages about as cosine does (hubness {own:.1f}, {other:.1f})."
        )
    if asked.fisher.verdict:
        lines.append(
            f"Before fine-tuning, the Fisher-type diagnostic (our definition) points to {asked.fisher.verdict}: {asked.fisher.reason}."
        )
    else:
        lines.append(
            f"Before fine-tuning, the Fisher-type diagnostic (our definition) abstains: {asked.fisher.reason}."
        )
    lines.append("`magrag eval` measures what the choice does to rankings and answers.")
    return lines


def _differ(first: float, second: float) -> bool:
    """By a tenth of the larger one, and by more than the one digit that is shown: skewness may be small, or negative."""
    return abs(first - second) > 0.1 * max(1.0, abs(first), abs(second))


def pair_readings(found: PairsDiagnosed) -> list[Reading]:
    """Every figure of sentence pairs with its meaning."""
    readings = []
    for row in found.rows:
        own, change = row.spearman, row.change
        detail = f"{_points(own.interval)}{own.n:,} pairs"
        if change is None:
            meaning = "Treats both sentences alike, and looks at directions alone: what such a task takes."
        else:
            lost = f"{100 * change.value:+.1f} points against cosine ({_points(change.interval, '+').rstrip(', ')})"
            why = (
                "treats both sentences alike, but multiplies by both lengths"
                if row.symmetric
                else "one-sided: the score depends on which sentence stands first, which such a task must not"
            )
            meaning = f"{lost}; {why}."
        readings.append(Reading(f"Spearman by {row.similarity}", f"{100 * own.value:.2f}", detail, meaning))
    for place, figures in zip(("First", "Second"), found.sides, strict=True):
        readings.append(_norms(figures, f"{place} sentences' norms", "|v|", "sentences"))
        readings.append(_length(figures, f"{place} sentences: norm and length", "sentences"))
    return [*readings, _anisotropy(found.anisotropy, ("first sentences", "second sentences"))]


def pair_verdict(found: PairsDiagnosed) -> tuple[str, list[str]]:
    """The verdict in a sentence, and its reasons."""
    head = "Score sentence pairs by cosine."
    lines = []
    for row in found.rows:
        if row.change is None:
            continue
        lines.append(f"{row.similarity} {_moves(row.change.value, row.change.interval)}.")
        if row.change.interval is None or row.change.interval[0] > 0:
            head = "Sentence pairs take cosine, whose sides are alike; the figures say whether another one follows people better."
    lines.append(
        "qnorm and dnorm are scored because their loss is what is measured here; `magrag eval` refuses them on sentence pairs "
        "unless eval.allow_asymmetric=true."
    )
    return head, lines


def _moves(value: float, interval: tuple[float, float] | None) -> str:
    """A change of Spearman in words."""
    if interval is None or interval[0] <= 0 <= interval[1]:
        return f"differs from cosine by nothing that could not be chance ({100 * value:+.1f} Spearman points)"
    return f"{'gains' if value > 0 else 'loses'} {abs(100 * value):.1f} Spearman points against cosine"


def _points(interval: tuple[float, float] | None, sign: Literal["", "+"] = "") -> str:
    return f"95 % interval {100 * interval[0]:{sign}.1f} to {100 * interval[1]:{sign}.1f}, " if interval else ""
