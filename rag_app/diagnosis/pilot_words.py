"""What a pilot's figures mean: which side to normalise, that both or no training are better, or that they do not tell."""

from __future__ import annotations

from eval.paired import Comparison
from eval.sweep import side
from rag_app.diagnosis.pilot import TRAINED, Pilot
from rag_app.diagnosis.query_words import DEFAULT_SIDE
from rag_app.diagnosis.words import Reading
from retriever.wording import counted

_WHICH = {
    "qnorm": "normalise the questions and keep the passages' magnitude",
    "dnorm": "normalise the passages and keep the questions' magnitude",
}
_BASELINES = {"cosine": "cosine trained alike", "untrained": "the untrained encoder by cosine"}


def pilot_headline(pilot: Pilot) -> str:
    """The verdict in a sentence: a side is recommended where it is ahead of the other one and of cosine trained alike."""
    best, after = pilot.side, f"for {pilot.steps:,} updates"
    trained = f"trained by {best}, the better of the two sides," if best else "trained by qnorm as well as by dnorm"
    if pilot.advised == "cosine":
        return (
            f"Stay with cosine, which normalises both sides: {trained} {after}, this encoder ranks worse than by cosine "
            "trained alike."
        )
    if pilot.advised == "untrained":
        than = "than it does untrained, by cosine"
        if not pilot.all_are(-1, "untrained"):
            than = f"than by cosine trained alike, and that worse {than}"
        return f"Do not train this encoder like this: {trained} {after}, it ranks worse {than}."
    if pilot.advised:
        other = "dnorm" if best == "qnorm" else "qnorm"
        gained = side(pilot.row(best).against_untrained) == 1
        return (
            f"To fine-tune this encoder, {_WHICH[best]} ({best}): trained so {after} it ranks better than trained by {other} or by cosine"
            f"{', and than untrained' if gained else '; nothing shows it to be ahead of the untrained encoder'}."
        )
    if best:
        return (
            f"Of the two sides {best} is the better ({_WHICH[best]}), but nothing shows it to be ahead of cosine trained alike, "
            "which normalises both."
        )
    ahead = [name for name in pilot.sides if side(pilot.row(name).against_cosine) == 1]
    if ahead:
        return (
            f"The pilot does not tell which side to normalise; {' and '.join(ahead)} {'are each' if len(ahead) > 1 else 'alone is'} "
            f"ahead of cosine trained alike."
        )
    return (
        "The pilot does not tell which side to normalise, and shows neither to be ahead of cosine trained alike. Where one has to be "
        f"chosen, the default stands: {DEFAULT_SIDE}."
    )


def pilot_reasons(pilot: Pilot) -> list[str]:
    """What the verdict rests on, a sentence for each baseline that there are figures for."""
    own = pilot.difference
    first = f"Pilot: in nDCG@10 over {counted(own.n, 'question')}, qnorm − dnorm is {_difference(own)}"
    lines = [f"{first}; it was measured, and goes before the Fisher-type diagnostic."]
    for baseline, words in _BASELINES.items():
        if changes := _against(pilot, baseline):
            lines.append(f"Pilot, against {words}: {'; '.join(f'{name} {_difference(own)}' for name, own in changes)}.")
    return lines


def pilot_differences(pilot: Pilot) -> list[tuple[str, Comparison]]:
    """Every difference that the verdict rests on, by what is subtracted from what."""
    found = [(f"{name} − {baseline}", own) for baseline in _BASELINES for name, own in _against(pilot, baseline)]
    return [("qnorm − dnorm", pilot.difference), *found]


def _against(pilot: Pilot, baseline: str) -> list[tuple[str, Comparison]]:
    rows = {name: getattr(pilot.row(name), f"against_{baseline}") for name in ("qnorm", "dnorm")}
    return [(name, change) for name, change in rows.items() if change is not None]


def pilot_reading(pilot: Pilot) -> Reading:
    """The figure with what it is over and what follows."""
    own, rows = pilot.difference, {name: pilot.row(name) for name in TRAINED}
    detail = f"95 % interval {_between(own.interval)}, " if own.interval else ""
    detail += f"{own.n:,} questions, {counted(len(pilot.seeds), 'seed')}"
    trained = ", ".join(f"by {name} {100 * row.value:.1f}" for name, row in rows.items())
    before = " and ".join(
        f"{100 * pilot.row('untrained', by).value:.1f} by {words}"
        for by, words in (("cosine", "cosine"), ("dot", "magnitude"))
    )
    spread = "; ".join(
        f"{name} {', '.join(f'{100 * value:.1f}' for value in rows[name].by_seed)}" for name in ("qnorm", "dnorm")
    )
    among = (
        f"Ranked are all {pilot.of:,} passages"
        if pilot.passages == pilot.of
        else f"Ranked are {pilot.passages:,} of {pilot.of:,} passages, all that are marked and a sample of the others, so nDCG is "
        "higher than over the whole corpus"
    )
    meaning = (
        f"{pilot_headline(pilot)} Trained for {pilot.steps:,} updates on {pilot.pairs}: {trained}; untrained {before}. By seed: "
        f"{spread}. {among}. Intervals are over questions, not over seeds, and a longer training may end otherwise."
    )
    return Reading("Side to normalise, by a pilot (qnorm − dnorm, nDCG@10)", _points(own.difference), detail, meaning)


def _difference(change: Comparison) -> str:
    """With its interval, and where that lies."""
    if change.interval is None:
        return f"{_points(change.difference)} (one question gives no interval)"
    where = {1: "above 0", -1: "below 0"}.get(side(change) or 0, "which holds 0")
    return f"{_points(change.difference)}, 95 % interval {_between(change.interval)}, {where}"


def _points(value: float) -> str:
    return f"{100 * value:+.1f} points"


def _between(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:+.1f} to {100 * interval[1]:+.1f}"
