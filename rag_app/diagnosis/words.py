"""What the figures of `rag_app.diagnosis.passages` mean, in words that claim no more than the figures do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rag_app.diagnosis.passages import Diagnosed
from retriever.diagnostics import Diagnosis, Effect

Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure.

    Attributes:
        title: What it is.
        value: The figure; "–" where it is undefined.
        detail: Its interval or what it is over; may be empty.
        meaning: What follows from it, and what does not.
    """

    title: str
    value: str
    detail: str
    meaning: str


def readings(found: Diagnosed) -> list[Reading]:
    """Every figure with its meaning, in the order in which one should read them."""
    return [_spread(found.figures), _length(found.figures), *_relevance(found), _training(found)]


def verdict(found: Diagnosed) -> str:
    """All of it in two or three sentences: what to expect of a similarity that counts magnitude."""
    parts = reasons(found)
    if found.figures.cv >= EVEN:
        parts.append("The Evaluate tab measures what it does to rankings and answers.")
    return " ".join(parts)


def reasons(found: Diagnosed) -> list[str]:
    """What the norms of the passages say for or against counting them, a sentence each."""
    figures = found.figures
    if figures.cv < EVEN:
        return [
            "All vectors are nearly of one length, so a similarity that counts magnitude ranks almost as cosine does: "
            "there is little to gain or to lose."
        ]
    parts = []
    if math.isfinite(figures.length) and figures.length**2 >= 0.25:
        longer = figures.length > 0
        parts.append(
            f"Magnitude here is {'mostly' if figures.length**2 >= 0.5 else 'to a good part'} a matter of length: "
            f"counting it favours {'long' if longer else 'short'} passages."
        )
    sign = beyond_length(figures)
    if sign is None:
        parts.append("Whether it also tells relevant passages from others cannot be seen without marked passages.")
    elif sign == 0:
        parts.append("Of what length leaves, nothing can be seen that tells relevant passages from others.")
    elif sign > 0:
        parts.append("Beyond length, relevant passages have somewhat longer vectors: counting magnitude can help.")
    else:
        parts.append(
            "Beyond length, relevant passages have somewhat shorter vectors: counting magnitude works against them."
        )
    return parts


def beyond_length(figures: Diagnosis) -> int | None:
    """Sign of the difference between relevant and other passages for their length.

    Returns:
        1 where relevant ones have longer vectors, -1 where shorter, 0 where it could be chance; None where nothing is marked.
    """
    effect = figures.apart if math.isfinite(figures.apart.value) else figures.effect
    interval = figures.apart_interval or figures.effect_interval
    if interval is None:
        return None
    return 0 if _open(interval) else 1 if effect.value > 0 else -1


EVEN = 0.01
"""A coefficient of variation below this moves a score by less than its cosine's second digit."""


def _spread(figures: Diagnosis) -> Reading:
    share = f"{100 * figures.cv:.1f} %"
    detail = f"mean |d| {figures.mean:.3f}; 90 % of the passages between {figures.low:.3f} and {figures.high:.3f}"
    if not math.isfinite(figures.cv):
        return Reading(
            "Spread (coefficient of variation)", "–", "", "The norms have no mean to compare their spread with."
        )
    meaning = (
        f"A passage one standard deviation above the mean scores {share} higher when magnitude counts, and overtakes "
        f"those whose cosine is less than {share} above its own. "
    )
    if figures.cv < EVEN:
        meaning += "That is next to nothing: magnitude can change little here."
    elif figures.cv < 0.05:
        meaning += "That is little: it decides between passages whose cosines are close, and hardly elsewhere."
    else:
        meaning += "That can move passages by many ranks; whether for the better, this figure does not say."
    return Reading("Spread (coefficient of variation)", share, detail, meaning)


def _length(figures: Diagnosis) -> Reading:
    title = "Norm and length (Pearson, log tokens)"
    r = figures.length
    over = (
        f"{figures.sampled:,} passages" if figures.sampled == figures.n else f"a sample of {figures.sampled:,} passages"
    )
    if not math.isfinite(r):
        return Reading(title, "–", over, "Norms or lengths do not vary, so there is nothing to relate.")
    explained = f"{100 * r * r:.0f} %"
    longer, favoured = ("longer", "long") if r > 0 else ("shorter", "short")
    if _open(figures.length_interval):
        meaning = "The interval holds 0: no relation to length can be seen."
    elif r * r >= 0.25:
        how = "Mostly a length bias" if r * r >= 0.5 else "In good part a length bias"
        meaning = (
            f"{how}: {explained} of the variance of |d| goes with length. Longer texts have {longer} vectors, so dot and "
            f"QNorm favour {favoured} passages, whatever they say."
        )
    elif r * r >= 0.05:
        meaning = (
            f"Some of it is length: {explained} of the variance of |d|. Longer texts have somewhat {longer} vectors; most "
            "of the magnitude is something else."
        )
    else:
        meaning = f"Magnitude has little to do with length, which goes with {explained} of its variance."
    return Reading(title, f"{r:+.2f}", f"{_between(figures.length_interval)}{over}", meaning)


def _relevance(found: Diagnosed) -> list[Reading]:
    figures = found.figures
    title, apart = "Relevant against other passages (Cohen's d)", "The same without length (Cohen's d)"
    if not found.datasets:
        return [Reading(title, "–", "", f"Cannot be told: {found.unmarked}.")]
    effect = figures.effect
    over = f"{effect.relevant:,} marked by questions of {', '.join(found.datasets)}, {effect.others:,} others"
    if not math.isfinite(effect.value):
        return [Reading(title, "–", over, f"Undefined: {effect.reason}.")]
    first = Reading(
        title,
        f"{effect.value:+.2f}",
        f"{_between(figures.effect_interval)}{over}",
        f"{_size(effect, figures.effect_interval)} Of a relevant and another passage, the relevant one has the longer "
        f"vector in {100 * figures.longer:.0f} % of all pairs; 50 % would be chance. Passages that no question marks may "
        "be relevant to questions that nobody wrote.",
    )
    if not math.isfinite(figures.apart.value):
        return [first]
    kept = figures.apart
    meaning = _size(kept, figures.apart_interval, "For their length, relevant passages")
    if not _open(figures.effect_interval):
        if kept.value * effect.value <= 0 or abs(kept.value) < 0.5 * abs(effect.value):
            meaning += " Most of the difference above came from length."
        elif abs(kept.value) > abs(effect.value) * 1.5:
            meaning += " Length had hidden part of the difference."
        else:
            meaning += " So the difference above is not one of length."
    second = Reading(apart, f"{kept.value:+.2f}", _between(figures.apart_interval).rstrip(", "), meaning)
    return [first, second, *_correlated(figures)]


def _correlated(figures: Diagnosis) -> list[Reading]:
    if not math.isfinite(figures.partial):
        return []
    plain = f"{figures.relevance:+.3f}" if math.isfinite(figures.relevance) else "undefined"
    meaning = (
        f"Without holding length constant it is {plain}. Where few passages are relevant it is small whatever the "
        "difference; its sign and whether its interval holds 0 are what counts."
    )
    detail = f"{_between(figures.partial_interval, 3)}{figures.compared:,} passages"
    return [
        Reading(
            "Norm and relevance (partial correlation, length held constant)", f"{figures.partial:+.3f}", detail, meaning
        )
    ]


def _size(effect: Effect, interval: Interval, who: str = "Relevant passages") -> str:
    if _open(interval):
        return f"{who} have vectors neither longer nor shorter by anything that could not be chance."
    strength = next(word for most, word in _COHEN if abs(effect.value) < most)
    direction = "longer" if effect.value > 0 else "shorter"
    return f"{who} have {direction} vectors; by Cohen's words the difference is {strength}."


_COHEN = ((0.2, "negligible"), (0.5, "small"), (0.8, "medium"), (math.inf, "large"))


def _training(found: Diagnosed) -> Reading:
    trained = found.trained_for
    title = "What the encoder was trained for"
    if trained is None:
        return Reading(
            title, "not said", found.model, "Nobody says what its magnitudes were trained to mean, if anything."
        )
    if trained in ("cosine", "dnorm"):
        meaning = (
            "Its training took the passage's magnitude out of every score, so nothing taught it to mean anything; what it "
            "tells is a by-product."
        )
    else:
        meaning = "Its training scored passages with their magnitude, so it could learn to mean something."
    return Reading(title, trained, found.model, meaning)


def _open(interval: Interval) -> bool:
    """Whether it holds 0, or there is none to tell."""
    return interval is None or interval[0] <= 0 <= interval[1]


def _between(interval: Interval, digits: int = 2) -> str:
    return f"95 % interval {interval[0]:+.{digits}f} to {interval[1]:+.{digits}f}, " if interval else ""
