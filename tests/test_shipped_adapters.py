"""The adapters that come with the demo's encoder: what their cards promise, on the real MiniLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_app.adapters import find_adapter
from rag_app.config import load_config
from rag_app.demo import PASSAGES
from rag_app.stores import load_configured_encoder
from retriever.corpora import read_corpus
from retriever.passages import Passage
from retriever.training.checkpoint import manifest_of

pytestmark = pytest.mark.model

SIMILARITIES = ("cosine", "qnorm", "dot", "dnorm", "learnable")


@pytest.mark.parametrize("name", SIMILARITIES)
def test_each_is_small_described_and_differs_from_the_others_in_the_similarity_alone(name: str) -> None:
    folder = find_adapter(f"minilm-{name}", "encoders.x.adapter")
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 3e6
    own, other = manifest_of(folder), manifest_of(find_adapter("minilm-cosine", "encoders.x.adapter"))
    assert own.similarity == name
    assert (own.base, own.data_hash, own.encoder["passage_max_tokens"]) == (other.base, other.data_hash, 256)
    assert {key: value for key, value in own.recipe.items() if key != "similarity"} == {
        key: value for key, value in other.recipe.items() if key != "similarity"
    }
    card = (folder / "README.md").read_text("utf-8")
    assert all(f"**{part}**" in card for part in ("Command", "Data", "Held-out pairs", "Not for"))


@pytest.mark.parametrize("name", SIMILARITIES)
def test_the_card_s_lines_are_those_of_the_one_that_is_tried(name: str) -> None:
    own, tried = (lines_of(find_adapter(f"minilm-{other}", "encoders.x.adapter")) for other in (name, "qnorm"))
    assert own == tried.replace("minilm-qnorm", f"minilm-{name}")


def test_sentence_transformers_gives_the_same_vectors_by_the_card_s_lines(
    minilm_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = find_adapter("minilm-qnorm", "encoders.x.adapter")
    config = load_config(None, [f'encoders.minilm-qnorm.model="{minilm_folder}"'], {})
    encoder = load_configured_encoder("minilm-qnorm", config, lambda line: None)
    passages = [*list(read_corpus(str(PASSAGES)))[:15], Passage("long", "", "who built the tower " * 100)]
    ours = encoder.encode_passages(passages)

    made: dict[str, Any] = {}
    monkeypatch.chdir(folder.parents[2])
    exec(lines_of(folder).replace('"BASE"', repr(str(minilm_folder))), made)
    theirs = made["model"].encode(encoder.passage_texts(passages))
    np.testing.assert_allclose(ours.units * ours.norms[:, None], theirs, rtol=1e-3, atol=1e-5)
    assert 0.001 < ours.norms.std() / ours.norms.mean() < 0.1


def lines_of(folder: Path) -> str:
    """The Python of an adapter's card."""
    return (folder / "README.md").read_text("utf-8").split("```python\n")[1].split("```")[0]
