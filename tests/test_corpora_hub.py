"""Hub data sets as corpora: splits, columns, faults by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from retriever.corpora import read_corpus
from retriever.errors import RetrieverError
from retriever.passages import Passage
from tests.corpus_files import GOOD, PASSAGES, write_jsonl, write_ours


class TestHub:
    """The datasets library reads a folder as it reads a data set on the hub, so no network is needed."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "set"
        folder.mkdir()
        write_ours(folder / "train.jsonl")
        return folder

    def test_the_only_split_is_taken_and_read_as_often_as_wished(self, folder: Path) -> None:
        corpus = read_corpus(f"hub:{folder}")
        assert list(corpus) == PASSAGES
        assert list(corpus) == PASSAGES
        assert corpus.fingerprint() == read_corpus(f"hub:{folder}").fingerprint()

    def test_one_of_several_splits_must_be_named(self, folder: Path) -> None:
        write_jsonl(folder / "test.jsonl", [{"id": "9", "title": "", "text": "t"}])
        with pytest.raises(RetrieverError, match=r"several splits: name one.*train.*test"):
            read_corpus(f"hub:{folder}")
        with pytest.raises(RetrieverError, match=r'no split "dev".*train, test'):
            read_corpus(f"hub:{folder}:dev")
        for address in (f"hub:{folder}:test", f"hub:{folder}::test", f"hub:{folder}:default:test"):
            assert list(read_corpus(address)) == [Passage("9", "", "t")]
        assert read_corpus(f"hub:{folder}:test").fingerprint() != read_corpus(f"hub:{folder}:train").fingerprint()

    def test_columns_are_mapped_and_faults_name_the_row(self, folder: Path) -> None:
        write_jsonl(folder / "train.jsonl", [{"pid": 1, "passage": "a"}, {"pid": 2, "passage": None}])
        with pytest.raises(RetrieverError, match=r'no field "id" or "_id" .*pid, passage'):
            list(read_corpus(f"hub:{folder}"))
        corpus = read_corpus(f"hub:{folder}", columns={"id": "pid", "text": "passage"})
        with pytest.raises(RetrieverError, match=r'set:2: "passage" must be text, got null'):
            list(corpus)
        skipping = read_corpus(f"hub:{folder}", columns={"id": "pid", "text": "passage"}, on_error="skip")
        assert list(skipping) == [Passage("1", "", "a")]
        assert skipping.report.skipped == {"wrong type": 1}

    def test_a_damaged_file_stops_with_the_row_it_came_to(self, folder: Path) -> None:
        (folder / "train.jsonl").write_text(GOOD + "\n" + '{"id": "2", "title": "" "text"}\n')
        with pytest.raises(RetrieverError, match=r"stopped after row \d"):
            list(read_corpus(f"hub:{folder}", on_error="skip"))

    def test_an_address_that_leads_nowhere_is_an_error_of_one_line(self, tmp_path: Path) -> None:
        for address in (f"hub:{tmp_path}/absent", "hub:", "hub:a:b:c:d"):
            with pytest.raises(RetrieverError) as caught:
                read_corpus(address)
            assert "\n" not in str(caught.value)
