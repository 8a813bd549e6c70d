"""What a one-sided similarity loses where both sides are equals: sentence pairs, untrained and trained (the paper's table 5).

Trained on the pairs that people find alike, by InfoNCE; the paper trains on all of them and on AllNLI by squared error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.data.pairs import Correlation, read_pairs, spearman, spearman_difference
from eval.data.sources import PairSet, load_dataset
from eval.data.specs import DataSetSpec
from rag_app.errors import ConfigError
from rag_app.pairs import EncodedPairs
from rag_app.progress import Log, StepProgress
from rag_app.reproduction.judged import load_encoder
from rag_app.reproduction.measures import Measure
from rag_app.reproduction.settings import ReproduceConfig
from rag_app.sweep.run import one_training
from retriever.encoder import Encoder
from retriever.passages import Passage
from retriever.similarity import NAMES, require_symmetric, similarity_from_name
from retriever.training.pairs import TrainingPair, write_pairs

_FIXED = NAMES[:4]

Scores = dict[str, list[float]]
"""Of each pair, by similarity."""


def run(settings: ReproduceConfig, out: Path, *, log: Log, progress: StepProgress) -> dict[str, Any]:
    """Rank correlations of the untrained encoder and of trainings on like pairs, and what each loses against cosine.

    Raises:
        ConfigError: No pair of the file to train on is scored that high.
        EvalError: A set cannot be read.
    """
    from rag_app.training.encoder import train

    own = settings.symmetry
    whole = {name: _pair_set(settings, name, 0) for name in own.sets}
    sets = {name: _pair_set(settings, name, own.n) for name in own.sets}
    base = settings.train_config(own.set)
    liked = _liked(settings, out / "pairs.jsonl")
    data = base.data.model_copy(update={"pairs": str(out / "pairs.jsonl"), "columns": {}, "title_separator": ""})
    base = base.model_copy(update={"data": data})
    asked = [text for pairs in whole.values() for pair in pairs.pairs for text in (pair.text1, pair.text2)]

    found = {
        name: {"untrained": scores} for name, scores in _score(load_encoder(base.encoder, base.data_dir, log), sets)
    }
    for seed in own.seeds:
        for similarity in own.similarities:
            log(f"sentence pairs, trained for {similarity}, seed {seed}")
            config = one_training(base, similarity, seed)
            result = train(config, out / f"{similarity}-{seed}", log=log, progress=progress, evaluation_questions=asked)
            encoder = load_encoder(config.trained_encoder(result.folder), config.data_dir, log)
            for name, scores in _score(encoder, sets):
                found[name][f"{similarity}-{seed}"] = scores
    measures: list[Measure] = []
    for name, pairs in sets.items():
        golds = [pair.score for pair in pairs.pairs]
        log(f"rank correlations of {name} and their intervals")
        measures += _untrained(name, found[name]["untrained"], golds)
        for seed in own.seeds:
            label = f"{name}/trained" if len(own.seeds) == 1 else f"{name}/trained, seed {seed}"
            trained = {str(one): found[name][f"{one}-{seed}"] for one in own.similarities}
            measures += _trained(label, trained, golds)
    return {"pairs": liked, "measures": [measure.to_json() for measure in measures]}


def _pair_set(settings: ReproduceConfig, name: str, n: int) -> PairSet:
    path = settings.path(settings.symmetry.sets[name])
    found = load_dataset(DataSetSpec(name, path=path, format="pairs"), n=n, seed=0)
    if not isinstance(found, PairSet):
        raise ConfigError(f"symmetry.sets.{name}: {path} holds no sentence pairs")
    return found


def _liked(settings: ReproduceConfig, path: Path) -> int:
    """Write the pairs that people find alike as training pairs; returns how many there are."""
    own = settings.symmetry
    rows = [pair for pair in read_pairs(Path(settings.path(own.pairs))) if pair.score >= own.least]
    if not rows:
        raise ConfigError(f"symmetry.least is {own.least:g}, and {settings.path(own.pairs)} has no pair scored so high")
    pairs = (TrainingPair(row.text1, Passage(str(i), "", row.text2)) for i, row in enumerate(rows))
    write_pairs(path, pairs)
    return len(rows)


def _score(encoder: Encoder, sets: Mapping[str, PairSet]) -> list[tuple[str, Scores]]:
    """Each set under the four fixed similarities; the one-sided ones too, since what they lose is what is measured."""
    found = []
    for name, pairs in sets.items():
        encoded, scores = EncodedPairs.of(pairs, encoder), Scores()
        for similarity in map(similarity_from_name, _FIXED):
            require_symmetric(similarity, name, override=True)
            scores[similarity.name] = encoded.scores(similarity)
        found.append((name, scores))
    return found


def _untrained(name: str, scores: Scores, golds: Sequence[float]) -> list[Measure]:
    measures = [_measure(f"{name}/untrained/{own}", spearman(scores[own], golds)) for own in _FIXED]
    for own in _FIXED[1:]:
        change = spearman_difference(scores[own], scores["cosine"], golds)
        measures.append(_measure(f"{name}/untrained/{own} - cosine", change))
    return measures


def _trained(label: str, trained: Mapping[str, Scores], golds: Sequence[float]) -> list[Measure]:
    """Each training scored by what it was trained for, and by cosine."""
    measures = []
    for own, scores in trained.items():
        by = own if own in _FIXED else "cosine"
        measures.append(_measure(f"{label}/{own}", spearman(scores[by], golds)))
        if own == "cosine":
            continue
        measures.append(_measure(f"{label}/{own}, by cosine", spearman(scores["cosine"], golds)))
        if "cosine" in trained:
            change = spearman_difference(scores[by], trained["cosine"]["cosine"], golds)
            measures.append(_measure(f"{label}/{own} - cosine", change))
    if {"qnorm", "dnorm"} <= trained.keys():
        change = spearman_difference(trained["qnorm"]["qnorm"], trained["dnorm"]["dnorm"], golds)
        measures.append(_measure(f"{label}/qnorm - dnorm", change))
    return measures


def _measure(name: str, found: Correlation) -> Measure:
    return Measure(name, found.value, found.interval, found.n)
