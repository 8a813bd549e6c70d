"""A random BERT of two layers with a vocabulary of numbered words, and pairs for it: real parts, small enough for unit tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from retriever.encoder import Encoder, EncoderSpec
from retriever.loading import load_encoder
from retriever.passages import Passage
from retriever.training.pairs import TrainingPair

WORDS = 200
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_tiny_model(folder: Path, *, dropout: float = 0.1) -> Path:
    """The model as transformers saves it, without any pooling configuration."""
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *(f"w{i}" for i in range(WORDS))))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def load_tiny(folder: Path) -> Encoder:
    """The encoder of a folder that `write_tiny_model` or a training wrote."""
    spec = EncoderSpec(query_max_tokens=32, passage_max_tokens=64)
    return load_encoder(folder, spec, name="tiny", weights_hash="0", device="cpu")


def tiny_pairs(count: int, *, seed: int = 0) -> list[TrainingPair]:
    """Pairs whose query is words of the passage, with two negatives each; every query is different."""
    random = np.random.default_rng(seed)

    def words(number: int) -> list[str]:
        return [f"w{i}" for i in random.integers(0, WORDS, number)]

    pairs = []
    for row in range(count):
        text = words(int(random.integers(8, 40)))
        query = " ".join([f"w{row % WORDS}", *text[2:5]])
        negatives = tuple(Passage(f"n{row}-{i}", "", " ".join(words(int(random.integers(8, 40))))) for i in range(2))
        pairs.append(TrainingPair(query, Passage(f"p{row}", "", " ".join(text)), negatives, (" ".join(text[3:5]),)))
    return pairs


def write_rows(path: Path, pairs: list[TrainingPair]) -> Path:
    """Pairs as people write them: passages as strings."""
    rows = (
        {
            "query": pair.query,
            "positive": pair.positive.text,
            "negatives": [own.text for own in pair.negatives],
            "answers": list(pair.answers),
        }
        for pair in pairs
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
