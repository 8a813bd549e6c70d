"""Pairs from files, hub data sets and evaluation sets: shapes, faults, identity."""

from __future__ import annotations

import gzip
import hashlib
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.errors import EvalError
from rag_app.config import load_config
from rag_app.errors import ConfigError
from rag_app.training.pair_sources import evaluation_questions, open_pairs, pairs_from_dataset
from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.training.guard import canonical, drop_leaks
from retriever.training.pairs import (
    TrainingPair,
    data_hash,
    passages_of,
    read_hub_pairs,
    read_pairs,
    stable_id,
    write_pairs,
)
from retriever.training.rows import split_title


def jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def read(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> list[TrainingPair]:
    return read_pairs(jsonl(tmp_path / "pairs.jsonl", *rows), **options)


def texts(pair: TrainingPair) -> tuple[str, str, str, list[str]]:
    return pair.query, pair.positive.title, pair.positive.text, [passage.text for passage in pair.negatives]


class TestFiles:
    def test_rows_without_a_positive_are_counted(self, tmp_path: Path) -> None:
        rows = [{"query": "a", "positive": None}, {"query": "b", "positive": "p"}, {"query": "c", "positive": []}]
        told: list[str] = []
        (pair,) = read(tmp_path, *rows, tell=told.append)
        assert pair.query == "b"
        assert told == [f"{tmp_path / 'pairs.jsonl'}: 2 of 3 rows without a positive, left out"]

    def test_what_is_written_is_read_again(self, tmp_path: Path) -> None:
        pairs = [
            TrainingPair("wer?", Passage("7", "Ä", "ö"), (Passage("n", "", "x"), Passage("7b", "Ä", "y")), ("ö",), "s"),
            TrainingPair("who\nelse?", Passage("8", "", "a b")),
        ]
        path = tmp_path / "new" / "pairs.jsonl"
        write_pairs(path, pairs)
        assert read_pairs(path) == pairs
        assert [entry.name for entry in path.parent.iterdir()] == ["pairs.jsonl"]
        zipped = tmp_path / "pairs.jsonl.gz"
        zipped.write_bytes(gzip.compress(path.read_bytes()))
        assert read_pairs(zipped) == pairs

    def test_an_id_comes_from_title_and_text_where_none_is_given(self, tmp_path: Path) -> None:
        first, second = read(tmp_path, {"query": "a", "positive": "T. x"}, {"query": "b", "positive": "T. x"})
        assert first.positive is second.positive, "equal passages are held once"
        assert first.positive.id == hashlib.sha256(b"\0T. x").hexdigest()[:16] == stable_id("", "T. x")
        (split,) = read(tmp_path, {"query": "a", "positive": "T. x"}, title_separator=". ")
        assert split.positive == Passage(hashlib.sha256(b"T\0x").hexdigest()[:16], "T", "x")

    @pytest.mark.parametrize(
        ("row", "columns", "expected"),
        [
            ({"query": "q", "positive": "p", "negatives": ["m", "n"]}, {}, [("q", "", "p", ["m", "n"])]),
            ({"anchor": "q", "positive": "p", "negative": "n"}, {}, [("q", "", "p", ["n"])]),
            ({"query": "q", "pos": ["p", "o"], "neg": ["n"]}, {}, [("q", "", "p", ["n"]), ("q", "", "o", ["n"])]),
            (
                {
                    "question": "q",
                    "positive_ctxs": [{"passage_id": 3, "title": "T", "text": "p"}],
                    "negative_ctxs": [{"title": "", "text": "far"}],
                    "hard_negative_ctxs": [{"title": "", "text": "n"}],
                },
                {},
                [("q", "T", "p", ["n"])],
            ),
            (
                {"query": "q", "positive_passages": {"docid": ["1", "2"], "title": ["T", "U"], "text": ["p", "o"]}},
                {},
                [("q", "T", "p", []), ("q", "U", "o", [])],
            ),
            ({"question": "q", "title": "T", "context": "p"}, {"positive": "context"}, [("q", "T", "p", [])]),
            ({"query": "q", "answer": "a passage"}, {"positive": "answer"}, [("q", "", "a passage", [])]),
        ],
    )
    def test_other_peoples_rows_are_understood(
        self, tmp_path: Path, row: dict[str, Any], columns: dict[str, str], expected: list[Any]
    ) -> None:
        assert [texts(pair) for pair in read(tmp_path, row, columns=columns)] == expected

    def test_a_column_that_is_mapped_is_taken_for_nothing_else(self, tmp_path: Path) -> None:
        (pair,) = read(tmp_path, {"query": "q", "answer": "a passage"}, columns={"positive": "answer"})
        assert pair.answers == ()
        (pair,) = read(tmp_path, {"query": "q", "positive": "p", "answers": {"text": ["x", " ", "x"]}})
        assert pair.answers == ("x",)

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ({"query": "q"}, "line 1: no positive .*map a column to positive"),
            ({"query": " ", "positive": "p"}, "line 1: a query is empty"),
            ({"query": "q", "positive": "\0"}, "line 1: a positive is empty"),
            ({"query": 3, "positive": "p"}, r"line 1: a query must be text, got 3 \(int\)"),
            ({"query": "q", "positive": {"id": 1}}, "line 1: a positive has no text"),
            ({"query": "q", "positive": {"id": True, "text": "p"}}, "line 1: the id of a positive must be text"),
            ({"query": "q", "positive": "p", "negatives": [None]}, "line 1: a negative must be text, got null"),
            ({"query": "q", "positive": "p", "answers": [1]}, "line 1: answers must be texts"),
            ({"query": "q", "positive": {"text": ["a"], "title": []}}, "line 1: the lists of positives are not of one"),
            (
                {"query": "q", "positive": {"id": "1", "text": "a"}, "negatives": [{"id": "1", "text": "b"}]},
                "line 1: passage id '1' stands for two texts",
            ),
            ({"query": "q", "positive": []}, "holds no pair"),
        ],
    )
    def test_a_fault_names_file_and_line(self, tmp_path: Path, row: dict[str, Any], said: str) -> None:
        with pytest.raises(RetrieverError, match=f"pairs.jsonl.*{said}") as caught:
            read(tmp_path, row)
        assert "\n" not in str(caught.value)

    def test_a_file_that_is_none_of_pairs_is_refused_in_a_line(self, tmp_path: Path) -> None:
        with pytest.raises(RetrieverError, match="there is no such file"):
            read_pairs(tmp_path / "absent.jsonl")
        for content, said in (
            (b'{"query": "q", "positive": "p"}\n[1]\n', "line 2: must be a JSON object"),
            (b'{"query"', "line 1: invalid JSON"),
            (b'{"query": "\xff"}', "line 1: invalid UTF-8"),
            (b'{"query": "\\ud83d", "positive": "p"}', "half a surrogate pair"),
            (b"", "holds no pair"),
        ):
            path = tmp_path / "bad.jsonl"
            path.write_bytes(content)
            with pytest.raises(RetrieverError, match=said):
                read_pairs(path)

    def test_a_misspelt_role_and_an_absent_column_are_told(self, tmp_path: Path) -> None:
        row = {"query": "q", "positive": "p"}
        with pytest.raises(RetrieverError, match="'positve' is nothing a pair is made of: did you mean 'positive'"):
            read(tmp_path, row, columns={"positve": "p"})
        with pytest.raises(
            RetrieverError, match=r'column "body" \(our positive\) is missing; there are query, positive'
        ):
            read(tmp_path, row, columns={"positive": "body"})
        with pytest.raises(RetrieverError, match="title_separator must hold more than white space"):
            read(tmp_path, row, title_separator=" ")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Marina Bay Sands. Marina Bay Sands is a resort.", "Marina Bay Sands"),
        ("Mr. Pickles. It is a series. It ran.", "Mr. Pickles"),
        ("George H. W. Bush. He was president.", "George H. W. Bush"),
        ("Yellowstone (U.S. TV series). It is a drama.", "Yellowstone (U.S. TV series)"),
        ("Lau v. Nichols. It was a case.", "Lau v. Nichols"),
        ("St. Augustine, Florida. A city.", "St. Augustine, Florida"),
        ("Vitamin K. Vitamin K, also known as phylloquinone, is fat-soluble. More.", "Vitamin K"),
        ("Ben & Jerry's. An American company. It makes ice cream.", "Ben & Jerry's"),
        ("World War I. The war drew in " + "the great powers " * 8 + "in 1914. More.", "World War I"),
        ("M. He.", "M"),
        ("No separator at all", ""),
        ("Ends with it. ", ""),
        (". Begins with it", ""),
    ],
)
def test_titles_end_where_articles_begin(text: str, title: str) -> None:
    got, rest = split_title(text, ". ")
    assert got == title
    assert (f"{got}. {rest}" if got else rest) == text


def test_a_separator_without_a_full_stop_is_taken_at_its_first_place() -> None:
    assert split_title("J | a | b", " | ") == ("J", "a | b")


def test_the_hash_is_of_canonical_json_and_sees_every_part_and_the_order() -> None:
    pair = TrainingPair("q", Passage("1", "t", "x"), (Passage("2", "", "y"),), ("a",), "s")
    line = (
        '{"answers":["a"],"negatives":[{"id":"2","text":"y","title":""}],'
        '"positive":{"id":"1","text":"x","title":"t"},"query":"q","source":"s"}\n'
    )
    assert data_hash([pair]) == hashlib.sha256(line.encode()).hexdigest()
    other = TrainingPair("q", Passage("1", "t", "x"), (), ("a",), "s")
    assert len({data_hash(pairs) for pairs in ([pair], [other], [pair, other], [other, pair])}) == 4


def test_passages_come_once_and_ids_that_clash_are_refused() -> None:
    a, b = Passage("a", "", "x"), Passage("b", "", "y")
    assert passages_of([TrainingPair("q", a, (b,)), TrainingPair("r", b, (a,))]) == [a, b]
    with pytest.raises(RetrieverError, match="passage id 'a' stands for two texts"):
        passages_of([TrainingPair("q", a), TrainingPair("r", Passage("a", "", "z"))])


class TestHub:
    """The datasets library reads a folder as it reads a data set on the hub, so no network is needed."""

    MSMARCO: tuple[dict[str, Any], ...] = (
        {
            "answers": ["About 2.5 km"],
            "passages": {
                "is_selected": [0, 1, 0],
                "passage_text": ["one", "two", "three"],
                "url": ["http://a", "http://b", "http://c"],
            },
            "query": "how long is it",
            "query_id": 1,
            "query_type": "numeric",
            "wellFormedAnswers": [],
        },
        {
            "answers": [],
            "passages": {"is_selected": [0], "passage_text": ["four"], "url": ["http://d"]},
            "query": "nobody knows",
            "query_id": 2,
            "query_type": "entity",
            "wellFormedAnswers": [],
        },
    )

    def test_ms_marcos_selected_passages_are_positives(self, tmp_path: Path) -> None:
        jsonl(tmp_path / "v1.1" / "train.jsonl", *self.MSMARCO)
        (tmp_path / "README.md").write_text(
            "---\nconfigs:\n- config_name: v1.1\n  data_files:\n  - split: train\n    path: v1.1/train.jsonl\n---\n"
        )
        (pair,) = read_hub_pairs(str(tmp_path), "v1.1")
        assert texts(pair) == ("how long is it", "", "two", []) and pair.answers == ("About 2.5 km",)
        (pair,) = read_hub_pairs(str(tmp_path), "v1.1", "train", {"positive": "passages", "negatives": "passages"})
        assert texts(pair) == ("how long is it", "", "two", ["one", "three"])
        assert open_pairs(f"hub:{tmp_path}:v1.1:train", {}) == read_hub_pairs(str(tmp_path), "v1.1")

    def test_natural_questions_long_answers_are_positives(self, tmp_path: Path) -> None:
        tokens = ["<H1>", "Mars", "</H1>", "<P>", "Mars", "has", "two", "moons", ".", "</P>"]
        row = {
            "id": "1",
            "document": {
                "title": "Mars",
                "tokens": {"token": tokens, "is_html": [token.startswith("<") for token in tokens]},
            },
            "question": {"text": "how many moons has mars", "tokens": ["how"]},
            "annotations": {
                "id": ["x", "y", "z"],
                "long_answer": [{"start_token": 3, "end_token": 10, "candidate_index": 0}] * 2
                + [{"start_token": -1, "end_token": -1, "candidate_index": -1}],
                "short_answers": [{"text": ["two"]}, {"text": ["two", "2"]}, {"text": []}],
                "yes_no_answer": [-1, -1, -1],
            },
        }
        jsonl(tmp_path / "train.jsonl", row)
        (pair,) = read_hub_pairs(str(tmp_path))
        assert texts(pair) == ("how many moons has mars", "Mars", "Mars has two moons .", [])
        assert pair.answers == ("two", "2")

    def test_columns_are_mapped_and_faults_name_the_row(self, tmp_path: Path) -> None:
        jsonl(tmp_path / "train.jsonl", {"ask": "q", "body": "Mars. It is red."}, {"ask": "r", "body": " "})
        with pytest.raises(RetrieverError, match=r"row 1: no query \(query, question, anchor\); there are ask, body"):
            read_hub_pairs(str(tmp_path))
        columns = {"query": "ask", "positive": "body"}
        with pytest.raises(RetrieverError, match="row 2: a positive is empty"):
            read_hub_pairs(str(tmp_path), columns=columns)
        jsonl(tmp_path / "dev.jsonl", {"ask": "q", "body": "Mars. It is red."})
        (pair,) = open_pairs(f"hub:{tmp_path}:validation", columns, ". ")
        assert texts(pair) == ("q", "Mars", "It is red.", [])

    def test_an_address_that_leads_nowhere_is_an_error_of_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(RetrieverError, match="cannot load .*absent") as caught:
            open_pairs(f"hub:{tmp_path}/absent", {})
        assert "\n" not in str(caught.value)
        with pytest.raises(ConfigError, match="not of the form"):
            open_pairs("hub:a:b:c:d", {})


class TestEvaluationSets:
    CORPUS = tuple({"id": f"d{i}", "title": f"T{i}", "text": f"text {i}", "year": i} for i in range(4))

    def test_marked_passages_are_positives_those_of_people_first(self, tmp_path: Path) -> None:
        corpus = jsonl(tmp_path / "corpus.jsonl", *self.CORPUS)
        questions = jsonl(
            tmp_path / "mine.jsonl",
            {"id": "1", "question": "a?", "answers": ["x"], "supporting_ids": ["d2", "d0"]},
            {"id": "2", "question": "b?", "answers": ["y"], "supporting_ids": ["d2", "d1"], "gold_ids": ["d1"]},
            {"id": "3", "question": "c?", "answers": ["z"]},
            {"id": "4", "question": "d?", "answers": ["z"], "supporting_ids": ["gone"]},
        )
        said: list[str] = []
        pairs = pairs_from_dataset(str(questions), load_config(None, [f"corpus={corpus}"]), said.append)
        assert [(pair.query, pair.positive, pair.answers, pair.source) for pair in pairs] == [
            ("a?", Passage("d2", "T2", "text 2"), ("x",), "mine"),
            ("a?", Passage("d0", "T0", "text 0"), ("x",), "mine"),
            ("b?", Passage("d1", "T1", "text 1"), ("y",), "mine"),
        ]
        assert any("1 of 4 marked passages are not in" in line for line in said)
        assert any("1 of 4 questions have no marked passage" in line for line in said)

    def test_a_beir_folder_brings_its_corpus_and_judgments(self, tmp_path: Path) -> None:
        jsonl(tmp_path / "corpus.jsonl", *({"_id": f"d{i}", "title": "", "text": f"text {i}"} for i in range(3)))
        jsonl(tmp_path / "queries.jsonl", {"_id": "q", "text": "a?"})
        (tmp_path / "qrels").mkdir()
        (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t0\nq\td2\t2\n")
        (pair,) = pairs_from_dataset(str(tmp_path), load_config(), lambda line: None, own_corpus=True)
        assert texts(pair) == ("a?", "", "text 2", [])

    def test_what_marks_nothing_is_refused(self, tmp_path: Path) -> None:
        corpus = jsonl(tmp_path / "corpus.jsonl", *self.CORPUS)
        config = load_config(None, [f"corpus={corpus}"])
        bare = jsonl(tmp_path / "bare.jsonl", {"id": "1", "question": "a?", "answers": ["x"]})
        gone = jsonl(tmp_path / "gone.jsonl", {"id": "1", "question": "a?", "answers": ["x"], "gold_ids": ["e"]})
        for path, own, said in (
            (bare, False, "no question has marked passages"),
            (gone, False, "none of its 1 marked passages"),
            (gone, True, "comes without a corpus"),
        ):
            with pytest.raises(EvalError, match=said):
                pairs_from_dataset(str(path), config, lambda line: None, own_corpus=own)


class TestGuard:
    def test_equal_questions_are_dropped_whatever_their_case_and_punctuation(self, tmp_path: Path) -> None:
        asked = jsonl(
            tmp_path / "set.jsonl",
            {"id": "1", "question": "Who wrote “Dune” ?", "answers": ["x"]},
            {"id": "2", "question": "Straße in Köln", "answers": ["x"]},
        )
        passage = Passage("p", "", "x")
        leaks = ["who wrote Dune", "who\u00a0wrote dune!!", "STRASSE in Ko\u0308ln"]
        others = ["who wrote Dune II", "who wrote dune and when", "1 + 1", "1 - 1"]
        kept, dropped = drop_leaks(
            [TrainingPair(query, passage) for query in leaks + others], evaluation_questions([str(asked)])
        )
        assert [pair.query for pair in dropped] == leaks
        assert [pair.query for pair in kept] == others

    def test_sides_of_sentence_pairs_are_questions_too(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "sts.jsonl", {"text1": "a b", "text2": "c", "score": 1.0})
        assert evaluation_questions([str(path)]) == ["a b", "c"]

    @given(st.text(), st.text("?!.,;:'\"()-“”… \n\u00a0"), st.integers(0))
    def test_form_and_signs_change_nothing(self, text: str, signs: str, place: int) -> None:
        asked = f"a {text}"
        cut = place % (len(asked) + 1)
        expected = canonical(asked)
        assert canonical(unicodedata.normalize("NFD", asked)) == expected
        # Between a letter and its accent a sign would part the two.
        if not unicodedata.combining(asked[cut : cut + 1] or "x"):
            assert canonical(unicodedata.normalize("NFC", asked[:cut] + signs + asked[cut:])) == expected

    def test_a_question_of_signs_alone_stays_itself(self) -> None:
        assert canonical("?") == "?" != canonical("!")
