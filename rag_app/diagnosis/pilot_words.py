"""What a pilot's figures mean: which side to normalise, or that they do not tell."""

from __future__ import annotations

from rag_app.diagnosis.pilot import TRAINED, Pilot
from rag_app.diagnosis.query_words import DEFAULT_SIDE
from rag_app.diagnosis.words import Reading
from retriever.wording import counted

_WHICH = {
    "qnorm": "normalise the questions and keep the passages' magnitude (qnorm)",
    "dnorm": "normalise the passages and keep the questions' magnitude (dnorm)",
}


def pilot_headline(pilot: Pilot) -> str:
    """The verdict in a sentence."""
    if not pilot.side:
        return f"The pilot does not tell which side to normalise, so the default stands: {DEFAULT_SIDE}."
    other = "dnorm" if pilot.side == "qnorm" else "qnorm"
    return (
        f"To fine-tune this encoder, {_WHICH[pilot.side]}: trained so for {pilot.steps:,} updates it ranks better than "
        f"trained by {other}."
    )


def pilot_reason(pilot: Pilot) -> str:
    """What the verdict rests on, in a sentence."""
    own = pilot.difference
    if own.interval is None:
        return (
            f"Pilot: qnorm − dnorm is {_points(own.difference)} of nDCG@10, and {own.n:,} questions give no interval."
        )
    where = "which holds 0" if not pilot.side else "above 0" if pilot.side == "qnorm" else "below 0"
    return (
        f"Pilot: qnorm − dnorm is {_points(own.difference)} of nDCG@10 over {own.n:,} questions, 95 % interval {_between(own.interval)}, "
        f"{where}; it was measured, and goes before the Fisher-type diagnostic."
    )


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
        f"{spread}. {among}. The interval is over questions, not over seeds, and a longer training may end otherwise."
    )
    return Reading("Side to normalise, by a pilot (qnorm − dnorm, nDCG@10)", _points(own.difference), detail, meaning)


def _points(value: float) -> str:
    return f"{100 * value:+.1f} points"


def _between(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:+.1f} to {100 * interval[1]:+.1f}"
