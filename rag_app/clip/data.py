"""Pictures with captions for two towers, generated or of a data set, and the model that is to learn them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.data import shapes
from generator.quiet import quiet_transformers
from rag_app.clip.config import ClipConfig, ClipDataConfig
from rag_app.errors import ConfigError, WeightsError

if TYPE_CHECKING:
    from retriever.training.two_towers import Pair, Pixels, TwoTowers

_SPECIAL = ("<pad>", "<unknown>", "<start>", "<end>")
_MAX_WORDS = 32


@dataclass(frozen=True)
class Pictures:
    """A part of a data set.

    Attributes:
        n: Pictures, numbered from 0.
        pairs: Captions and their pictures.
        pixels: Gives pictures as the model takes them.
        scenes: What is on each, where it was generated; () elsewhere.
    """

    n: int
    pairs: list[Pair]
    pixels: Pixels
    scenes: tuple[shapes.Scene, ...] = ()


def open_pictures(config: ClipConfig) -> tuple[Pictures, Pictures]:
    """The part that is trained on and the one that is evaluated on.

    Raises:
        ConfigError: A column is missing.
        WeightsError: The data set or the model's image processing cannot be had.
    """
    data = config.data
    if data.kind == "shapes":
        return _generated(data, "train", data.train), _generated(data, data.evaluate, data.test)
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    with _had(f"model.name {config.model.name}"):
        processor = CLIPImageProcessorPil.from_pretrained(config.model.name)
    train = _read(data, data.train_split, data.train, processor)
    return train, _read(data, data.test_split, data.test, processor)


def make_towers(config: ClipConfig, seed: int) -> TwoTowers:
    """A model whose first weights follow from the seed, unless they are pretrained.

    Raises:
        RetrieverError: The device is not there.
        WeightsError: The model cannot be had.
    """
    import torch
    from transformers import AutoTokenizer, CLIPConfig, CLIPModel

    from retriever.loading import torch_device
    from retriever.training.two_towers import TwoTowers

    device = torch_device(config.training.device)
    torch.manual_seed(seed)
    if not config.model.name:
        tokenizer = _tokenizer()
        return TwoTowers(CLIPModel(_own_sizes(config, tokenizer)), tokenizer, device)
    name = config.model.name
    with _had(f"model.name {name}"):
        tokenizer = AutoTokenizer.from_pretrained(name)
        if config.model.pretrained:
            model = CLIPModel.from_pretrained(name, use_safetensors=True)
        else:
            model = CLIPModel(CLIPConfig.from_pretrained(name))
    return TwoTowers(model, tokenizer, device)


def _generated(data: ClipDataConfig, part: str, n: int) -> Pictures:
    from retriever.training.two_towers import Pair

    found = list(shapes.scenes_of(part, data.seed, n))
    drawn = np.stack(
        [shapes.draw(scene, data.seed, number, size=data.image_size, noise=data.noise) for number, scene in found]
    )
    pairs = [
        Pair(caption, at)
        for at, (number, scene) in enumerate(found)
        for caption in shapes.describe(scene, data.seed, number, data.captions)
    ]

    def pixels(numbers: Sequence[int]) -> np.ndarray:
        return drawn[np.asarray(numbers)].transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1

    return Pictures(n, pairs, pixels, tuple(scene for _, scene in found))


def _read(data: ClipDataConfig, split: str, n: int, processor: Any) -> Pictures:
    """A part of a data set; pictures are read from disk when they are needed."""
    from datasets import load_dataset
    from PIL import Image

    from retriever.training.two_towers import Pair

    with _had(f"data.hub {data.hub}, split {split}"):
        rows = load_dataset(data.hub, data.subset or None, split=split)
    columns = data.image_column.split("/")
    for setting, wanted in (("image_column", columns), ("caption_column", [data.caption_column])):
        if missing := [name for name in wanted if name not in rows.column_names]:
            raise ConfigError(
                f"data.{setting}: {data.hub} has no column {missing[0]}; it has {', '.join(rows.column_names)}"
            )
    rows = rows.select(range(min(n or len(rows), len(rows))))
    pairs = []
    for at, said in enumerate(rows[data.caption_column]):
        texts = [said] if isinstance(said, str) else said
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ConfigError(
                f"data.caption_column: row {at:,} of {data.hub} has no caption in {data.caption_column}, got {said!r:.80}"
            )
        pairs += [Pair(" ".join(text.split()), at) for text in texts]

    def picture(number: int) -> Any:
        row = rows[number]
        held = row[columns[0]]
        if not isinstance(held, str):
            return held.convert("RGB")
        return Image.open(Path(data.images, *(row[name] for name in columns))).convert("RGB")

    def pixels(numbers: Sequence[int]) -> np.ndarray:
        with ThreadPoolExecutor(data.workers) as pool:
            ready = list(pool.map(lambda number: processor(picture(int(number)), return_tensors="np"), numbers))
        return np.concatenate([one["pixel_values"] for one in ready]).astype(np.float32)

    return Pictures(len(rows), pairs, pixels)


def _own_sizes(config: ClipConfig, tokenizer: Any) -> Any:
    from transformers import CLIPConfig

    own = config.model

    def tower(side: str) -> dict[str, Any]:
        size = getattr(own, side)
        return {
            "hidden_size": size.hidden,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "intermediate_size": size.intermediate,
            "projection_dim": own.dim,
        }

    words = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": _MAX_WORDS,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    pictures = {"image_size": config.data.image_size, "patch_size": own.patch}
    return CLIPConfig(
        text_config=tower("text") | words, vision_config=tower("image") | pictures, projection_dim=own.dim
    )


def _tokenizer() -> Any:
    """A word is a token; the words are those of `eval.data.shapes`."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pad, unknown, start, end = _SPECIAL
    words = {word: number for number, word in enumerate((*_SPECIAL, *shapes.WORDS))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(start, words[start]), (end, words[end])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, unk_token=unknown, bos_token=start, eos_token=end
    )


@contextmanager
def _had(what: str) -> Iterator[None]:
    """Whatever a hub's libraries raise, as one line."""
    try:
        with quiet_transformers():
            yield
    except Exception as error:  # of a dozen libraries
        raise WeightsError(f"cannot load {what}: {' '.join(str(error).split())[:200]}") from error
