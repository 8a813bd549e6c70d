"""Asking in rounds, over a base whose answers to every query are written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from retriever.base import Hit, Retrieved
from retriever.build import build_index
from retriever.dense import DenseRetriever
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.iterative import IterativeRetriever, expand, interleave
from retriever.passages import Passage
from retriever.search.exact import ExactSearcher
from retriever.similarity import QNORM
from tests.vectors import ListCorpus, RandomEncoder

PASSAGES = [
    Passage("kerensky", "Alexander Kerensky", "He was defeated by the Bolsheviks."),
    Passage("petrograd", "Petrograd", "A city."),
    Passage("war", "Russian Civil War", "It ended in October 1922."),
    Passage("treaty", "Treaty of Rapallo", "Signed in 1922."),
    Passage("poem", "", "A poem without a title."),
]
KERENSKY, PETROGRAD, WAR, TREATY, POEM = range(5)
QUESTION = "When did the war end that Kerensky lost?"


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return build_index(ListCorpus(PASSAGES), RandomEncoder(), tmp_path / "i")


class Written:
    """Ranks the rows written down for a query, none for another."""

    name, fingerprint, notes = "written", "w", ("careful",)

    def __init__(self, index: Index, rankings: dict[str, Sequence[int]]) -> None:
        self.index, self.rankings = index, rankings
        self.asked: list[list[str]] = []

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        self.asked.append(list(questions))
        return Retrieved(
            [
                [
                    Hit(rank, self.index.passage(row), 10.0 - rank, 0.5, 2.0, float(len(question)), row)
                    for rank, row in enumerate(self.rankings.get(question, ())[:k], 1)
                ]
                for question in questions
            ],
            {"encode": 1.0},
        )


def query(row: int, question: str = QUESTION) -> str:
    return " ".join(filter(None, (question, PASSAGES[row].title, PASSAGES[row].text)))


def test_a_passage_that_only_the_first_one_leads_to_is_found(index: Index) -> None:
    base = Written(index, {QUESTION: [KERENSKY, PETROGRAD, POEM], query(KERENSKY): [KERENSKY, WAR, PETROGRAD, TREATY]})
    found = IterativeRetriever("i", base).retrieve([QUESTION], 4)
    assert base.asked == [[QUESTION], [query(KERENSKY)]]
    # In turns: Kerensky (both), Petrograd, the war, the poem, (Petrograd again), the treaty.
    assert [hit.row for hit in found.hits[0]] == [KERENSKY, PETROGRAD, WAR, POEM]
    assert [(hit.rank, hit.score) for hit in found.hits[0]] == [(1, 1), (2, 1 / 2), (3, 1 / 3), (4, 1 / 4)]
    # The length of the query stands for the query: the war was found by the second.
    lengths = [hit.query_norm for hit in found.hits[0]]
    assert lengths == [len(QUESTION), len(QUESTION), len(query(KERENSKY)), len(QUESTION)]
    assert found.seconds == {"encode": 2.0}


def test_a_third_round_asks_with_what_the_second_found_and_not_with_the_same_again(index: Index) -> None:
    rankings = {QUESTION: [KERENSKY], query(KERENSKY): [KERENSKY, WAR], query(WAR): [KERENSKY, WAR, TREATY]}
    base = Written(index, rankings)
    hits = IterativeRetriever("i", base, rounds=3).retrieve([QUESTION], 5).hits[0]
    assert base.asked == [[QUESTION], [query(KERENSKY)], [query(WAR)]]
    assert [hit.row for hit in hits] == [KERENSKY, WAR, TREATY]


def test_width_asks_with_several_passages_each_for_itself(index: Index) -> None:
    rankings = {QUESTION: [KERENSKY, PETROGRAD], query(KERENSKY): [WAR], query(PETROGRAD): [TREATY, WAR, POEM]}
    base = Written(index, rankings)
    hits = IterativeRetriever("i", base, width=2).retrieve([QUESTION], 5).hits[0]
    assert base.asked[1] == [query(KERENSKY), query(PETROGRAD)]
    # Round 2 is the war, the treaty, the poem; then the rounds take turns.
    assert [hit.row for hit in hits] == [KERENSKY, WAR, PETROGRAD, TREATY, POEM]


def test_questions_of_a_batch_do_not_meet(index: Index) -> None:
    rankings = {QUESTION: [KERENSKY], query(KERENSKY): [WAR], "poem?": [POEM], query(POEM, "poem?"): [TREATY]}
    base = Written(index, rankings)
    retriever = IterativeRetriever("i", base)
    together = retriever.retrieve([QUESTION, "nothing", "poem?"], 3).hits
    assert together == [retriever.retrieve([question], 3).hits[0] for question in (QUESTION, "nothing", "poem?")]
    assert together[1] == []
    assert [hit.row for hit in together[2]] == [POEM, TREATY]
    assert retriever.retrieve([], 3).hits == []
    base.asked.clear()
    assert retriever.retrieve(["nothing"], 3).hits == [[]]
    assert base.asked == [["nothing"]]


def test_few_hits_are_the_first_of_many(index: Index) -> None:
    rankings = {
        QUESTION: [KERENSKY, PETROGRAD, POEM, WAR, TREATY],
        query(KERENSKY): [KERENSKY, TREATY, WAR],
        query(PETROGRAD): [PETROGRAD, POEM],
        query(TREATY): [POEM, TREATY],
    }
    for rounds, width in ((2, 1), (2, 2), (3, 1)):
        retriever = IterativeRetriever("i", Written(index, rankings), rounds=rounds, width=width)
        five = retriever.retrieve([QUESTION], 5).hits[0]
        assert [retriever.retrieve([QUESTION], k).hits[0] for k in range(1, 6)] == [five[:k] for k in range(1, 6)]
        assert len(five) == 5


def test_one_round_is_the_base_itself(index: Index) -> None:
    base = DenseRetriever("qnorm", RandomEncoder(), QNORM, index, ExactSearcher(index))  # type: ignore[arg-type]
    assert (
        IterativeRetriever("i", base, rounds=1, width=4).retrieve([QUESTION, "b"], 3).hits
        == base.retrieve([QUESTION, "b"], 3).hits
    )


def test_the_question_stands_first_and_missing_titles_leave_no_gap() -> None:
    assert expand("who?", PASSAGES[POEM]) == "who? A poem without a title."
    assert expand("who?", PASSAGES[PETROGRAD]) == "who? Petrograd A city."


def test_interleaving_rankings_of_unequal_length(index: Index) -> None:
    base = Written(index, {"a": [0, 1], "b": [1, 2, 3, 4], "c": []})
    hits = base.retrieve(["a", "b", "c"], 5).hits
    assert [hit.row for hit in interleave(hits)] == [0, 1, 2, 3, 4]
    assert interleave([]) == []


def test_settings_are_checked_and_fingerprinted(index: Index) -> None:
    base = Written(index, {})
    assert IterativeRetriever("i", base).notes == ("careful",)
    assert IterativeRetriever("i", base).index is index
    prints = {
        IterativeRetriever("i", base, rounds=rounds, width=width).fingerprint
        for rounds, width in ((1, 1), (2, 1), (2, 2), (3, 1))
    }
    assert len(prints) == 4
    for settings, words in (({"rounds": 0}, "rounds must be at least 1"), ({"width": 0}, "width must be at least 1")):
        with pytest.raises(RetrieverError, match=words):
            IterativeRetriever("i", base, **settings)
