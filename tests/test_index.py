"""The index on disk: complete or not there, continued after a kill to the same bytes, damage named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import datasets
import numpy as np
import pytest
from scipy import stats

from retriever.build import build_index
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.passages import Passage
from tests.vectors import ListCorpus, RandomEncoder, some_passages


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_index_gives_back_passages_units_and_norms(tmp_path: Path) -> None:
    passages = some_passages(50)
    index = build_index(ListCorpus(passages), RandomEncoder(), tmp_path / "i", shard_size=16)
    raw = RandomEncoder().encode_queries([p.text for p in passages])
    assert len(index) == 50
    assert list(index.passages()) == passages
    assert index.passage(33) == passages[33]
    assert np.array_equal(index.norms(), raw.norms)
    units, norms = index.vectors([49, 0, 16])
    assert np.array_equal(units, raw.units[[49, 0, 16]])
    assert np.array_equal(norms, raw.norms[[49, 0, 16]])
    assert np.linalg.norm(units, axis=1) == pytest.approx(1, abs=1e-6)
    summary = index.norm_stats
    assert summary["mean"] == pytest.approx(raw.norms.mean(), rel=1e-6)
    assert summary["cv"] == pytest.approx(raw.norms.std() / raw.norms.mean(), rel=1e-5)


def test_passages_file_is_a_data_set_that_datasets_reads(tmp_path: Path) -> None:
    build_index(ListCorpus(some_passages(5)), RandomEncoder(), tmp_path / "i")
    table = datasets.Dataset.from_file(str(tmp_path / "i" / "passages-00000.arrow"))
    assert table[4]["id"] == "p4"
    assert json.loads(table[4]["meta"]) == {"i": 4}


@pytest.mark.parametrize("stop_after", [0, 16, 32, 48])
def test_interrupted_build_continues_to_the_same_bytes(tmp_path: Path, stop_after: int) -> None:
    corpus = ListCorpus(some_passages(50))
    build_index(corpus, RandomEncoder(), tmp_path / "whole", shard_size=16)
    with pytest.raises(KeyboardInterrupt):
        build_index(corpus, RandomEncoder(limit=stop_after), tmp_path / "killed", shard_size=16)
    # What a kill in the middle of a write leaves behind.
    (tmp_path / "killed" / "vectors-00003.npy.tmp").write_bytes(b"half")
    with pytest.raises(RetrieverError, match="not finished"):
        Index(tmp_path / "killed")
    encoder = RandomEncoder()
    build_index(corpus, encoder, tmp_path / "killed", shard_size=16)
    assert encoder.encoded == 50 - stop_after
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")


def test_continuing_makes_damaged_shards_anew(tmp_path: Path) -> None:
    corpus = ListCorpus(some_passages(40))
    build_index(corpus, RandomEncoder(), tmp_path / "whole", shard_size=16)
    with pytest.raises(KeyboardInterrupt):
        build_index(corpus, RandomEncoder(limit=32), tmp_path / "killed", shard_size=16)
    (tmp_path / "killed" / "norms-00000.npy").write_bytes(b"")
    build_index(corpus, RandomEncoder(), tmp_path / "killed", shard_size=16)
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")


def test_finished_index_is_kept_and_another_is_not_written_over_it(tmp_path: Path) -> None:
    corpus = ListCorpus(some_passages(10))
    build_index(corpus, RandomEncoder(), tmp_path / "i")
    encoder = RandomEncoder()
    build_index(corpus, encoder, tmp_path / "i")
    assert encoder.encoded == 0
    with pytest.raises(RetrieverError, match="begun on another corpus, or this one has changed"):
        build_index(ListCorpus(some_passages(9), "corpus-2"), RandomEncoder(), tmp_path / "i")
    other = RandomEncoder(description={"model": "random", "weights": "w2", "dim": 16})
    with pytest.raises(RetrieverError, match="weights: there 'w1', asked 'w2'"):
        build_index(corpus, other, tmp_path / "i")
    with pytest.raises(RetrieverError, match="storage: there 'float32', asked 'float16'"):
        build_index(corpus, RandomEncoder(), tmp_path / "i", storage="float16")


def test_half_precision_stores_units_only(tmp_path: Path) -> None:
    passages = some_passages(20)
    full = build_index(ListCorpus(passages), RandomEncoder(), tmp_path / "a")
    half = build_index(ListCorpus(passages), RandomEncoder(), tmp_path / "b", storage="float16")
    assert np.array_equal(full.norms(), half.norms())
    exact, rounded = full.vectors(range(20))[0], half.vectors(range(20))[0]
    assert 0 < np.abs(exact - rounded).max() < 2**-11


def test_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RetrieverError, match="not empty and not an index"):
        build_index(ListCorpus(some_passages(3)), RandomEncoder(), tmp_path)
    with pytest.raises(RetrieverError, match="no index at"):
        Index(tmp_path)


def test_empty_corpus_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="no passages"):
        build_index(ListCorpus([]), RandomEncoder(), tmp_path / "i")


def test_truncated_missing_and_altered_files_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    build_index(ListCorpus(some_passages(10)), RandomEncoder(), folder)
    vectors = folder / "vectors-00000.npy"
    content = vectors.read_bytes()
    vectors.write_bytes(content[:-8])
    with pytest.raises(
        RetrieverError, match=rf"vectors-00000.npy: it has {len(content) - 8} bytes, not {len(content)}"
    ):
        Index(folder)
    vectors.unlink()
    with pytest.raises(RetrieverError, match=r"vectors-00000.npy: it is missing"):
        Index(folder)
    vectors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RetrieverError, match=r"vectors-00000.npy: its checksum differs"):
        Index(folder).verify()
    vectors.write_bytes(content)
    Index(folder).verify()
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(RetrieverError, match="format 99"):
        Index(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(RetrieverError, match="cannot read"):
        Index(folder)


def test_another_encoder_is_refused_with_both_sides_named(tmp_path: Path) -> None:
    index = build_index(ListCorpus(some_passages(5)), RandomEncoder(), tmp_path / "i")
    index.check_encoder(RandomEncoder())  # type: ignore[arg-type]
    # The same weights under another name are the same encoder.
    index.check_encoder(RandomEncoder(name="copy", description={"model": "copy", "weights": "w1", "dim": 16}))  # type: ignore[arg-type]
    other = RandomEncoder(name="big", description={"model": "big", "weights": "w2", "dim": 16})
    with pytest.raises(
        RetrieverError, match=r"another encoder, random, than big \(weights: index 'w1', encoder 'w2'\)"
    ):
        index.check_encoder(other)  # type: ignore[arg-type]


def test_a_second_builder_of_one_folder_is_refused(tmp_path: Path) -> None:
    class Rival(RandomEncoder):
        def encode_passages(self, passages, progress=None):  # type: ignore[no-untyped-def]
            with pytest.raises(RetrieverError, match="another process is building"):
                build_index(corpus, RandomEncoder(), tmp_path / "i", shard_size=16)
            return super().encode_passages(passages)

    corpus = ListCorpus(some_passages(20))
    build_index(corpus, Rival(), tmp_path / "i", shard_size=16)
    build_index(corpus, RandomEncoder(), tmp_path / "alone", shard_size=16)
    assert digest(tmp_path / "i") == digest(tmp_path / "alone")


def test_a_build_that_stopped_before_its_first_shard_can_begin_again_with_a_mended_corpus(tmp_path: Path) -> None:
    class Faulty(ListCorpus):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield from self.items[:3]
            raise RetrieverError("corpus.jsonl:4: not valid JSON")

    with pytest.raises(RetrieverError, match="not valid JSON"):
        build_index(Faulty(some_passages(9)), RandomEncoder(), tmp_path / "i")
    mended = ListCorpus(some_passages(9), "corpus-2")
    assert len(build_index(mended, RandomEncoder(), tmp_path / "i")) == 9
    build_index(mended, RandomEncoder(), tmp_path / "alone")
    assert digest(tmp_path / "i") == digest(tmp_path / "alone")


def test_norm_percentiles_are_the_share_of_norms_at_most_as_large(tmp_path: Path) -> None:
    passages = some_passages(40)
    # The same text has the same vector: equal norms all count.
    passages += [Passage(f"again{i}", "", passages[0].text) for i in range(5)]
    index = build_index(ListCorpus(passages), RandomEncoder(), tmp_path / "i", shard_size=16)
    norms = index.norms()
    values = [*norms.tolist(), 0.0, float(norms.max()) + 1, float(np.median(norms)) + 0.01]
    expected = [stats.percentileofscore(norms, value, kind="weak") for value in values]
    assert index.norm_percentiles(values) == pytest.approx(expected, abs=1e-12)
    assert index.norm_percentiles([norms.max(), 0.0]).tolist() == [100.0, 0.0]
    assert index.norm_percentiles([]).shape == (0,)
