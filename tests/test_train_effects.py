"""Settings of a training that others leave without effect are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rag_app.training.config import TrainConfig
from rag_app.training.effects import without_effect
from retriever.encoder import Encoder
from tests.tiny_encoder import load_tiny, tiny_pairs, write_tiny_model

FITTING = {"query_max_tokens": 32, "passage_max_tokens": 64}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_tiny(write_tiny_model(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize(
    ("training", "others", "negatives", "lines"),
    [
        ({"hard_negatives": 1}, {}, True, []),
        ({"hard_negatives": 1}, {}, False, ["no pair has hard negatives; set mining.kind"]),
        ({"hard_negatives": 1}, {"mining": {"kind": "bm25"}}, False, ["[mining] leaves none over"]),
        ({}, {"mining": {"kind": "bm25"}}, True, ['mining.kind = "bm25" has no effect: training.hard_negatives is 0']),
        ({"patience": 2, "eval_every": 5}, {}, True, []),
        ({"patience": 2}, {}, True, ["training.patience = 2 has no effect: training.eval_every is 0"]),
        ({"patience": 2, "eval_every": 5}, {"dev": {"queries": 0}}, True, ["there is no development set"]),
        (
            {"passage_max_tokens": 65},
            {},
            True,
            ["is 65, but the encoder searches with 64", "encoder.passage_max_tokens"],
        ),
    ],
)
def test_each_is_told_with_what_is_in_its_way(
    encoder: Encoder, training: dict[str, Any], others: dict[str, Any], negatives: bool, lines: list[str]
) -> None:
    config = TrainConfig.model_validate({"training": {**FITTING, **training}, **others})
    pairs = [own if negatives else replace(own, negatives=()) for own in tiny_pairs(3)]
    told = list(without_effect(config, encoder, pairs))
    assert len(told) == bool(lines) and all(line in told[0] for line in lines)
