"""What an index and the questions asked of it say together: query norms, both rankings, and which side to normalise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from eval.data.datasets import Question
from eval.significance import bootstrap_interval
from rag_app.pipeline import Pipeline
from retriever.diagnostics import Diagnosis, diagnose
from retriever.encoder import Vectors
from retriever.fisher import ENOUGH, Candidates, FisherDiagnostic, fisher_diagnostic, unknown_fisher
from retriever.index import Index
from retriever.neighbours import Hubness, anisotropy, hubness, overlap
from retriever.search.exact import CHUNK_ROWS, ExactSearcher
from retriever.similarity import COSINE, QNORM
from retriever.wording import counted

K = 10
"""Depth at which rankings are compared."""

CHANCE = 0.2
"""Where two rankings at random would share this much of their k best, that two share much says little: k of n passages, k / n."""

NEGATIVES = 7
"""Passages of a question beside its positive that enter the Fisher-type diagnostic: the nearest by cosine."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the questions of a data set say of an index.

    Attributes:
        dataset: Its name.
        queries: Of the questions' vectors, their norms and lengths; nothing in it is about relevance.
        anisotropy: Of the questions' directions, and of all passages'.
        k: Depth of the rankings.
        overlap: Mean share of the k best by cosine that are among the k best by magnitude (γd = 0: qnorm and dot); NaN where
            rankings at random would share `CHANCE` of them.
        overlap_interval: Bootstrap over questions; None with fewer than two.
        shares: That share, by question; none where it says nothing.
        by_cosine: Hubness of the ranking by cosine.
        by_magnitude: Of that by magnitude.
        fisher: Which side to normalise before fine-tuning.
        undefined: Why, in a phrase, by the name of each figure of overlap that is NaN or None.
    """

    dataset: str
    queries: Diagnosis
    anisotropy: tuple[float, float]
    k: int
    overlap: float
    overlap_interval: tuple[float, float] | None
    shares: list[float]
    by_cosine: Hubness
    by_magnitude: Hubness
    fisher: FisherDiagnostic
    undefined: dict[str, str]


def diagnose_queries(
    pipeline: Pipeline, name: str, dataset: str, questions: Sequence[Question], *, k: int = K, seed: int = 0
) -> Asked:
    """Encode the questions, rank the index for each by cosine and by magnitude, and compare.

    Passages that a question excludes (its own document, in BEIR) are in neither of its rankings.

    Args:
        pipeline: Over the corpus of the questions.
        name: Of the encoder in its configuration.
        dataset: What the questions are called.
        questions: One or more.
        k: Depth of the rankings; the whole corpus where that is smaller.
        seed: Of the bootstraps, and of the draw of questions where there are more than the Fisher part takes.

    Raises:
        RetrieverError: Corpus, index or encoder cannot be used.
    """
    index, encoder = pipeline.index(name), pipeline.encoder(name)
    index.check_encoder(encoder)
    index.check_vectors(directions=True)
    texts = [question.question for question in questions]
    queries = encoder.encode_queries(texts)
    searcher = ExactSearcher(index, pipeline.config.encoders[name].device)
    marked = _MarkedRows.of(index, questions)
    k = min(k, len(index) - marked.most_excluded)
    rankings = []
    for similarity in (COSINE, QNORM):
        ranked = searcher.search(queries, similarity, k + marked.most_excluded).rows
        rankings.append(np.array([_without(row, own, k) for row, own in zip(ranked, marked.excluded, strict=True)]))
    undefined = {}
    shares, interval = np.zeros(0), None
    if k >= CHANCE * len(index):
        rank = f"{k} of {counted(len(index), 'passage')} are ranked, and rankings at random would share {100 * k / len(index):.0f} %"
        undefined = dict.fromkeys(("overlap", "overlap_interval"), rank)
    else:
        shares = overlap(*rankings)
        interval = bootstrap_interval(shares, seed)
        if interval is None:
            undefined["overlap_interval"] = "it needs two questions"
    candidates = _candidates(index, queries, searcher, marked, seed)
    progress = pipeline.progress
    if candidates is None:
        fisher = unknown_fisher(
            0, "it needs questions that mark a passage of the index as relevant and leave others unmarked"
        )
    else:
        fisher = fisher_diagnostic(
            candidates,
            seed=seed,
            progress=None if progress is None else lambda done, total: progress("resamples", done, total),
        )
    return Asked(
        dataset=dataset,
        queries=unmarked_diagnosis(queries.norms, encoder.query_lengths(texts), encoder.spec.query_max_tokens),
        anisotropy=(
            anisotropy([queries.units]),
            anisotropy(units for _, units, _ in index.chunks(CHUNK_ROWS)),
        ),
        k=k,
        overlap=float(shares.mean()) if len(shares) else math.nan,
        overlap_interval=interval[0] if interval else None,
        shares=shares.tolist(),
        by_cosine=hubness(rankings[0], len(index)),
        by_magnitude=hubness(rankings[1], len(index)),
        fisher=fisher,
        undefined=undefined,
    )


def unmarked_diagnosis(norms: np.ndarray, lengths: np.ndarray, limit: int) -> Diagnosis:
    """Of vectors that nothing is relevant among, whose texts were cut at `limit` tokens."""
    nobody = np.zeros(len(norms), dtype=bool)
    return diagnose(norms, np.arange(len(norms)), lengths, nobody, nobody, limit=limit)


@dataclass(frozen=True, slots=True)
class _MarkedRows:
    """By question, rows of the index that it marks.

    Attributes:
        positive: The one that was judged best, of equally good ones the first judged; None where the index has none.
        relevant: All that are relevant.
        excluded: Those that are not ranked.
    """

    positive: list[int | None]
    relevant: list[set[int]]
    excluded: list[set[int]]

    @classmethod
    def of(cls, index: Index, questions: Sequence[Question]) -> _MarkedRows:
        relevance = [{id: grade for id, grade in own.relevance.items() if grade > 0} for own in questions]
        wanted = {id for own in relevance for id in own} | {id for own in questions for id in own.excluded_ids}
        rows = index.find(wanted)
        found = [[id for id in own if id in rows] for own in relevance]
        return cls(
            [
                rows[max(ids, key=lambda id, own=own: own[id])] if ids else None  # type: ignore[misc]
                for ids, own in zip(found, relevance, strict=True)
            ],
            [{rows[id] for id in ids} for ids in found],
            [{rows[id] for id in own.excluded_ids if id in rows} for own in questions],
        )

    @property
    def most_excluded(self) -> int:
        return max(map(len, self.excluded))


def _without(ranked: np.ndarray, excluded: set[int], k: int) -> list[int]:
    return [row for row in ranked.tolist() if row not in excluded][:k]


def _candidates(
    index: Index, queries: Vectors, searcher: ExactSearcher, marked: _MarkedRows, seed: int
) -> Candidates | None:
    """Each question's positive and the passages nearest by cosine that it does not mark; None where there are none."""
    known = np.array([place for place, row in enumerate(marked.positive) if row is not None], dtype=np.int64)
    if len(known) > ENOUGH:
        known = np.sort(np.random.default_rng(seed).choice(known, ENOUGH, replace=False))
    if not len(known):
        return None
    chosen = Vectors(queries.units[known], queries.norms[known])
    left_out = [marked.relevant[place] | marked.excluded[place] for place in known]
    depth = NEGATIVES + max(map(len, left_out))
    ranked = searcher.search(chosen, COSINE, depth).rows
    negatives = [_without(row, own, NEGATIVES) for row, own in zip(ranked, left_out, strict=True)]
    each = min(map(len, negatives))
    if not each:
        return None
    rows = [[cast(int, marked.positive[place]), *own[:each]] for place, own in zip(known, negatives, strict=True)]
    units, norms = index.vectors([row for own in rows for row in own])
    shape = len(known), each + 1
    return Candidates(chosen, units.reshape(*shape, -1), norms.reshape(shape))
