"""What the figures of norms are said to mean: no more than they do, whichever way they point."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rag_app.diagnosis.figures import bands
from rag_app.diagnosis.passages import Diagnosed
from rag_app.diagnosis.queries import Asked, unmarked_diagnosis
from rag_app.diagnosis.query_words import headline, query_reasons
from rag_app.diagnosis.words import Reading, readings, reasons, verdict
from rag_app.page.diagnose_view import render_diagnosis
from retriever.diagnostics import Diagnosis, Effect, diagnose
from retriever.fisher import unknown_fisher
from retriever.neighbours import Hubness

N = 800


def figures(*, slope: float = 0.0, gain: float = 0.0, noise: float = 0.3, short: bool = False) -> Diagnosis:
    """Norms made of length (`slope`), relevance (`gain`) and noise; `short`: relevant passages are the short ones."""
    rng = np.random.default_rng(0)
    relevant = np.arange(N) % 2 == 0
    lengths = rng.integers(20, 200, N)
    if short:
        lengths = np.where(relevant, rng.integers(20, 60, N), rng.integers(80, 200, N))
    norms = 5 + slope * (np.log(lengths) - 4.5) + gain * relevant + rng.normal(0, noise, N)
    return diagnose(norms, np.arange(N), lengths, relevant, ~relevant)


def diagnosed(found: Diagnosis, **changes: Any) -> Diagnosed:
    facts: dict[str, Any] = {"encoder": "e", "model": "a model", "trained_for": "cosine", "corpus": "c"}
    return Diagnosed(**facts | {"datasets": ("demo",), "unmarked": "", "figures": found} | changes)


def asked(overlap: float = 0.65, cosine: float = 2.0, magnitude: float = 2.7) -> Asked:
    hubs = (Hubness(skewness, 1.3, 9, 0.4) for skewness in (cosine, magnitude))
    queries = unmarked_diagnosis(np.array([1.0, 2.0]), np.array([5, 9]), 64)
    return Asked("d", queries, (0.1, 0.2), 10, overlap, None, [], *hubs, unknown_fisher(0, "why"), {})


def by_title(found: Diagnosed) -> dict[str, Reading]:
    return {reading.title.split(" (")[0]: reading for reading in readings(found)}


@pytest.mark.parametrize(
    ("slope", "words"),
    [
        (-1.0, "Mostly a length bias"),
        (-0.32, "In good part a length bias"),
        (-0.2, "Some of it is length"),
        (0.0, "no relation to length can be seen"),
    ],
)
def test_a_strong_correlation_with_length_is_called_a_bias(slope: float, words: str) -> None:
    found = figures(slope=slope)
    reading = by_title(diagnosed(found))["Norm and length"]
    assert words in reading.meaning
    assert reading.value == f"{found.length:+.2f}"
    if "bias" in words:
        assert "favour short passages" in reading.meaning and f"{100 * found.length**2:.0f} %" in reading.meaning


def test_the_direction_of_the_bias_is_said() -> None:
    found = diagnosed(figures(slope=1.0))
    assert "favour long passages" in by_title(found)["Norm and length"].meaning
    assert "favours long passages" in verdict(found)


def test_a_small_spread_can_change_little() -> None:
    even = diagnosed(figures(noise=0.01))
    assert "can change little" in by_title(even)["Spread"].meaning
    assert "nearly of one length" in verdict(even)
    assert "many ranks" in by_title(diagnosed(figures(noise=0.6)))["Spread"].meaning


def test_what_could_be_chance_is_called_so() -> None:
    reading = by_title(diagnosed(figures()))["Relevant against other passages"]
    assert "could not be chance" in reading.meaning and "neither longer nor shorter" in reading.meaning
    assert "longer vectors; by Cohen's words the difference is large" in (
        by_title(diagnosed(figures(gain=0.3)))["Relevant against other passages"].meaning
    )


def test_a_difference_of_length_is_not_taken_for_one_of_relevance() -> None:
    found = diagnosed(figures(slope=-1.0, short=True))
    assert "longer vectors" in by_title(found)["Relevant against other passages"].meaning
    assert "came from length" in by_title(found)["The same without length"].meaning
    assert "nothing can be seen that tells relevant passages from others" in verdict(found)


def test_relevance_beyond_length_can_help_or_work_against() -> None:
    assert "counting magnitude can help" in verdict(diagnosed(figures(gain=0.3), trained_for="dot"))
    against = diagnosed(figures(gain=-0.3))
    assert "works against them" in verdict(against)
    assert "not one of length" in by_title(against)["The same without length"].meaning


@pytest.mark.parametrize(
    ("d", "interval", "size"),
    [
        (
            0.14,
            (0.02, 0.26),
            "longer vectors, by Cohen's words with a negligible difference (+0.14): too little to count on",
        ),
        (-0.14, (-0.26, -0.02), "shorter vectors, by Cohen's words with a negligible difference"),
        (0.31, (0.27, 0.35), "longer vectors, by Cohen's words with a small difference (+0.31)"),
        (-0.9, (-1.0, -0.8), "shorter vectors, by Cohen's words with a large difference (-0.90): at equal length"),
    ],
)
@pytest.mark.parametrize("trained", ["cosine", "dot", None])
def test_reasons_go_by_the_size_of_the_difference_and_agree_with_the_headline(
    d: float, interval: tuple[float, float], size: str, trained: str | None
) -> None:
    plain = replace(figures(), apart=Effect(d, 283, 4900), apart_interval=interval)
    biased = replace(plain, length=-0.6)
    for norms in (plain, biased):
        for rankings in (None, asked(), asked(overlap=0.98)):
            found = diagnosed(norms, trained_for=trained)
            why = " ".join(reasons(found, math.nan if rankings is None else rankings.overlap))
            said = headline(found, rankings)
            helps = d > 0.2 and trained != "cosine" and norms is plain and (rankings is None or rankings.overlap < 0.95)
            assert ("can help" in why) == helps
            if helps:
                assert said.startswith("Search by dot") and "longer vectors" in said
            if rankings is not None and rankings.overlap > 0.95:
                assert "hardly matters" in said and "works against" not in why
            elif abs(d) < 0.2:
                assert size in why and "the longer vectors" not in said and "the shorter vectors" not in said
            else:
                assert size in why
                assert ("works against" in why) == (d < 0)


def test_rankings_that_differ_are_not_called_alike_because_norms_are() -> None:
    even = diagnosed(figures(noise=0.01))
    assert even.figures.cv < 0.01
    assert "all vectors are nearly of one length" in headline(even, None)
    assert "nearly of one length" in headline(even, asked(overlap=math.nan))
    assert "hardly" not in headline(even, asked(overlap=0.6))
    assert "it changes rankings" in reasons(even, 0.6)[0] and "little to gain" in reasons(even, math.nan)[0]


@pytest.mark.parametrize(
    ("cosine", "magnitude", "words"),
    [
        (2.0, 2.7, "more on few passages (hubness 2.7 against 2.0)"),
        (2.7, 2.0, "less on few passages (hubness 2.0 against 2.7)"),
        (0.34, 0.26, "about as cosine does (hubness 0.3, 0.3)"),
        (0.26, 0.34, "about as cosine does (hubness 0.3, 0.3)"),
        (-1.0, -0.5, "more on few passages (hubness -0.5 against -1.0)"),
        (-0.5, -1.0, "less on few passages (hubness -1.0 against -0.5)"),
        (5.6, 5.9, "about as cosine does (hubness 5.9, 5.6)"),
    ],
)
def test_hubness_that_reads_alike_is_called_alike_whatever_its_sign(
    cosine: float, magnitude: float, words: str
) -> None:
    assert words in query_reasons(asked(cosine=cosine, magnitude=magnitude))[1]


def test_texts_at_the_limit_are_said_to_be_cut() -> None:
    lengths = np.array([256] * 71 + list(range(100, 129)))
    norms, nobody = np.random.default_rng(0).uniform(1, 2, 100), np.zeros(100, dtype=bool)
    found = diagnosed(diagnose(norms, np.arange(100), lengths, nobody, nobody, limit=256))
    assert found.figures.at_limit == 0.71 and found.figures.limit == 256
    reading = by_title(found)["Norm and length"]
    assert (
        "71 % at the limit of 256 tokens" in reading.detail
        and "71 % of the passages reach its limit" in reading.meaning
    )
    assert "71 % of the passages reach its limit of 256 tokens" in verdict(found)
    few = diagnosed(replace(found.figures, at_limit=0.1))
    assert "10 % at the limit" in by_title(few)["Norm and length"].detail and "reach its limit" not in verdict(few)
    assert "cut at 256 tokens" in render_diagnosis(few)


def test_without_marks_nothing_is_claimed() -> None:
    found = diagnosed(figures(), datasets=(), unmarked="there are no questions")
    assert by_title(found)["Relevant against other passages"].meaning == "Cannot be told: there are no questions."
    assert "The same without length" not in by_title(found)
    assert "cannot be told: there are no questions." in verdict(found)
    marks = np.arange(3) < 2
    some = diagnosed(diagnose([1.0, 2.0, 1.5], range(3), [4, 5, 6], marks, ~marks))
    assert "it needs two passages that are marked and two that are not, and there are 2 and 1" in verdict(some)


@pytest.mark.parametrize(
    ("trained", "words"), [("cosine", "by-product"), ("dot", "could learn"), (None, "Nobody says")]
)
def test_what_the_encoder_was_trained_for_is_weighed(trained: str | None, words: str) -> None:
    assert words in by_title(diagnosed(figures(), trained_for=trained))["What the encoder was trained for"].meaning


def test_the_charts_have_their_text_and_names_are_escaped() -> None:
    html = render_diagnosis(diagnosed(figures(slope=-1.0), corpus="<img src=x onerror=alert(1)>", model="<script>"))
    assert "<img" not in html and "<script" not in html
    assert html.count('role="img"') == 2 and html.count("<table>") == 2
    assert "half of them are below" in html and "means by length" in html


def test_bands_hold_every_passage_once_and_passages_of_one_length_together() -> None:
    points = [(1.0, 10)] * 30 + [(2.0, 20)] * 2 + [(4.0, 40), (6.0, 50)]
    rows = bands(points)
    assert sum(int(row[1]) for row in rows) == 34
    assert rows[0] == ("10 to 10", "30", "1.000")
    assert all(rows[at][0].split()[2] < rows[at + 1][0].split()[0] for at in range(len(rows) - 1))
    assert bands([(3.0, 7)]) == [("7 to 7", "1", "3.000")]
