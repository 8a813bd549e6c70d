"""Two towers: the losses against transformers and torch, the generated pictures against their pixels, and a training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torch.nn import functional
from transformers import CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from eval.data import shapes
from rag_app.clip.config import ClipConfig, load_clip_config
from rag_app.clip.data import make_towers, open_pictures
from rag_app.clip.measures import measure, own_ranking
from rag_app.clip.trainings import run_clip
from rag_app.errors import ConfigError
from retriever.errors import RetrieverError
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity, similarity_from_name
from retriever.training.two_towers import Pair, PairLoss, described, no_negatives
from tests.config_files import CONFIGS

TINY = ["data.train=60", "data.test=20", "training.steps=2", "training.batch_size=16", "grid.seeds=[0]"]


def tiny(*overrides: str) -> ClipConfig:
    return load_clip_config(CONFIGS / "clip-shapes.toml", [*TINY, *overrides])


def silent(*_: object) -> None:
    pass


# --- the loss --------------------------------------------------------------------------------------------------------


def test_cosine_in_both_directions_is_clips_own_loss_and_gradient() -> None:
    """Against transformers' CLIPModel(..., return_loss=True), which tokens with a mask go through."""
    towers = make_towers(tiny(), 3)
    captions = ["a red circle", "a small blue square above a white cross", "there is a shape"]
    pixels = np.random.default_rng(0).normal(size=(3, 3, 24, 24)).astype(np.float32)
    model = towers.model.eval()
    tokens = towers.tokenizer(captions, padding=True, return_tensors="pt")
    inputs = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"]}
    theirs = model(**inputs, pixel_values=torch.from_numpy(pixels), return_loss=True).loss
    ours = PairLoss(COSINE, "both", float(model.logit_scale.exp()))(towers.texts(captions), towers.images(pixels))
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for own, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(theirs, parameters), strict=True):
        torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-4)


def unit(vectors: Tensor, yes: bool) -> Tensor:
    return vectors / vectors.norm(dim=1, keepdim=True) if yes else vectors


@pytest.mark.parametrize("similarity", [COSINE, QNORM, DNORM, DOT], ids=lambda own: own.name)
def test_each_direction_is_the_cross_entropy_of_the_side_that_asks(similarity: Similarity) -> None:
    generator = torch.Generator().manual_seed(1)
    texts, images = torch.randn(5, 4, generator=generator), torch.randn(5, 4, generator=generator) * 3
    targets = torch.arange(5)
    query, candidate = similarity.gamma_q == 1, similarity.gamma_d == 1
    text_asks = 2.0 * unit(texts, query) @ unit(images, candidate).T
    image_asks = 2.0 * unit(images, query) @ unit(texts, candidate).T
    wanted = {
        "text_to_image": functional.cross_entropy(text_asks, targets),
        "image_to_text": functional.cross_entropy(image_asks, targets),
        "both": (functional.cross_entropy(text_asks, targets) + functional.cross_entropy(text_asks.T, targets)) / 2,
    }
    for direction, value in wanted.items():
        ours = PairLoss(similarity, direction, 2.0)(texts, images)  # type: ignore[arg-type]
        torch.testing.assert_close(ours, value, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("direction", ["both", "text_to_image", "image_to_text"])
def test_what_is_right_for_a_caption_too_is_no_negative(direction: Any) -> None:
    """Pairs 0 and 1 share a caption, 1 and 2 a picture; and "c" is known to describe picture 7 elsewhere."""
    batch = [Pair("a", 7), Pair("a", 8), Pair("b", 8), Pair("c", 9)]
    excluded = no_negatives(batch, described([*batch, Pair("c", 7)]))
    # Caption "a" describes 7 and 8, so all of columns 0 to 2; "b" describes 8; "c" 9 and 7.
    wanted = [[0, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    assert excluded.astype(int).tolist() == wanted
    generator = torch.Generator().manual_seed(2)
    texts, images = torch.randn(4, 6, generator=generator), torch.randn(4, 6, generator=generator)
    scores = (texts @ images.T).masked_fill(torch.from_numpy(excluded), -torch.inf)
    ways = {"text_to_image": [scores], "image_to_text": [scores.T], "both": [scores, scores.T]}[direction]
    value = sum(functional.cross_entropy(way, torch.arange(4)) for way in ways) / len(ways)
    ours = PairLoss(DOT, direction, 1.0)(texts, images, torch.from_numpy(excluded))
    torch.testing.assert_close(ours, value, atol=1e-6, rtol=1e-6)


def test_learnable_exponents_are_refused() -> None:
    with pytest.raises(RetrieverError, match="two towers take cosine, dot, qnorm or dnorm"):
        PairLoss(similarity_from_name("learnable"), "both", 1.0)


# --- the generated pictures ------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_caption_is_true_of_its_picture_in_colours_places_and_numbers(seed: int, number: int) -> None:
    """Read from the pixels: where colours lie, and how much of them there is."""
    scene = shapes.make_scene(seed, number)
    picture = shapes.draw(scene, seed, number, size=48, noise=0.0)
    colours = [one.colour for one in scene]
    centres = {}
    for one in scene:
        ys, xs = np.nonzero((picture == shapes.COLOURS[one.colour]).all(axis=2))
        assert len(ys), f"no {one.colour} in the picture"
        if colours.count(one.colour) == 1:
            centres[one.colour] = (ys.mean(), xs.mean())
    for caption in shapes.describe(scene, seed, number, 4):
        assert shapes.true_of(caption, scene)
        words = caption.split()
        nouns = sum(word in (*shapes.KINDS, shapes.ANY) for word in words)
        assert 1 <= nouns <= min(len(scene), shapes.MOST_SAID)
        assert set(words) <= set(shapes.WORDS)
        said = [word for word in words if word in shapes.COLOURS]
        assert all(said.count(word) <= colours.count(word) for word in said)
        if len(said) == 2 and all(word in centres for word in said) and nouns == 2:
            (y1, x1), (y2, x2) = (centres[word] for word in said)
            assert "above" not in words or y1 < y2
            assert "below" not in words or y1 > y2
            assert "left" not in words or x1 < x2
            assert "right" not in words or x1 > x2


def test_a_caption_is_false_where_something_it_says_is_not_so() -> None:
    red = shapes.Shape("circle", "red", "small", 0, 0)
    blue = shapes.Shape("square", "blue", "large", 2, 1)
    for caption in ("a red circle", "there is a small shape above a blue square", "a circle and a large shape on grey"):
        assert shapes.true_of(caption, (red, blue))
    for caption in ("a blue circle", "a red circle below a square", "a circle and a circle", "a small square"):
        assert not shapes.true_of(caption, (red, blue))


def test_pictures_are_the_same_again_and_no_part_has_a_scene_of_another() -> None:
    parts = {part: [scene for _, scene in shapes.scenes_of(part, 5, 40)] for part in ("train", "dev", "test")}
    drawn = [frozenset(scene) for scenes in parts.values() for scene in scenes]
    assert len(set(drawn)) == len(drawn) == 120
    first, again = (open_pictures(tiny())[0] for _ in range(2))
    assert first.pairs == again.pairs
    np.testing.assert_array_equal(first.pixels(range(9)), again.pixels(range(9)))
    assert open_pictures(tiny("data.seed=1"))[0].pairs != first.pairs
    pixels = first.pixels(range(first.n))
    assert pixels.shape == (60, 3, 24, 24) and pixels.min() >= -1 and pixels.max() <= 1


# --- measures --------------------------------------------------------------------------------------------------------


def test_recall_and_norms_by_hand() -> None:
    """Caption "b" lies between both pictures, and the second picture is long: by dot it takes b, and so do captions."""
    texts = np.array([[2.0, 0.0], [1.0, 0.9], [0.0, 1.0]], dtype=np.float32)
    images = np.array([[1.0, 0.0], [0.0, 3.0]], dtype=np.float32)
    paired = np.array([[True, False], [True, False], [False, True]])
    found = measure(texts, images, ["a", "b b", "c c c"], paired, paired)
    assert found["hits"]["text_to_image"] == {"cosine": [1, 1, 1], "dot": [1, 0, 1]}
    assert found["hits"]["image_to_text"] == {"cosine": [1, 1], "dot": [1, 1]}
    assert found["norms"]["image"]["cv"] == pytest.approx(0.5)  # 1 and 3: deviation 1, mean 2
    assert found["norms"]["image"]["size"] is None  # nobody says what is on them
    assert found["norms"]["text"]["size"] == pytest.approx(
        np.corrcoef([2, np.hypot(1, 0.9), 1], np.log([1, 2, 3]))[0, 1], abs=1e-6
    )
    assert (
        own_ranking("text_to_image", "qnorm", "text_to_image"),
        own_ranking("image_to_text", "qnorm", "text_to_image"),
    ) == (
        "dot",
        "cosine",
    )


# --- the command's function ------------------------------------------------------------------------------------------


def test_a_training_finds_pictures_and_captions_it_has_not_seen(tmp_path: Path) -> None:
    chosen = ['grid.directions=["both"]', 'grid.similarities=["cosine"]', "training.steps=150", "data.train=300"]
    result = run_clip(tiny(*chosen, "training.batch_size=64"), tmp_path, log=silent, progress=silent)
    recall = result["rows"][0]["recall"]
    for asked in ("text_to_image", "image_to_text"):  # chance is 5 %
        assert recall[asked]["cosine"]["value"] > 0.25
    assert recall["text_to_image"]["n"] > recall["image_to_text"]["n"] == 20


def test_a_finished_training_is_kept_and_another_grid_adds_to_it(tmp_path: Path) -> None:
    one = ['grid.directions=["text_to_image"]', 'grid.similarities=["cosine"]']
    run_clip(tiny(*one), tmp_path, log=silent, progress=silent)
    path = tmp_path / "train/text_to_image-cosine-0/training.json"
    before, written = path.read_bytes(), path.stat().st_mtime_ns
    wider = tiny(
        'grid.directions=["both","text_to_image"]', 'grid.similarities=["cosine"]', "training.eval_batch_size=7"
    )
    result = run_clip(wider, tmp_path, log=silent, progress=silent, command="magrag train-clip")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, written)
    assert [row["direction"] for row in result["rows"]] == ["both", "text_to_image"]
    assert [own["system"] for own in result["differences"]] == ["text_to_image cosine"] * 2
    assert json.loads((tmp_path / "clip.json").read_text("utf-8"))["rows"][0]["keeps"] == {
        "text": False,
        "image": False,
    }
    assert "| both | cosine | unit | unit |" in (tmp_path / "clip.md").read_text("utf-8")
    with pytest.raises(ConfigError, match="holds a training by other settings; choose another --out"):
        run_clip(tiny(*one, "training.alpha=10"), tmp_path, log=silent, progress=silent)


class Cell(NamedTuple):
    """A data set of pictures in a folder, and what trains one cell on it."""

    root: Path
    config: ClipConfig
    load: Callable[..., ClipConfig]


def write_pictures(root: Path, change: Callable[[str, list[dict[str, Any]]], None] = lambda split, rows: None) -> Cell:
    """As configs/clip-coco.toml has it: paths in columns, several captions a picture, a CLIP's sizes and words."""
    own = make_towers(tiny(), 0)
    for part in (own.model, own.tokenizer, CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size=24)):
        part.save_pretrained(root / "model")
    (root / "pictures/val").mkdir(parents=True)
    (root / "data").mkdir()
    for split, n in (("train", 8), ("test", 5)):
        rows: list[dict[str, Any]] = []
        for number, scene in shapes.scenes_of(split, 0, n):
            drawn = Image.fromarray(shapes.draw(scene, 0, number, size=48, noise=0.0))
            drawn.save(root / f"pictures/val/{number}.png")
            said = shapes.describe(scene, 0, number, 2)
            rows.append({"filepath": "val", "filename": f"{number}.png", "sentences": said})
        change(split, rows)
        (root / f"data/{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    where = [f"data.hub={root}/data", f"data.images={root}/pictures", f"model.name={root}/model"]
    where += ["data.train_split=train", "training.batch_size=4", "training.steps=2", "training.precision=float32"]
    where += ['grid.directions=["both"]', 'grid.similarities=["dot"]']

    def load(*overrides: str) -> ClipConfig:
        return load_clip_config(CONFIGS / "clip-coco.toml", [*where, *overrides])

    return Cell(root, load(), load)


def test_a_named_model_learns_pictures_that_lie_in_a_folder(tmp_path: Path) -> None:
    cell = write_pictures(tmp_path)
    result = run_clip(cell.config, tmp_path / "out", log=silent, progress=silent)
    assert result["rows"][0]["recall"]["image_to_text"]["n"] == 5
    assert result["rows"][0]["by_seed"][0]["norms"]["image"]["d"] is None
    found = CLIPModel.from_pretrained(tmp_path / "out/train/both-dot-0/model")
    assert found.config.projection_dim == 64
    with pytest.raises(
        ConfigError, match=r"data\.caption_column: .* has no column text; it has filepath, filename, sentences"
    ):
        run_clip(cell.load("data.caption_column=text"), tmp_path / "none", log=silent, progress=silent)


def test_a_model_outlives_a_picture_that_cannot_be_read_and_files_are_looked_for_first(tmp_path: Path) -> None:
    cell, out = write_pictures(tmp_path), tmp_path / "out"
    whole = run_clip(cell.config, tmp_path / "whole", log=silent, progress=silent)
    last = sorted(json.loads(line)["filename"] for line in (tmp_path / "data/test.jsonl").read_text().splitlines())[-1]
    path = tmp_path / "pictures/val" / last
    good = path.read_bytes()
    path.write_bytes(good[:60])
    with pytest.raises(ConfigError) as damaged:
        run_clip(cell.config, out, log=silent, progress=silent)
    assert str(damaged.value).startswith(f"{path} cannot be read (") and "\n" not in str(damaged.value)
    weights = out / "train/both-dot-0/model/model.safetensors"
    trained = weights.stat().st_mtime_ns
    path.write_bytes(good)
    told: list[str] = []
    result = run_clip(cell.config, out, log=told.append, progress=silent)
    assert weights.stat().st_mtime_ns == trained and any("is trained already" in line for line in told)
    assert (result["rows"][0]["recall"], result["differences"]) == (whole["rows"][0]["recall"], whole["differences"])
    assert not (weights.parents[1] / "trained.json").exists()
    path.unlink()
    (tmp_path / "pictures/val/0.png").unlink(missing_ok=True)
    run_clip(cell.config, out, log=silent, progress=silent)  # nothing to train or to evaluate: no picture is needed
    with pytest.raises(ConfigError, match=r"\d of 13 pictures of .* not there, the first .*\.png: set data\.images"):
        run_clip(cell.config, tmp_path / "new", log=silent, progress=silent)
    assert not (tmp_path / "new/train").exists()


@pytest.mark.parametrize(
    ("split", "changed", "message"),
    [
        (
            "train",
            {"filename": None},
            r"data\.image_column: row 1 of .*, train, names no picture in filepath/filename, got",
        ),
        ("test", {"sentences": None}, r"data\.caption_column: row 1 of .* has no caption in sentences, got None"),
    ],
)
def test_rows_without_a_name_or_captions_are_told_in_a_line(
    tmp_path: Path, split: str, changed: dict[str, Any], message: str
) -> None:
    def change(part: str, rows: list[dict[str, Any]]) -> None:
        if part == split:
            rows[1].update(changed)

    with pytest.raises(ConfigError, match=message):
        open_pictures(write_pictures(tmp_path, change).config)


def test_empty_captions_are_left_out_and_counted(tmp_path: Path) -> None:
    def change(part: str, rows: list[dict[str, Any]]) -> None:
        rows[0]["sentences"], rows[1]["sentences"] = [], ["", " "]
        rows[2]["sentences"] = ["", "a red circle"]

    told: list[str] = []
    train, test = open_pictures(write_pictures(tmp_path, change).config, told.append)
    assert (train.n, test.n) == (6, 3) and all(pair.caption for pair in (*train.pairs, *test.pairs))
    assert train.pairs[0] == Pair("a red circle", 0) and {pair.picture for pair in train.pairs} == set(range(6))
    assert told[0].endswith("train: left out 2 pictures without a caption and 3 empty captions")
    # Pictures are numbered anew, and are still those of their captions.
    names = [json.loads(line)["filename"] for line in (tmp_path / "data/test.jsonl").read_text().splitlines()]
    processor = CLIPImageProcessorPil.from_pretrained(tmp_path / "model")
    wanted = processor(Image.open(tmp_path / "pictures/val" / names[2]), return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(test.pixels([0]), wanted)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ('grid.similarities=["learnable"]', 'grid.similarities.0 must be one of "cosine", "qnorm", "dnorm", "dot"'),
        ("grid.seeds=[1, 1]", "grid.seeds must name each once, got 1, 1"),
        ("grid.directions=[]", "grid.directions must not be empty"),
        ("model.text.heads=5", "model.text.heads must divide model.text.hidden 64, got 5"),
        ("model.patch=7", "model.patch must divide data.image_size 24, got 7"),
        (
            "model.name=openai/clip-vit-base-patch32",
            'data.kind shapes trains a model of its own words: set model.name ""',
        ),
        (
            "data.kind=pictures",
            "data.kind pictures needs data.hub, a data set, and model.name, a CLIP that knows words",
        ),
        ("training.device=gpu", 'training.device must be "auto", "cpu", "mps", "cuda" or "cuda:N"'),
        ("training.step=3", 'unknown setting "training.step"; did you mean "training.steps"?'),
    ],
)
def test_what_cannot_be_trained_is_said_in_a_line(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        tiny(override)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a GPU")
def test_a_gpu_that_is_not_there_is_said_in_a_line() -> None:
    with pytest.raises(RetrieverError, match="device cuda was asked for, but torch sees no GPU"):
        make_towers(tiny("training.device=cuda"), 0)


def test_the_configurations_name_what_they_set() -> None:
    shapes_config, coco = (load_clip_config(CONFIGS / f"clip-{name}.toml") for name in ("shapes", "coco"))
    assert shapes_config.data.kind == "shapes" and coco.model.name == "openai/clip-vit-base-patch32"
