"""What the figures of `rag_app.diagnosis.passages` mean, in words that claim no more than the figures do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rag_app.diagnosis.passages import Diagnosed
from retriever.diagnostics import Diagnosis, Effect

Interval = tuple[float, float] | None


UNDEFINED = "–"


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure.

    Attributes:
        title: What it is.
        value: The figure; `UNDEFINED` where there is none, and the meaning is why.
        detail: Its interval or what it is over; may be empty.
        meaning: What follows from it, and what does not.
    """

    title: str
    value: str
    detail: str
    meaning: str


def undefined(title: str, reason: str, detail: str = "") -> Reading:
    """A figure that there is none of, and why, which is given as a phrase."""
    return Reading(title, UNDEFINED, detail, f"Cannot be told: {reason}.")


def readings(found: Diagnosed) -> list[Reading]:
    """Every figure with its meaning, in the order in which one should read them."""
    return [_spread(found.figures), _length(found.figures), *_relevance(found), _training(found)]


def verdict(found: Diagnosed) -> str:
    """All of it in a few sentences: what to expect of a similarity that counts magnitude."""
    parts = reasons(found)
    if found.figures.cv >= EVEN:
        parts.append("The Evaluate tab measures what it does to rankings and answers.")
    return " ".join(parts)


def reasons(found: Diagnosed, overlap: float = math.nan) -> list[str]:
    """What the norms of the passages say for or against counting them, a sentence each.

    Args:
        found: The passages.
        overlap: Of rankings by cosine and by magnitude, where that was measured.
    """
    figures = found.figures
    parts = []
    if figures.cv < EVEN and not overlap < ALIKE:
        return [
            "All vectors are nearly of one length, so a similarity that counts magnitude ranks almost as cosine does: "
            "there is little to gain or to lose."
        ]
    if figures.cv < EVEN:
        parts.append(
            "All vectors are nearly of one length, but cosines lie so close together that it changes rankings."
        )
    if length_bias(figures):
        longer = figures.length > 0
        parts.append(
            f"Magnitude here is {'mostly' if figures.length**2 >= 0.5 else 'to a good part'} a matter of length: "
            f"counting it favours {'long' if longer else 'short'} passages."
        )
    parts.append(_beyond_length(found, overlap))
    if words := cut(figures, "passages"):
        parts.append(words.lstrip())
    return parts


def _beyond_length(found: Diagnosed, overlap: float) -> str:
    """What relevance has to do with magnitude, and what that is good for, if anything."""
    figures, why = found.figures, untold(found)
    if why:
        return f"Whether magnitude tells relevant passages from others, length aside, cannot be told: {why}."
    sign = beyond_length(figures)
    if _open(figures.apart_interval):
        return "Of what length leaves, nothing can be seen that tells relevant passages from others."
    direction = "longer" if figures.apart.value > 0 else "shorter"
    said = (
        f"Beyond length, relevant passages have {direction} vectors, by Cohen's words with a {strength(figures.apart)} difference "
        f"({figures.apart.value:+.2f})"
    )
    if not sign:
        return f"{said}: too little to count on."
    if overlap >= ALIKE:
        return f"{said}, but rankings hardly change by it."
    if sign < 0:
        return f"{said}: at equal length, counting magnitude works against them."
    if length_bias(figures):
        return f"{said}, but counting magnitude counts length with it."
    if not counts_passages(found.trained_for):
        return f"{said}; no training made them so, and that alone does not make a ranking better."
    return f"{said}: counting magnitude can help."


def untold(found: Diagnosed) -> str:
    """Why it cannot be told whether relevant passages differ for their length, in a phrase; "" where it can."""
    if not found.datasets:
        return found.unmarked
    effect = found.figures.effect
    if min(effect.relevant, effect.others) < 2:
        return f"it needs two passages that are marked and two that are not, and there are {effect.relevant} and {effect.others}"
    return effect.reason or found.figures.apart.reason


def beyond_length(figures: Diagnosis) -> int | None:
    """Sign of the difference between relevant and other passages for their length.

    Returns:
        1 where relevant ones have longer vectors, -1 where shorter, 0 where it could be chance or is negligible; None where it
        is undefined.
    """
    if figures.apart_interval is None:
        return None
    if _open(figures.apart_interval) or strength(figures.apart) == NEGLIGIBLE:
        return 0
    return 1 if figures.apart.value > 0 else -1


def length_bias(figures: Diagnosis) -> bool:
    """Whether a quarter of the variance of norms, or more, goes with length."""
    return figures.length**2 >= 0.25


def counts_passages(trained_for: str | None) -> bool:
    """Whether the training scored passages with their magnitude, or nobody says that it did not."""
    return trained_for not in ("cosine", "dnorm")


def strength(effect: Effect) -> str:
    """Cohen's word for an effect's size."""
    return next(word for most, word in _COHEN if abs(effect.value) < most)


ALIKE = 0.95
"""Where more of the best passages than this are the same, which of two rankings is taken hardly matters."""

CUT = 0.1
"""With a larger share of texts at the encoder's limit it is said that their length is that of what is left."""

EVEN = 0.01
"""A coefficient of variation below this moves a score by less than its cosine's second digit."""


def _spread(figures: Diagnosis) -> Reading:
    if not math.isfinite(figures.cv):
        return undefined("Spread (coefficient of variation)", figures.undefined["cv"])
    share = f"{100 * figures.cv:.1f} %"
    detail = f"mean |d| {figures.mean:.3f}; 90 % of the passages between {figures.low:.3f} and {figures.high:.3f}"
    meaning = (
        f"A passage one standard deviation above the mean scores {share} higher when magnitude counts, and overtakes "
        f"those whose cosine is less than {share} above its own. "
    )
    if figures.cv < EVEN:
        meaning += (
            "That is next to nothing: magnitude can change little where cosines lie no closer together than that."
        )
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
        return undefined(title, figures.undefined["length"], over)
    over += at_limit(figures)
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
    meaning += cut(figures, "passages")
    return Reading(title, f"{r:+.2f}", f"{_between(figures.length_interval)}{over}", meaning)


def at_limit(figures: Diagnosis) -> str:
    """Of texts whose length is that of what is left of them, for a detail."""
    return f", {100 * figures.at_limit:.0f} % at the limit of {figures.limit:,} tokens" if figures.at_limit > 0 else ""


def cut(figures: Diagnosis, what: str) -> str:
    """A sentence, with a space before it, where the lengths of many texts are those of what is left of them; or ""."""
    if not figures.at_limit > CUT:
        return ""
    return (
        f" Length is that of the text as the encoder reads it: {100 * figures.at_limit:.0f} % of the {what} reach its limit of "
        f"{figures.limit:,} tokens, and what is cut off counts nowhere."
    )


def _relevance(found: Diagnosed) -> list[Reading]:
    figures = found.figures
    title, apart = "Relevant against other passages (Cohen's d)", "The same without length (Cohen's d)"
    if not found.datasets:
        return [undefined(title, found.unmarked)]
    effect = figures.effect
    over = f"{effect.relevant:,} marked by questions of {', '.join(found.datasets)}, {effect.others:,} others"
    if not math.isfinite(effect.value):
        return [undefined(title, untold(found), over)]
    first = Reading(
        title,
        f"{effect.value:+.2f}",
        f"{_between(figures.effect_interval)}{over}",
        f"{_size(effect, figures.effect_interval)} Of a relevant and another passage, the relevant one has the longer "
        f"vector in {100 * figures.longer:.0f} % of all pairs; 50 % would be chance. Passages that no question marks may "
        "be relevant to questions that nobody wrote.",
    )
    kept = figures.apart
    if not math.isfinite(kept.value):
        return [first, undefined(apart, kept.reason), *_correlated(figures)]
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
    title = "Norm and relevance (partial correlation, length held constant)"
    if not math.isfinite(figures.partial):
        return [undefined(title, figures.undefined["partial"])]
    plain = f"{figures.relevance:+.3f}" if math.isfinite(figures.relevance) else "undefined"
    meaning = (
        f"Without holding length constant it is {plain}. Where few passages are relevant it is small whatever the "
        "difference; its sign and whether its interval holds 0 are what counts."
    )
    detail = f"{_between(figures.partial_interval, 3)}{figures.compared:,} passages"
    return [Reading(title, f"{figures.partial:+.3f}", detail, meaning)]


def _size(effect: Effect, interval: Interval, who: str = "Relevant passages") -> str:
    if _open(interval):
        return f"{who} have vectors neither longer nor shorter by anything that could not be chance."
    direction = "longer" if effect.value > 0 else "shorter"
    return f"{who} have {direction} vectors; by Cohen's words the difference is {strength(effect)}."


NEGLIGIBLE = "negligible"
_COHEN = ((0.2, NEGLIGIBLE), (0.5, "small"), (0.8, "medium"), (math.inf, "large"))


def _training(found: Diagnosed) -> Reading:
    trained = found.trained_for
    title = "What the encoder was trained for"
    if trained is None:
        return Reading(
            title, "not said", found.model, "Nobody says what its magnitudes were trained to mean, if anything."
        )
    if not counts_passages(trained):
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
