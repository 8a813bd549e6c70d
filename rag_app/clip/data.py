"""Pictures with captions for two towers, generated or of a data set, and the model that is to learn them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.data import shapes
from generator.quiet import quiet_transformers
from rag_app.clip.config import ClipConfig, ClipDataConfig
from rag_app.errors import ConfigError, WeightsError
from rag_app.progress import Log
from retriever.wording import counted

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


def open_pictures(config: ClipConfig, log: Log = lambda line: None) -> tuple[Pictures, Pictures]:
    """The part that is trained on and the one that is evaluated on.

    Args:
        config: Its data and model.
        log: Told of pictures and captions that are left out.

    Raises:
        ConfigError: A column or a picture's file is missing, or no picture has a caption.
        WeightsError: The data set or the model's image processing cannot be had.
    """
    data = config.data
    if data.kind == "shapes":
        return _generated(data, "train", data.train), _generated(data, data.evaluate, data.test)
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    with _had(f"model.name {config.model.name}"):
        processor = CLIPImageProcessorPil.from_pretrained(config.model.name)
    train, train_files = _read(data, data.train_split, data.train, processor, log)
    test, test_files = _read(data, data.test_split, data.test, processor, log)
    _require_files(data, [*train_files, *test_files])
    return train, test


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


def load_towers(config: ClipConfig, folder: Path) -> TwoTowers:
    """A trained model as `save_pretrained` left it.

    Raises:
        RetrieverError: The device is not there.
        WeightsError: The folder is damaged.
    """
    from transformers import AutoTokenizer, CLIPModel

    from retriever.loading import torch_device
    from retriever.training.two_towers import TwoTowers

    device = torch_device(config.training.device)
    with _had(f"the trained model in {folder}"):
        return TwoTowers(CLIPModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), device)


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


def _read(data: ClipDataConfig, split: str, n: int, processor: Any, log: Log) -> tuple[Pictures, list[Path]]:
    """A part of a data set, and its pictures' files where it has paths; they are read from disk when they are needed."""
    from datasets import Image as Held
    from datasets import load_dataset

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
    captions: list[list[str]] = []
    for at, said in enumerate(rows[data.caption_column]):
        texts = [said] if isinstance(said, str) else said
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ConfigError(
                f"data.caption_column: row {at:,} of {data.hub} has no caption in {data.caption_column}, got {said!r:.80}"
            )
        captions.append([" ".join(text.split()) for text in texts])
    described = [at for at, own in enumerate(captions) if any(own)]
    empty = sum(text == "" for own in captions for text in own)
    if empty or len(described) < len(captions):
        without = counted(len(captions) - len(described), "picture")
        log(f"{data.hub}, {split}: left out {without} without a caption and {counted(empty, 'empty caption')}")
    if not described:
        raise ConfigError(
            f"data.caption_column: no picture of {data.hub}, {split}, has a caption in {data.caption_column}"
        )
    rows = rows.select(described)
    pairs = [Pair(text, at) for at, old in enumerate(described) for text in captions[old] if text]
    in_rows = isinstance(rows.features[columns[0]], Held)
    files = [] if in_rows else _files(data, split, described, [rows[name] for name in columns])

    def picture(number: int) -> Any:
        what = f"the picture of row {described[number]:,} of {data.hub}, {split}" if in_rows else str(files[number])
        return _picture(what, (lambda: rows[number][columns[0]]) if in_rows else lambda: files[number])

    def pixels(numbers: Sequence[int]) -> np.ndarray:
        with ThreadPoolExecutor(data.workers) as pool:
            ready = list(pool.map(lambda number: processor(picture(int(number)), return_tensors="np"), numbers))
        return np.concatenate([one["pixel_values"] for one in ready]).astype(np.float32)

    return Pictures(len(rows), pairs, pixels), files


def _files(data: ClipDataConfig, split: str, places: Sequence[int], parts: Sequence[Sequence[Any]]) -> list[Path]:
    """The path of each picture below data.images.

    Args:
        data: Names the columns.
        split: For errors.
        places: [n] rows of the data set, for errors.
        parts: Of each column of the path, its n values.

    Raises:
        ConfigError: A part is no name.
    """
    files = []
    for at, named in zip(places, zip(*parts, strict=True), strict=True):
        if not all(isinstance(part, str) and part for part in named):
            raise ConfigError(
                f"data.image_column: row {at:,} of {data.hub}, {split}, names no picture in {data.image_column}, got "
                f"{'/'.join(map(repr, named)):.80}"
            )
        files.append(Path(data.images, *named))
    return files


def _require_files(data: ClipDataConfig, files: Sequence[Path]) -> None:
    """Before anything trains: what is missing among the last would otherwise be found out when all is done.

    Raises:
        ConfigError: Files are missing.
    """
    there: dict[Path, set[str]] = {folder: set() for folder in {path.parent for path in files}}
    for folder, names in there.items():
        with suppress(OSError):
            names.update(os.listdir(folder))
    # Asked one by one only where a listing lacks it: some systems know a file by another spelling too.
    if missing := [path for path in files if path.name not in there[path.parent] and not os.path.isfile(path)]:
        raise ConfigError(
            f"{len(missing):,} of {counted(len(files), 'picture')} of {data.hub} {'is' if len(missing) == 1 else 'are'} not there, "
            f"the first {missing[0]}: set data.images to the folder that data.image_column starts from, got "
            f'"{data.images}"'
        )


def _picture(what: str, held: Callable[[], Any]) -> Any:
    """As three colours.

    Args:
        what: For errors.
        held: Gives a path, or a picture that is read already.

    Raises:
        ConfigError: It cannot be read.
    """
    from PIL import Image

    try:
        found = held()
        if isinstance(found, Path):
            with Image.open(found) as opened:
                return opened.convert("RGB")
        if found is None:
            raise ValueError("there is none")
        return found.convert("RGB")
    except Exception as error:  # PIL raises a dozen kinds on damaged files
        said = " ".join(str(error).split())[:200] if isinstance(error, (OSError, ValueError)) else type(error).__name__
        raise ConfigError(
            f"{what} cannot be read ({said}): mend it, or leave its row out of the data set, and start again"
        ) from error


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
