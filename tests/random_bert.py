"""A tiny BERT of random weights as a sentence-transformers model: real modules, milliseconds a batch."""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizer

SENTENCE = "who built the old tower near a river and what poem made where comet engine harbour violin glacier"
WORDS = SENTENCE.split()


def random_bert(folder: Path, *, dim: int = 16, dropout: float = 0.1, seed: int = 0) -> SentenceTransformer:
    """Mean pooling over two layers, on the CPU, with word pieces of `WORDS`; saved to `folder` first."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=dim,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * dim,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        # Larger than BERT's .02, so that random texts get vectors that differ.
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizer(str(vocabulary)).save_pretrained(folder)
    transformer = Transformer(str(folder), max_seq_length=32)
    return SentenceTransformer(modules=[transformer, Pooling(dim, "mean")], device="cpu")


def some_texts(n: int, *, seed: int = 0, longest: int = 9) -> list[str]:
    """n texts of 2 to `longest` of the words."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest + 1, (n,), generator=generator).tolist()
    return [" ".join(WORDS[i] for i in torch.randint(len(WORDS), (k,), generator=generator).tolist()) for k in lengths]
