"""Batches, crops and the optimiser: what a step trains on follows from the seed and the step alone."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim.lr_scheduler import CosineAnnealingLR

from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.training.batches import Batches
from retriever.training.crops import CropSettings, crop
from retriever.training.optim import make_optimizer, rate_factor, set_rates
from retriever.training.pairs import TrainingPair

ALWAYS = CropSettings(1.0, 4, 12)


def pairs_of(queries: list[str]) -> list[TrainingPair]:
    return [
        TrainingPair(
            query, Passage(f"p{row}", "", f"text {row}"), tuple(Passage(f"n{row}-{i}", "", f"no {i}") for i in range(3))
        )
        for row, query in enumerate(queries)
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 11), min_size=24, max_size=60), st.integers(2, 6), st.integers(0, 3))
def test_no_batch_holds_a_query_twice_and_no_pair_is_lost(numbers: list[int], size: int, seed: int) -> None:
    pairs = pairs_of([f"q{number}" for number in numbers])
    often = Counter(numbers).most_common(1)[0][1]
    if often * size > len(pairs) or len(set(numbers)) < size:
        with pytest.raises(RetrieverError, match="batch"):
            Batches(pairs, size, seed)
        return
    batches = Batches(pairs, size, seed)
    count = 3 * len(pairs) // size
    seen: Counter[str] = Counter()
    for step in range(count):
        batch = batches.at(step)
        assert len({pair.query for pair in batch.pairs}) == size
        seen.update(pair.positive.id for pair in batch.pairs)
    # Three epochs' worth of steps: a pair may be held back for the next epoch, and no further.
    assert len(seen) == len(pairs)
    assert max(seen.values()) <= 4


def test_a_step_follows_from_the_seed_and_the_step_alone() -> None:
    pairs = pairs_of([f"q{i}" for i in range(40)])
    crops = CropSettings(0.5, 1, 1)
    first = Batches(pairs, 8, 3, hard_negatives=2, crops=crops)
    in_order = [first.at(step) for step in range(12)]
    assert Batches(pairs, 8, 3, hard_negatives=2, crops=crops).at(11) == in_order[11]
    assert first.at(2) == in_order[2]
    assert Batches(pairs, 8, 4, hard_negatives=2, crops=crops).at(0) != in_order[0]
    epochs = [[pair.query for batch in in_order[start : start + 5] for pair in batch.pairs] for start in (0, 5)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(pair.query for pair in pairs)
    assert epochs[0] != epochs[1]


def test_positives_come_first_and_negatives_are_drawn_from_a_pairs_own() -> None:
    pairs = pairs_of([f"q{i}" for i in range(8)])
    batches = Batches(pairs, 4, 0, hard_negatives=2)
    drawn: set[str] = set()
    for step in range(40):
        batch = batches.at(step)
        ids = [passage.id for passage in batch.passages]
        assert ids[:4] == [pair.positive.id for pair in batch.pairs]
        assert [id.partition("-")[0] for id in ids[4:]] == [
            f"n{pair.positive.id[1:]}" for pair in batch.pairs for _ in "ab"
        ]
        assert len(set(ids)) == 12
        drawn.update(ids[4:])
    assert len(drawn) == 24
    assert len(Batches(pairs, 4, 0, hard_negatives=9).at(0).passages) == 16


def test_a_crop_holds_the_answer_wherever_it_fits() -> None:
    words = [f"w{i}" for i in range(100)]
    words[70:73] = ["Marie", "Curie,", "PhD"]
    passage = Passage("p", "Title", " ".join(words))
    random = np.random.default_rng(0)
    sizes, places = [], []
    for _ in range(300):
        cut = crop(passage, "nothing of it", ("marie curie",), ALWAYS, random)
        own = cut.text.split()
        assert cut.id == "p" and cut.title == "Title"
        assert "Marie Curie," in cut.text and 4 <= len(own) <= 12
        assert cut.text in passage.text
        sizes.append(len(own))
        places.append(own.index("Marie"))
    # Log-uniform: as many of 4 to 6 words as of 7 to 12, more or less; the answer stands anywhere in the window.
    expected = math.log(7 / 4) / math.log(13 / 4)
    assert abs(sum(size < 7 for size in sizes) / 300 - expected) < 0.1
    assert min(places) == 0 and max(places) >= 8


def test_an_answer_longer_than_the_window_is_kept_whole() -> None:
    answer = " ".join(f"a{i}" for i in range(20))
    passage = Passage("p", "", f"before it {answer} after it and more")
    for seed in range(20):
        assert crop(passage, "q", (answer,), ALWAYS, np.random.default_rng(seed)).text == answer


def test_without_an_answer_the_best_match_of_the_query_is_taken() -> None:
    words = ["filler"] * 80
    words[40:44] = ["Lighthouse", "on", "Eddystone", "Rocks."]
    passage = Passage("p", "", " ".join(words))
    for seed in range(30):
        text = crop(
            passage, "who built the lighthouse on the eddystone rocks?", (), ALWAYS, np.random.default_rng(seed)
        ).text
        assert "Lighthouse on Eddystone Rocks." in text
    starts = {
        crop(
            Passage("p", "", " ".join(f"w{i}" for i in range(50))), "none", (), ALWAYS, np.random.default_rng(s)
        ).text.split()[0]
        for s in range(60)
    }
    assert len(starts) > 20


def test_short_passages_and_a_share_of_the_others_stay_whole() -> None:
    short = Passage("s", "", "one two three")
    assert crop(short, "q", (), ALWAYS, np.random.default_rng(0)) is short
    long, random = Passage("l", "", "word " * 50), np.random.default_rng(0)
    whole = sum(crop(long, "q", (), CropSettings(0.25, 4, 10), random) is long for _ in range(2000))
    assert abs(whole / 2000 - 0.75) < 0.04
    with pytest.raises(RetrieverError, match="min_words must be at least 1"):
        CropSettings(0.5, 20, 10)


def test_rates_follow_torchs_cosine_after_a_linear_warm_up() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    reference = torch.optim.SGD([parameter], lr=1.0)
    schedule = CosineAnnealingLR(reference, T_max=50)
    for step in range(50):
        assert rate_factor(step, 50, 0.0) == pytest.approx(schedule.get_last_lr()[0], abs=1e-9)
        reference.step()
        schedule.step()
    assert [rate_factor(step, 100, 0.05) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])


def test_gammas_have_a_rate_of_their_own_and_nothing_of_one_dimension_decays() -> None:
    layer = torch.nn.Linear(3, 2)
    frozen = torch.nn.Linear(3, 2).requires_grad_(False)
    gamma = torch.nn.Parameter(torch.tensor(0.0))
    named = [("w", layer.weight), ("b", layer.bias), ("f", frozen.weight)]
    common = {"learning_rate": 1e-4, "weight_decay": 0.01, "betas": (0.9, 0.98), "eps": 1e-8}
    optimizer = make_optimizer(named, [gamma], gamma_lr=1e-2, **common)
    groups = [([*g["params"]], g["lr"], g["weight_decay"]) for g in optimizer.param_groups]
    assert groups == [([layer.weight], 1e-4, 0.01), ([layer.bias], 1e-4, 0.0), ([gamma], 1e-2, 0.0)]
    set_rates(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [5e-5, 5e-5, 5e-3]
    assert make_optimizer(named, [gamma], gamma_lr=None, **common).param_groups[2]["lr"] == 1e-4
    assert len(make_optimizer(named, [], gamma_lr=1e-2, **common).param_groups) == 2
