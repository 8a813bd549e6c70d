"""From what a person names to checked, counted, drawn questions; hub sets are folders that the library reads alike."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval.data.hub import LOCK_FILE
from eval.data.pairs import Pair
from eval.data.sources import DataSet, PairSet, load_dataset
from eval.data.specs import DataSetSpec, resolve_spec
from eval.errors import EvalError


def jsonl(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def ours(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"q{number}", "question": f"question {number}?", "answers": [f"answer {number}"], **more}


def qa(spec: DataSetSpec, **arguments: Any) -> DataSet:
    loaded = load_dataset(spec, **arguments)
    assert isinstance(loaded, DataSet)
    return loaded


class TestResolve:
    def test_a_known_name_in_any_spelling_is_the_registrys(self) -> None:
        assert resolve_spec("2Wiki") == DataSetSpec("2wikimultihopqa")
        assert resolve_spec(" NQ ") == DataSetSpec("nq")

    def test_a_path_is_named_after_file_or_folder(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "mine" / "test.jsonl", ours(1))
        assert resolve_spec(str(path)) == DataSetSpec("mine", path=str(path))
        assert resolve_spec(str(path.parent)) == DataSetSpec("mine", path=str(path.parent))

    def test_a_path_can_be_given_a_name_of_which_an_alias_is_made_the_known_one(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "x.jsonl", ours(1))
        assert resolve_spec(f"bees={path}") == DataSetSpec("bees", path=str(path))
        assert resolve_spec(f"2wiki={path}") == DataSetSpec("2wikimultihopqa", path=str(path))

    def test_a_path_with_an_equals_sign_is_a_path(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "lr=1" / "mine.jsonl", ours(1))
        assert resolve_spec(str(path)) == DataSetSpec("mine", path=str(path))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "got an empty text"),
            ("no/such.jsonl", "no/such.jsonl: there is no such file or folder"),
            ("questions.jsonl", "questions.jsonl: there is no such file"),
            ("nq=no/such.jsonl", "nq=no/such.jsonl: there is no such file"),
            ("hotpotq", "did you mean 'hotpotqa'"),
            ("x" * 5000, "there is no data set"),
        ],
    )
    def test_what_is_nothing_is_refused_with_a_hint(self, text: str, message: str) -> None:
        with pytest.raises(EvalError, match=message):
            resolve_spec(text)


class TestFiles:
    def test_questions_get_the_sets_name_language_and_default_rule(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "x.jsonl", ours(1, dataset="other"), ours(2, lang="de"))
        loaded = qa(DataSetSpec("hotpotqa", path=str(path)))
        assert (loaded.name, loaded.task, loaded.rule, loaded.lang) == ("hotpotqa", "qa", "hotpotqa", "en")
        assert [(q.dataset, q.lang) for q in loaded.questions] == [("hotpotqa", "en"), ("hotpotqa", "de")]
        mine = qa(DataSetSpec("mine", path=str(path), lang="fr", rule="nq_open"))
        assert (mine.rule, mine.lang, mine.questions[0].lang) == ("nq_open", "fr", "fr")

    def test_a_language_that_every_row_names_decides_the_rule(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "x.jsonl", ours(1, lang="de"), ours(2, lang="de"))
        loaded = qa(DataSetSpec("mine", path=str(path)))
        assert (loaded.rule, loaded.lang) == ("squad:de", "de")
        assert qa(DataSetSpec("mine", path=str(path), rule="squad")).rule == "squad"
        said: list[str] = []
        mixed = jsonl(tmp_path / "y.jsonl", ours(1, lang="de"), ours(2, lang="fr"))
        assert qa(DataSetSpec("mine", path=str(mixed)), say=said.append).rule == "squad"
        assert said == ["mine: rows are in several languages (de, fr), and are scored as en"]

    def test_the_source_says_which_file_and_which_of_its_questions(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "mine.jsonl", *map(ours, range(1500)))
        said: list[str] = []
        loaded = qa(DataSetSpec("mine", path=str(path)), n=100, seed=3, say=said.append)
        assert len(loaded.questions) == 100
        assert said == ["mine: 100 of 1,500 questions, drawn with seed 3"]
        assert loaded.source == {
            "format": "questions",
            "file": str(path),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "questions_in_file": 1500,
            "questions_used": 100,
            "subset_seed": 3,
            "without_answers": 0,
            "golds_without_content": 0,
        }
        whole = qa(DataSetSpec("mine", path=str(path)), n=0, say=said.append)
        assert (len(whole.questions), whole.source["subset_seed"], len(said)) == (1500, None, 1)
        with pytest.raises(EvalError, match="n must be at least 0"):
            load_dataset(DataSetSpec("mine", path=str(path)), n=-1)

    def test_questions_without_answers_and_golds_without_content_are_counted(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "mine.jsonl", ours(1), ours(2, answers=[]), ours(3, answers=["The", "x", "?"]))
        said: list[str] = []
        loaded = qa(DataSetSpec("mine", path=str(path)), say=said.append)
        assert (loaded.source["without_answers"], loaded.source["golds_without_content"]) == (1, 2)
        assert said == ["mine: 1 of 3 questions have no answer", "mine: of 2 golds rule squad leaves nothing"]
        patterns = qa(DataSetSpec("curatedtrec", path=str(path)))
        assert patterns.rule == "curatedtrec" and patterns.source["golds_without_content"] == 0

    def test_count_and_hash_that_differ_are_refused_naming_both(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "mine.jsonl", ours(1), ours(2))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        spec = DataSetSpec("mine", path=str(path), count=2, sha256=digest.upper())
        assert len(qa(spec, n=1).questions) == 1, "the count is of all questions, not of those drawn"
        with pytest.raises(EvalError, match=r"has 2 rows, but should have 3,610"):
            load_dataset(replace(spec, count=3610))
        with pytest.raises(EvalError, match=f"has SHA-256 {digest}, but should have {'0' * 64}"):
            load_dataset(replace(spec, sha256="0" * 64))

    def test_a_local_file_of_a_known_set_may_have_another_size(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "x.jsonl", ours(1))
        assert len(qa(DataSetSpec("nq", path=str(path), hub="some/set")).questions) == 1

    def test_columns_are_mapped_and_ids_that_are_missing_are_numbers(self, tmp_path: Path) -> None:
        path = jsonl(
            tmp_path / "x.jsonl", {"query": "who?", "targets": "Ann"}, {"query": "what?", "targets": ["x", "y"]}
        )
        spec = DataSetSpec("mine", path=str(path), columns={"question": "query", "answers": "targets"})
        assert [(q.id, q.question, q.answers) for q in qa(spec).questions] == [
            ("1", "who?", ("Ann",)),
            ("2", "what?", ("x", "y")),
        ]
        with pytest.raises(EvalError, match="'query' is no field"):
            load_dataset(replace(spec, columns={"query": "query"}))

    def test_musiques_own_file_needs_no_mapping(self, tmp_path: Path) -> None:
        row = {"id": "2hop__1", "question": "who?", "answer": "Ann", "answer_aliases": ["Anne"], "paragraphs": [{}]}
        loaded = qa(DataSetSpec("musique", path=str(jsonl(tmp_path / "dev.jsonl", row))))
        assert loaded.questions[0].answers == ("Ann", "Anne") and loaded.rule == "musique"
        with pytest.raises(EvalError, match='"answers" .* is missing'):
            load_dataset(DataSetSpec("mine", path=str(tmp_path / "dev.jsonl")))

    def test_triviaqas_rule_takes_the_normalised_aliases_and_squad_the_raw_ones(self, tmp_path: Path) -> None:
        answer = {"value": "Spider-Man", "aliases": ["Spider-Man"], "normalized_aliases": ["spider man"]}
        path = jsonl(tmp_path / "x.jsonl", {"question_id": "tc_1", "question": "who?", "answer": answer})
        spec = DataSetSpec("triviaqa", path=str(path), columns={"id": "question_id", "answers": "answer"})
        assert (qa(spec).rule, qa(spec).questions[0].answers) == ("squad", ("Spider-Man",))
        own = qa(replace(spec, rule="triviaqa"))
        assert (own.rule, own.questions[0].answers) == ("triviaqa", ("spider man",))

    def test_rows_of_several_sets_in_one_file_are_told(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "mixed.jsonl", ours(1, dataset="nq"), ours(2, dataset="popqa"))
        said: list[str] = []
        assert qa(DataSetSpec("mixed", path=str(path)), say=said.append).questions[1].dataset == "mixed"
        assert said == ["mixed: rows name several data sets (nq, popqa), which are scored as one"]

    def test_a_folder_of_questions_brings_its_corpus(self, tmp_path: Path) -> None:
        jsonl(tmp_path / "set" / "questions.jsonl", ours(1))
        assert qa(DataSetSpec("mine", path=str(tmp_path / "set"))).corpus == ""
        jsonl(tmp_path / "set" / "corpus.jsonl", {"id": "p", "text": "t"})
        assert qa(DataSetSpec("mine", path=str(tmp_path / "set"))).corpus == str(tmp_path / "set")

    def test_flashrags_folder_has_files_named_after_splits(self, tmp_path: Path) -> None:
        for split in ("test", "dev"):
            jsonl(tmp_path / "nq" / f"{split}.jsonl", {"id": split, "question": "who?", "golden_answers": ["x"]})
        spec = resolve_spec(str(tmp_path / "nq"))
        assert [qa(replace(spec, split=split)).questions[0].id for split in ("", "test", "dev")] == [
            "test",
            "test",
            "dev",
        ]

    def test_an_unknown_rule_or_format_is_refused(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "mine.jsonl", ours(1))
        with pytest.raises(EvalError, match="no scoring rule 'sqad': did you mean 'squad'"):
            load_dataset(DataSetSpec("mine", path=str(path), rule="sqad"))
        with pytest.raises(EvalError, match="no format 'csv': use auto, questions"):
            load_dataset(DataSetSpec("mine", path=str(path), format="csv"))  # type: ignore[arg-type]
        with pytest.raises(EvalError, match="format beir is a folder"):
            load_dataset(DataSetSpec("mine", path=str(path), format="beir"))
        with pytest.raises(EvalError, match="there is no such file"):
            load_dataset(DataSetSpec("mine", path=str(tmp_path / "absent")))
        with pytest.raises(EvalError, match="holds neither queries.jsonl beside qrels"):
            load_dataset(DataSetSpec("mine", path=str(tmp_path)))
        with pytest.raises(EvalError, match="no data set 'mine'"):
            load_dataset(DataSetSpec("mine"))


class TestOtherTasks:
    def test_a_beir_folder_is_a_retrieval_set_with_its_own_corpus(self, tmp_path: Path) -> None:
        queries = jsonl(tmp_path / "set" / "queries.jsonl", {"_id": "1", "text": "a?"}, {"_id": "2", "text": "b?"})
        jsonl(tmp_path / "set" / "corpus.jsonl", {"_id": "d", "text": "t"})
        qrels = tmp_path / "set" / "qrels" / "test.tsv"
        qrels.parent.mkdir()
        qrels.write_text("query-id\tcorpus-id\tscore\n1\td\t1\n")
        loaded = qa(DataSetSpec("mine", path=str(tmp_path / "set"), count=1))
        assert (loaded.task, loaded.rule, loaded.corpus) == ("retrieval", None, str(tmp_path / "set"))
        assert loaded.questions[0].qrels == {"d": 1} and loaded.questions[0].excluded_ids == ("1",)
        assert loaded.source["sha256"] == hashlib.sha256(queries.read_bytes() + qrels.read_bytes()).hexdigest()
        assert "without_answers" not in loaded.source

    def test_trec_is_a_folder_or_two_files(self, tmp_path: Path) -> None:
        (tmp_path / "dl").mkdir()
        topics, qrels = tmp_path / "dl" / "topics.tsv", tmp_path / "dl" / "qrels.txt"
        topics.write_text("51\twhat is x\n")
        qrels.write_text("51 0 d1 3\n")
        folder, two = qa(resolve_spec(str(tmp_path / "dl"))), qa(resolve_spec(f"dl={topics},{qrels}"))
        assert folder.questions == two.questions and folder.task == "retrieval"
        assert folder.source["sha256"] == two.source["sha256"]
        with pytest.raises(EvalError, match="there is no such file"):
            resolve_spec(f"dl={topics},{tmp_path / 'absent'}")

    def test_bright_is_told_from_questions_by_its_fields(self, tmp_path: Path) -> None:
        row = {"id": "0", "query": "why?", "gold_ids": ["a"], "excluded_ids": ["b"]}
        loaded = qa(DataSetSpec("biology", path=str(jsonl(tmp_path / "x.jsonl", row))))
        assert (loaded.task, loaded.source["format"]) == ("retrieval", "bright")
        assert loaded.questions[0].excluded_ids == ("b",)

    def test_questions_with_judgments_and_no_answers_are_a_retrieval_set(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "x.jsonl", ours(1, answers=[], gold_ids=["p1"]), ours(2, answers=[]))
        assert qa(DataSetSpec("mine", path=str(path))).task == "retrieval"

    def test_pairs_are_told_from_questions_and_drawn_like_them(self, tmp_path: Path) -> None:
        rows = [{"text1": f"a{i}", "text2": "b", "score": i} for i in range(30)]
        path = jsonl(tmp_path / "stsb" / "sts.test.jsonl", *rows)
        said: list[str] = []
        small = load_dataset(resolve_spec(str(path)), n=5, seed=1, say=said.append)
        large = load_dataset(resolve_spec(str(path)), n=9, seed=1)
        assert isinstance(small, PairSet) and isinstance(large, PairSet)
        assert said == ["stsb: 5 of 30 pairs, drawn with seed 1"]
        assert small.source["questions_used"] == 5 and set(small.pairs) < set(large.pairs)
        assert small.pairs == sorted(small.pairs, key=lambda pair: pair.score)


class TestHub:
    """The datasets library reads a folder as it reads a data set on the hub, so no network is needed."""

    @pytest.fixture
    def flashrag(self, tmp_path: Path) -> Path:
        folder = tmp_path / "hub"
        rows = [{"id": f"test_{i}", "question": f"q{i}?", "golden_answers": [f"a{i}"]} for i in range(4)]
        jsonl(folder / "nq" / "test.jsonl", *rows)
        jsonl(folder / "nq" / "dev.jsonl", *rows[:1])
        files = "".join(f"  - split: {split}\n    path: nq/{split}.jsonl\n" for split in ("test", "dev"))
        (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: nq\n  data_files:\n{files}---\n")
        return folder

    def test_ids_of_the_hub_get_the_sets_name_and_the_source_its_facts(self, flashrag: Path) -> None:
        spec = DataSetSpec("nq", hub=str(flashrag), subset="nq", split="test", count=4)
        loaded = qa(spec)
        assert [q.id for q in loaded.questions] == ["nq:test_0", "nq:test_1", "nq:test_2", "nq:test_3"]
        assert loaded.questions[3].answers == ("a3",) and loaded.rule == "squad"
        assert (loaded.source["hub"], loaded.source["subset"], loaded.source["split"]) == (str(flashrag), "nq", "test")
        assert "file" not in loaded.source and loaded.source["questions_in_file"] == 4
        with pytest.raises(EvalError, match="has 4 rows, but should have 3,610"):
            load_dataset(replace(spec, count=3610))
        with pytest.raises(EvalError, match=r"several splits \((test, dev|dev, test)\): set split"):
            load_dataset(replace(spec, split=""))

    def test_a_path_wins_over_the_hub(self, flashrag: Path, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "x.jsonl", ours(1))
        spec = DataSetSpec("nq", path=str(path), hub=str(flashrag), subset="nq", split="test")
        assert [q.id for q in qa(spec).questions] == ["q1"]

    def test_content_is_remembered_and_other_content_refused(self, flashrag: Path, tmp_path: Path) -> None:
        spec = DataSetSpec("nq", hub=str(flashrag), subset="nq", split="test")
        locks = tmp_path / "data" / "locks"
        first = qa(spec, locks=locks, n=1)
        assert qa(spec, locks=locks).source["sha256"] == first.source["sha256"], "of the whole set, not of the draw"
        entry = json.loads((locks / LOCK_FILE).read_text())[f"{flashrag}:nq:test:nq:{{}}"]
        assert (entry["sha256"], entry["rows"]) == (first.source["sha256"], 4)
        qa(replace(spec, split="dev"), locks=locks)
        path = flashrag / "nq" / "test.jsonl"
        path.write_text(path.read_text().replace('"a3"', '"changed"'))
        with pytest.raises(EvalError, match=f"not what it was when first loaded .sha256 {entry['sha256']}, now"):
            load_dataset(spec, locks=locks)
        assert qa(spec).questions[3].answers == ("changed",), "without a folder nothing is remembered"
        (locks / LOCK_FILE).write_text("{torn")
        with pytest.raises(EvalError, match="invalid JSON"):
            load_dataset(spec, locks=locks)

    def test_mtebs_three_configurations_are_a_retrieval_set(self, tmp_path: Path) -> None:
        folder = tmp_path / "scifact"
        jsonl(folder / "queries.jsonl", {"_id": "1", "text": "a?"}, {"_id": "2", "text": "b?"})
        jsonl(folder / "qrels" / "test.jsonl", {"query-id": "1", "corpus-id": "d", "score": 1.0})
        (folder / "README.md").write_text(
            "---\nconfigs:\n"
            "- config_name: default\n  data_files:\n  - split: test\n    path: qrels/test.jsonl\n"
            "- config_name: queries\n  data_files:\n  - split: queries\n    path: queries.jsonl\n---\n"
        )
        loaded = qa(DataSetSpec("mine", hub=str(folder), split="test"))
        assert (loaded.task, loaded.source["format"], loaded.rule) == ("retrieval", "beir", None)
        assert [(q.id, q.qrels) for q in loaded.questions] == [("1", {"d": 1})], "ids stay those of the judgments"

    def test_pairs_and_mapped_columns_are_read_from_the_hub_too(self, tmp_path: Path) -> None:
        jsonl(tmp_path / "sts" / "test.jsonl", {"sentence1": "a", "sentence2": "b", "score": 2.5, "genre": "x"})
        loaded = load_dataset(DataSetSpec("mine", hub=str(tmp_path / "sts"), split="test"))
        assert isinstance(loaded, PairSet) and loaded.pairs == [Pair("a", "b", 2.5)]
        jsonl(
            tmp_path / "m" / "validation.jsonl", {"id": "h", "question": "q?", "answer": "a", "answer_aliases": ["b"]}
        )
        columns = {"answers": "answer", "aliases": "answer_aliases"}
        mapped = qa(DataSetSpec("musique", hub=str(tmp_path / "m"), split="validation", columns=columns))
        assert (mapped.questions[0].id, mapped.questions[0].answers) == ("musique:h", ("a", "b"))

    def test_a_damaged_file_and_a_missing_column_name_set_and_row(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "set" / "test.jsonl", {"id": "1", "query": "q?"})
        spec = DataSetSpec("mine", hub=str(path.parent), split="test")
        with pytest.raises(EvalError, match=r'mine: .*set, test, row 1: "answers" .* is missing; to use a file'):
            load_dataset(spec)
        path.write_text('{"id": "1"}\n{"id"')
        with pytest.raises(EvalError, match="stopped after row"):
            load_dataset(spec)

    def test_without_a_hub_the_message_says_what_to_give_instead(self, tmp_path: Path, monkeypatch: Any) -> None:
        import datasets.config
        import huggingface_hub.constants

        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        for name, wanted in {"nq": "golden_answers", "scifact": "BEIR folder", "sick": "text1, text2, score"}.items():
            with pytest.raises(EvalError) as caught:
                load_dataset(DataSetSpec(name))
            text = str(caught.value)
            assert f"to use a file: magrag eval {name}=PATH" in text and wanted in text and "\n" not in text

    def test_a_known_sets_format_cannot_be_another(self) -> None:
        with pytest.raises(EvalError, match="has the format beir, not pairs"):
            load_dataset(DataSetSpec("scifact", format="pairs"))
