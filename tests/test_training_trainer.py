"""The loop on a small random BERT: its loss from first principles, kills, processes, chunks, early stopping, the log."""

from __future__ import annotations

import csv
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import log_softmax

from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.similarity import COSINE, QNORM
from retriever.training import snapshot
from retriever.training.batches import Batches
from retriever.training.crops import CropSettings
from retriever.training.figures import norm_figures
from retriever.training.forward import Forward
from retriever.training.pairs import TrainingPair
from retriever.training.settings import LoraSettings, TrainingSettings
from tests.server import free_port
from tests.tiny_encoder import load_tiny, tiny_pairs, write_tiny_model
from tests.train_tiny import run, trainer

PLAIN: dict[str, Any] = {
    "similarity": QNORM,
    "scale": "fixed",
    "alpha": 2.0,
    "dropout": False,
    "lora": None,
    "warmup": 0.0,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "log.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = snapshot.find(folder / "state")
    assert found is not None
    return load_file(found / "weights.safetensors")


def start(folder: Path, model: Path, *rest: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.train_tiny", str(folder), str(model), *rest]
    return subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE)


def test_the_first_loss_is_infonce_over_what_the_encoder_encodes(tmp_path: Path, model: Path) -> None:
    made = trainer(tmp_path / "t", model, {**PLAIN, "steps": 1})
    made.run()
    encoder = load_tiny(model)
    batch = Batches(tiny_pairs(40), 8, 5, hard_negatives=1, crops=CropSettings(0.5, 3, 12)).at(0)
    queries, passages = encoder.encode_queries(batch.queries), encoder.encode_passages(batch.passages)
    scores = 2.0 * (queries.units @ passages.units.T) * passages.norms[None, :]
    expected = -log_softmax(scores.astype(np.float64), axis=1)[np.arange(8), np.arange(8)].mean()
    probabilities = np.exp(log_softmax(scores.astype(np.float64), axis=1))
    first, last = rows(tmp_path / "t")
    assert (first["step"], first["loss"], last["step"]) == ("0", "", "1")
    assert float(last["loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(last["entropy"]) == pytest.approx(-(probabilities * np.log(probabilities)).sum(1).mean(), rel=1e-4)
    assert float(last["norm_mean"]) == pytest.approx(passages.norms.mean(), rel=1e-5)
    lengths = [len(encoder.tokenizer(p.text).input_ids) for p in batch.passages]
    assert float(last["norm_length_corr"]) == pytest.approx(
        np.corrcoef(passages.norms, np.log(lengths))[0, 1], rel=1e-4
    )


def test_killed_and_started_again_it_ends_with_the_same_weights_to_the_bit(tmp_path: Path, model: Path) -> None:
    run(tmp_path / "a", model, projection=True)
    killed = start(tmp_path / "b", model, "5")
    assert killed.wait() == -9
    found = snapshot.find(tmp_path / "b" / "state")
    assert found is not None and found.name == "00000004"
    # A kill in the middle of a snapshot leaves its temporary folder, and one in the middle of a line a broken one.
    (tmp_path / "b" / "state" / "00000006.partial").mkdir()
    with (tmp_path / "b" / "log.csv").open("a") as file:
        file.write("6,0.12")
    run(tmp_path / "b", model, projection=True)
    for name in ("weights.safetensors", "optimizer.safetensors", "progress.json"):
        one, other = (tmp_path / which / "state" / "00000009" / name for which in "ab")
        assert one.read_bytes() == other.read_bytes()
    layer = "projection/model.safetensors"
    for name in ("adapter_model.safetensors", layer, "merged/model.safetensors", "magrag.json"):
        assert (tmp_path / "a" / "best" / name).read_bytes() == (tmp_path / "b" / "best" / name).read_bytes()
    logs = [
        [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in rows(tmp_path / which)] for which in "ab"
    ]
    assert logs[0] == logs[1]
    assert [row["step"] for row in logs[0]] == [str(step) for step in range(10)]
    assert [row["step"] for row in logs[0] if row["score"]] == ["0", "4", "8", "9"]


def test_a_finished_training_started_again_changes_nothing(tmp_path: Path, model: Path) -> None:
    first = run(tmp_path / "t", model, steps=4)
    before = {path: path.read_bytes() for path in (tmp_path / "t").rglob("*") if path.is_file()}
    assert run(tmp_path / "t", model, steps=4) == first
    assert {path: path.read_bytes() for path in (tmp_path / "t").rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_two_processes_train_what_one_does(tmp_path: Path, model: Path) -> None:
    port = str(free_port())
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    both = [start(tmp_path / "two", model, RANK=rank, LOCAL_RANK=rank, **shared) for rank in "01"]
    run(tmp_path / "one", model, lora=LoraSettings(4), dropout=False)
    assert [process.wait() for process in both] == [0, 0]
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys() and "gamma_hat_q" in one
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=2e-5)
    assert float(rows(tmp_path / "two")[-1]["score"]) == pytest.approx(
        float(rows(tmp_path / "one")[-1]["score"]), rel=1e-3
    )


def test_chunks_train_what_whole_batches_do(tmp_path: Path, model: Path) -> None:
    for name, size in (("whole", 0), ("chunks", 3)):
        run(tmp_path / name, model, **PLAIN, steps=3, chunk_size=size)
    whole, chunks = weights(tmp_path / "whole"), weights(tmp_path / "chunks")
    for name, value in whole.items():
        # Attention does not change with the key's bias: its gradient is rounding, which Adam makes as large as any other.
        if not name.endswith("key.bias"):
            torch.testing.assert_close(chunks[name], value, rtol=1e-3, atol=2e-5)
    untrained = dict(load_tiny(model).model.named_parameters())
    assert max((value - untrained[name]).abs().max() for name, value in whole.items()) > 1e-3


def test_scores_that_no_longer_rise_end_it_and_the_best_weights_are_kept(tmp_path: Path, model: Path) -> None:
    told = iter([0.1, 0.3, 0.5, 0.4, 0.5, 0.9])
    seen: list[dict[str, torch.Tensor]] = []

    def falling(encoder: Any, similarity: Any) -> dict[str, float]:
        seen.append({name: p.detach().clone() for name, p in encoder.model.named_parameters() if p.requires_grad})
        return {"score": next(told)}

    made = trainer(tmp_path / "t", model, {"steps": 30, "eval_every": 2, "patience": 2}, dev=falling)
    result = made.run()
    assert (result.steps, result.best_step, result.stopped_early, result.best) == (8, 4, True, {"score": 0.5})
    kept = load_file(tmp_path / "t" / "best" / "adapter_model.safetensors")
    expected = {name: value for name, value in seen[2].items() if "lora_A" in name}
    assert sorted(value.sum().item() for name, value in kept.items() if "lora_A" in name) == pytest.approx(
        sorted(value.sum().item() for value in expected.values())
    )
    again = trainer(tmp_path / "t", model, {"steps": 30, "eval_every": 2, "patience": 2}, dev=falling).run()
    assert again == result


def test_patience_that_runs_out_at_the_last_step_stops_nothing_early(tmp_path: Path, model: Path) -> None:
    told = iter([0.1, 0.5, 0.4, 0.3])
    changed = {"steps": 6, "eval_every": 2, "patience": 2}
    result = trainer(tmp_path / "t", model, changed, dev=lambda encoder, similarity: {"score": next(told)}).run()
    assert (result.steps, result.best_step, result.stopped_early) == (6, 2, False)


def test_a_best_checkpoint_below_the_untrained_encoder_is_told(tmp_path: Path, model: Path) -> None:
    told, lines = iter([0.3487, 0.2756]), list[str]()
    for _ in range(2):  # the second start reads the score before the first step from the snapshot
        made = trainer(tmp_path / "t", model, {"steps": 1}, dev=lambda *_: {"score": next(told)}, log=lines.append)
        assert made.run().untrained == {"score": 0.3487}
        assert "untrained encoder is better: score 34.87 before the first step, 27.56 in the best" in lines.pop()
    made = trainer(tmp_path / "u", model, {"steps": 1}, dev=lambda *_: {"score": 0.5}, log=lines.append)
    assert made.run().setback == "" and not any("untrained" in line for line in lines)


def test_the_matched_scale_is_as_sharp_as_cosine_at_twenty(tmp_path: Path, model: Path) -> None:
    result = run(tmp_path / "t", model, **{**PLAIN, "scale": "matched", "alpha": 20.0, "steps": 1})
    encoder, held = load_tiny(model), tiny_pairs(10, seed=1)
    batch = Batches(held, 8, 5, hard_negatives=1, crops=CropSettings(0.5, 3, 12)).at(0)
    queries, passages = encoder.encode_queries(batch.queries), encoder.encode_passages(batch.passages)
    cosine = (queries.units @ passages.units.T).astype(np.float64)

    def entropy(logits: np.ndarray) -> float:
        logs = log_softmax(logits, axis=1)
        return float(-(np.exp(logs) * logs).sum(axis=1).mean())

    assert entropy(result.scale * cosine * passages.norms[None, :]) == pytest.approx(entropy(20 * cosine), rel=1e-4)
    assert float(rows(tmp_path / "t")[0]["alpha"]) == pytest.approx(result.scale)


@pytest.mark.parametrize("size", [8, 6])
def test_held_out_queries_with_many_pairs_match_the_scale_once_each(tmp_path: Path, model: Path, size: int) -> None:
    """As in real held-out sets, one query has more pairs than batches can spread; size 6 is less than a batch of 8."""
    single = tiny_pairs(size, seed=1)
    more = [
        TrainingPair(f"{single[i % 2].query.upper()}?", Passage(f"m{i}", "", pair.positive.text))
        for i, pair in enumerate(tiny_pairs(7, seed=2))
    ]
    common: dict[str, Any] = {**PLAIN, "scale": "matched", "alpha": 20.0, "steps": 1}
    scales = [
        trainer(tmp_path / name, model, common, held_out=held).run().scale
        for name, held in (("once", single), ("often", [*single[:2], *more, *single[2:]]))
    ]
    assert scales[1] == pytest.approx(scales[0], rel=1e-9)


def test_the_same_text_under_two_ids_is_no_negative_though_each_is_cropped_otherwise(
    tmp_path: Path, model: Path
) -> None:
    text = " ".join(f"w{i}" for i in range(40))
    pairs = [TrainingPair(f"w{i} w{i + 1}", Passage(f"p{i}", "", text)) for i in range(8)]
    changed = {**PLAIN, "crops": CropSettings(1.0, 3, 3), "steps": 1}
    made = trainer(tmp_path / "t", model, changed, pairs=pairs, dev=None)
    batch = Batches(pairs, 8, 5, crops=CropSettings(1.0, 3, 3)).at(0)
    assert len({passage.text for passage in batch.passages}) > 4 and {p.text for p in batch.uncropped} == {text}
    made.run()
    # All others are the positive once more, so that nothing is left to be told from it.
    assert float(rows(tmp_path / "t")[1]["loss"]) == 0.0


def test_lengths_without_positions_are_refused_before_anything_is_computed(tmp_path: Path, model: Path) -> None:
    for name in ("query_max_tokens", "passage_max_tokens"):
        with pytest.raises(
            RetrieverError, match=f"training.{name} is 65, but tiny has positions for 64 tokens; lower it"
        ):
            trainer(tmp_path / "t", model, {name: 65})


def test_a_best_checkpoint_that_was_lost_or_damaged_is_told_before_training_goes_on(
    tmp_path: Path, model: Path
) -> None:
    def stop(done: int, steps: int, figures: Any) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path / "t", model, report=stop).run()
    manifest = tmp_path / "t" / "best" / "magrag.json"
    for content, message in (("{", "is damaged"), (None, "has lost its manifest")):
        manifest.write_text(content) if content else manifest.unlink()
        with pytest.raises(RetrieverError, match=message):
            run(tmp_path / "t", model, steps=9)
        assert rows(tmp_path / "t")[-1]["step"] == "6"


@pytest.mark.parametrize(("scale", "advice"), [("fixed", "or alpha, or use scale matched$"), ("matched", "or alpha$")])
def test_a_gradient_that_is_not_finite_ends_it_with_what_is_left_to_try(
    tmp_path: Path, model: Path, scale: str, advice: str
) -> None:
    with pytest.raises(RetrieverError, match=f"step 2 is not finite; lower learning_rate {advice}"):
        run(tmp_path / "t", model, **{**PLAIN, "scale": scale}, learning_rate=1e30)


def test_layers_that_the_model_does_not_have_are_told_with_those_it_has(tmp_path: Path, model: Path) -> None:
    with pytest.raises(RetrieverError, match="lora.layers must be 0 to 1, the layers of tiny, got 17"):
        trainer(tmp_path / "t", model, {"lora": LoraSettings(4, layers=(1, 17))})


def test_gammas_learn_at_their_own_rate(tmp_path: Path, model: Path) -> None:
    moved = {}
    for name, rate in (("own", 0.05), ("paper", None)):
        run(tmp_path / name, model, gamma_lr=rate, steps=4, warmup=0.0)
        last = rows(tmp_path / name)[-1]
        moved[name] = abs(float(last["gamma_q"]) - 0.5) + abs(float(last["gamma_d"]) - 0.5)
    assert moved["own"] > 5 * moved["paper"] > 0


@pytest.mark.parametrize("lora", [None, LoraSettings(4)])
def test_the_anchor_holds_the_encoder_where_it_was(tmp_path: Path, model: Path, lora: LoraSettings | None) -> None:
    common = {**PLAIN, "similarity": COSINE, "alpha": 20.0, "lora": lora, "steps": 6}
    free = run(tmp_path / "free", model, **common)
    held = run(tmp_path / "held", model, **common, anchor=20.0)
    first = [float(rows(tmp_path / name)[1]["loss"]) for name in ("free", "held")]
    # Nothing has moved yet, so the anchor costs nothing; afterwards its loss is less than the freedom it took.
    assert first[0] == pytest.approx(first[1], rel=1e-4)
    original = load_tiny(model).encode_passages([pair.positive for pair in tiny_pairs(20)]).units

    def drift(folder: Path) -> float:
        trained = load_tiny(folder if lora is None else folder / "merged")
        units = trained.encode_passages([pair.positive for pair in tiny_pairs(20)]).units
        return float(np.abs(units @ units.T - original @ original.T).mean())

    assert drift(held.folder) < drift(free.folder)


def test_bfloat16_computes_in_it_and_keeps_weights_and_pooling_in_float32(tmp_path: Path, model: Path) -> None:
    made = trainer(tmp_path / "t", model, {**PLAIN, "precision": "bfloat16", "steps": 2})
    texts = made._forward.passages([pair.positive for pair in tiny_pairs(4)], 64)
    exact = load_tiny(model).encode_passages([pair.positive for pair in tiny_pairs(4)])
    vectors = made._forward.vectors(texts)
    assert vectors.dtype == torch.float32
    error = np.abs(vectors.norm(dim=1).numpy() / exact.norms - 1).max()
    assert 1e-5 < error < 0.02
    made.run()
    assert {value.dtype for value in weights(tmp_path / "t").values()} == {torch.float32}
    assert math.isfinite(float(rows(tmp_path / "t")[-1]["loss"]))


def test_texts_of_like_length_are_encoded_together(model: Path) -> None:
    random = np.random.default_rng(0)
    texts = [" ".join(["w1"] * int(np.exp(random.uniform(1, 4)))) for _ in range(200)]
    encoder = load_tiny(model)
    forward = Forward(encoder, tokens_per_batch=640, precision="float32")
    read, padded = forward.queries(texts, 64), []
    inner = encoder.model[0].forward

    def counted(features: Any, **named: Any) -> Any:
        padded.append(features["input_ids"].shape)
        return inner(features, **named)

    encoder.model[0].forward = counted
    vectors = forward.vectors(read).numpy()
    assert sum(rows for rows, _ in padded) == 200
    tokens = sum(rows * longest for rows, longest in padded)
    assert tokens < 1.15 * read.lengths.sum()
    # No pass is larger than it may be, nor so small that starting it costs more than it computes.
    assert all(rows * longest <= 640 for rows, longest in padded)
    assert all(rows * longest >= 80 for rows, longest in padded[:-1])
    alone = np.concatenate([forward.vectors(forward.queries([text], 64)).numpy() for text in texts[:20]])
    np.testing.assert_allclose(vectors[:20], alone, rtol=1e-4, atol=1e-5)


def test_norm_figures_are_numpys() -> None:
    random = np.random.default_rng(0)
    norms, lengths = random.random(50) + 1, random.integers(3, 99, 50)
    figures = norm_figures(norms, lengths)
    assert figures["norm_cv"] == pytest.approx(norms.std() / norms.mean())
    assert figures["norm_length_corr"] == pytest.approx(np.corrcoef(norms, np.log(lengths))[0, 1])
    assert math.isnan(norm_figures(np.ones(5), lengths[:5])["norm_length_corr"])
    assert math.isnan(norm_figures(norms[:5], np.full(5, 7))["norm_length_corr"])


def test_settings_refuse_what_cannot_be_trained() -> None:
    for wrong, message in (
        ({"scale": "auto"}, "scale must be fixed or matched, got 'auto'"),
        ({"batch_size": 1}, "batch_size must be at least 2, got 1"),
        ({"epochs": 0.0}, "epochs must be more than 0"),
        ({"betas": (0.9, 1.0)}, "betas must be at least 0 and below 1, got 0.9 and 1.0"),
        ({"betas": (-0.1, 0.9)}, "betas must be at least 0 and below 1"),
        ({"precision": "float16"}, "precision must be float32 or bfloat16, got 'float16'"),
    ):
        with pytest.raises(RetrieverError, match=message):
            TrainingSettings(**wrong)
    assert TrainingSettings(epochs=100, batch_size=256).total_steps(81_795) == 31_952
    assert TrainingSettings(steps=7).total_steps(10) == 7
