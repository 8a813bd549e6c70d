"""What an encoder reads of a text, and how long a text may be, on tiny random models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import RobertaConfig, RobertaModel

from retriever.encoder import EncoderSpec
from retriever.loading import load_encoder
from retriever.passages import Passage
from tests.tiny_encoder import write_tiny_model


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_positions_are_as_many_tokens_as_the_model_can_take(tmp_path: Path, kind: str) -> None:
    """RoBERTa counts from behind its padding token, so that 20 rows are positions for 18 tokens."""
    write_tiny_model(tmp_path)
    if kind == "roberta":
        shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        RobertaModel(
            RobertaConfig(vocab_size=204, max_position_embeddings=20, pad_token_id=1, **shape)
        ).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, EncoderSpec(), name="tiny", weights_hash="0", device="cpu")
    assert encoder.positions == (18 if kind == "roberta" else 64)
    model = encoder.model[0].auto_model
    for tokens, fits in ((encoder.positions, True), (encoder.positions + 1, False)):
        ids = torch.full((1, tokens), 5)
        if fits:
            assert model(input_ids=ids).last_hidden_state.shape == (1, tokens, 16)
        else:
            with pytest.raises((IndexError, RuntimeError)):
                model(input_ids=ids)


def test_what_a_model_reads_of_a_text_is_said_in_one_place(tmp_path: Path) -> None:
    spec = EncoderSpec(query_prefix="w1 ", passage_prefix="w2 ", query_max_tokens=32, passage_max_tokens=64)
    encoder = load_encoder(write_tiny_model(tmp_path), spec, name="tiny", weights_hash="0", device="cpu")
    passages = [Passage("a", "w3", "w4 w5"), Passage("b", "", "w6")]
    assert encoder.query_texts(["w7"]) == ["w1 w7"]
    assert encoder.passage_texts(passages) == ["w2 w3 w4 w5", "w2 w6"]
    assert encoder.passage_lengths(passages).tolist() == [6, 4]
