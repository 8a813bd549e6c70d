"""Evaluation runs: right figures, and everything a run notes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from eval.base import RankedPassage, Record
from eval.data.datasets import Question
from eval.data.pairs import Pair
from eval.data.sources import DataSet, PairSet
from eval.errors import EvalError
from eval.folder import RunFolder
from eval.publish import publish
from eval.report.latex import latex_tables
from eval.run import RunResult, run_evaluation
from eval.view import CorpusFacts, CorpusSample, PairScore, RunView
from tests.scripted import QUESTIONS, Scripted, closed_book, cosine, cut_lines, lines_of, passages, run, sets


def test_figures_are_those_computed_by_hand(tmp_path: Path) -> None:
    metrics = run(tmp_path, closed_book(), cosine()).metrics
    own = {(m.system, m.dataset): m for m in metrics.systems}
    assert list(own) == [("closed", "nq"), ("cosine", "nq"), ("closed", "hotpotqa"), ("cosine", "hotpotqa")]

    closed = own["closed", "nq"]
    # "paris." is right; "" against "The The" is an empty match (EM 1, F1 0); "Emma" and "Saturn" are wrong.
    assert (closed.n, closed.missing, closed.em, closed.f1, closed.empty_matches) == (4, 0, 50.0, 25.0, 1)
    assert (closed.rule, closed.k, closed.hit, closed.recall_gold, closed.recall_supporting) == (
        "squad",
        0,
        None,
        None,
        None,
    )
    assert (closed.answer_words, closed.gold_words, closed.prompt_tokens) == (0.75, 1.5, 10.0)

    open_book = own["cosine", "nq"]
    # q1 contains Paris but isn't equal (F1 of "it is paris": 1/2); q2 and q4 are right; q3 ended in an error.
    assert (open_book.n, open_book.missing, open_book.em, open_book.f1) == (4, 1, 50.0, 62.5)
    assert (open_book.contains, open_book.empty_matches, open_book.dropped, open_book.k) == (75.0, 0, 3, 2)
    # Answer strings: q1 at 2, q2 at 1, q3 at 1 (its retrieval went well), q4 nowhere.
    assert open_book.hit == [50.0, 75.0]
    assert (open_book.recall_gold, open_book.recall_gold_n) == ([50.0, 100.0], 2)  # q1: 0, 1; q2: 1, 1
    assert (open_book.recall_supporting, open_book.recall_supporting_n) == ([0.0, 25.0], 2)  # q1: 0, 1/2; q3: 0, 0
    assert (open_book.answer_words, open_book.prompt_tokens) == (5 / 3, 30.0)

    hotpot = own["closed", "hotpotqa"]
    assert (hotpot.rule, hotpot.em, hotpot.f1, hotpot.em_interval) == ("hotpotqa", 0.0, 0.0, None)
    assert own["cosine", "hotpotqa"].recall_supporting == [50.0, 50.0]

    by_name = {(c.dataset, c.measure): c for c in metrics.comparisons}
    assert list(by_name) == [("nq", "EM"), ("nq", "F1"), ("hotpotqa", "EM"), ("hotpotqa", "F1")]
    # closed right: q1, q3; cosine right: q2, q4.
    nq = by_name["nq", "EM"]
    assert (nq.baseline, nq.system, nq.n, nq.wins, nq.losses, nq.ties) == ("closed", "cosine", 4, 2, 2, 0)
    assert (nq.difference, nq.p) == (0.0, 1.0)
    assert nq.interval is not None and nq.interval[0] < 0 < nq.interval[1]
    other = by_name["hotpotqa", "EM"]
    assert (other.difference, other.interval, other.wins, other.p) == (100.0, None, 1, None)


def test_the_folder_holds_configuration_rows_metrics_and_report(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    result = run_evaluation(
        sets(sha256="ab", subset_seed=None),
        [closed_book(), cosine()],
        tmp_path / "run",
        batch_size=2,
        config={"k": 2, "model": {"name": "m"}},
        seed=7,
        measures=["R@2"],
        facts={"prompt_sha256": {"": "cd"}},
        corpus_facts=lambda dataset: CorpusFacts({"q4": False}, [CorpusSample(["cosine"], [3, 5], [1.0, 2.0])]),
        progress=lambda done, total: seen.append((done, total)),
    )
    folder = tmp_path / "run"
    assert result.path == folder and (result.kept, result.computed) == (0, 10)
    assert seen == [(done, 10) for done in range(11)]

    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["config"] == {"k": 2, "model": {"name": "m"}}
    assert manifest["systems"] == {"closed": "v1", "cosine": "v1"}
    assert (manifest["seed"], manifest["batch_size"], manifest["questions"]) == (7, 2, 5)
    facts = {"task": "qa", "lang": "", "sha256": "ab", "subset_seed": None}
    assert manifest["datasets"] == {"nq": facts | {"rule": "squad"}, "hotpotqa": facts | {"rule": "hotpotqa"}}
    assert (manifest["measures"], manifest["prompt_sha256"]) == (["R@2"], {"": "cd"})
    environment = manifest["environment"]
    assert environment["python"] == ".".join(map(str, sys.version_info[:3]))
    assert environment["packages"]["numpy"] == np.__version__
    assert "cores" in environment["hardware"]

    rows = lines_of(folder)
    assert [(row["system"], row["id"]) for row in rows] == [(s, q.id) for s in ("closed", "cosine") for q in QUESTIONS]
    factors = {"cosine": 0.5, "norm": 2.0, "percentile": None}
    assert rows[5] == {
        "system": "cosine",
        "id": "q1",
        "prediction": "It is Paris",
        "error": None,
        "k": 2,
        "dropped": 1,
        "cut": False,
        "prompt_tokens": 30,
        "passages": [
            {"rank": 1, "id": "p9", "title": "", "has_answer": False, "score": 1.0, "words": 1} | factors,
            {"rank": 2, "id": "p1", "title": "", "has_answer": True, "score": 0.5, "words": 2} | factors,
        ],
        "seconds": {"encode": 0.2},
    }
    assert rows[7]["error"] == "prompt too long" and rows[7]["passages"][0]["has_answer"] is True

    assert json.loads((folder / "metrics.json").read_text()) == json.loads(json.dumps(result.metrics.to_json()))
    # q1: p1 of {p1, p2}; q3: none of {p9}; q2 by its gold passage p3.
    assert result.metrics.systems[1].measures["R@2"].value == pytest.approx((1 / 2 + 1 + 0) / 3)
    report = (folder / "report.md").read_text()
    for part in (
        "nq (n = 4, rule squad)",
        "questions without an answer: 1 of 4; they count 0",
        "| cosine | - | 0.300 |",
    ):
        assert part in report, part
    assert "without an answer: 1 of 4" in result.table and "|" not in result.table
    assert "<table" in (folder / "report.html").read_text()
    assert sorted(path.name for path in (folder / "trec").iterdir()) == [
        "hotpotqa.cosine.run",
        "hotpotqa.qrels",
        "nq.cosine.run",
        "nq.qrels",
    ]
    view = RunView.open(folder)
    assert view.questions == QUESTIONS and list(view.rows.values()) == rows
    assert view.answerable == {"q4": False} and view.rules == {"nq": "squad", "hotpotqa": "hotpotqa"}


def test_rows_hold_plain_json_whatever_number_types_a_system_uses(tmp_path: Path) -> None:
    plain = RankedPassage(1, "p1", "t", "Paris", float(np.float32(0.5)))
    odd = RankedPassage(2, "p2", "", "x", *np.array([0.25, float("nan"), 3], dtype=np.float32))
    record = Record("q1", "half \ud83d", [plain, odd], seconds={"encode": np.float64(1)})
    run_evaluation(sets(QUESTIONS[:1]), [Scripted("s", {"q1": record})], tmp_path / "run")
    row = lines_of(tmp_path / "run")[0]
    assert row["prediction"] == "half ?"
    assert [(p["score"], p["cosine"], p["norm"]) for p in row["passages"]] == [(0.5, None, None), (0.25, None, 3.0)]
    nameless = Record("q1", "", [RankedPassage(1, "p1", "", "x", float("nan"))])
    with pytest.raises(EvalError, match="system 's' gave passage 'p1' of question 'q1' no finite score"):
        run_evaluation(sets(QUESTIONS[:1]), [Scripted("s", {"q1": nameless})], tmp_path / "other")


def test_answers_are_matched_by_id_and_a_question_without_record_is_an_error(tmp_path: Path) -> None:
    class Careless(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            return [record for record in reversed(list(super().answer(batch, found))) if record.id != "q2"]

    result = run(tmp_path, Careless("cosine", cosine().records))
    rows = {row["id"]: row for row in lines_of(tmp_path / "run")}
    assert rows["q4"]["prediction"] == "Jupiter" and list(rows) == ["q1", "q2", "q4", "q3", "q5"]
    assert rows["q2"]["error"] == "the system gave no record for this question"
    assert result.metrics.systems[0].missing == 2


@pytest.mark.parametrize(("extra", "fault"), [("q1", "'q1' twice"), ("zz", "'zz' without being asked")])
def test_a_record_too_many_ends_the_run(tmp_path: Path, extra: str, fault: str) -> None:
    class Chatty(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            yield from super().answer(batch, found)
            yield Record(extra, "more")

    with pytest.raises(EvalError, match=f"system 'cosine' answered {fault}"):
        run(tmp_path, Chatty("cosine", cosine().records))
    assert [row["id"] for row in lines_of(tmp_path / "run")] == ["q1", "q2"]


def test_runs_that_make_no_sense_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for datasets, systems, settings, message in (
        ([], [cosine()], {}, "no questions"),
        ([DataSet("empty", "qa", [], "squad", "", {})], [cosine()], {}, "data set 'empty' holds no questions"),
        (sets(), [], {}, "no systems"),
        (sets(), [cosine()], {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (sets(), [cosine(), cosine()], {}, "system 'cosine' is there twice"),
        (sets() + sets()[:1], [cosine()], {}, "data set 'nq' is there twice"),
        (sets(QUESTIONS + QUESTIONS[:1]), [cosine()], {}, "question id 'q1' is there twice"),
        (sets(), [cosine()], {"measures": ["nDGC@10"]}, "nDGC@10"),
        (sets(), [cosine()], {"config": {"x": {1, 2}}}, "plain JSON values"),
    ):
        with pytest.raises(EvalError, match=message):
            run_evaluation(datasets, systems, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_answers_far_longer_than_golds_are_warned_of(tmp_path: Path) -> None:
    rambling = Scripted("s", {q.id: Record(q.id, "well I think that the answer may be Paris") for q in QUESTIONS})
    result = run_evaluation(sets(QUESTIONS[:4]), [rambling], tmp_path / "run")
    assert "answers have 9.0 words, the longest golds 1.5" in result.table


def test_evaluation_needs_no_torch() -> None:
    code = (
        "import sys, eval.run, eval.score, eval.compare, eval.runs, eval.publish;"
        "heavy = {'torch', 'transformers', 'datasets', 'vllm', 'gradio', 'scipy', 'pandas'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_answers_that_change_in_other_batches_are_counted_and_said(tmp_path: Path) -> None:
    class Moody(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            for record in super().answer(batch, found):
                yield Record(record.id, "London") if fresh and record.id == "q1" else record

    steady, moody = cosine(), Moody("moody", cosine().records, reader="other")
    steady.reader = "one"
    table = run(tmp_path, steady, moody, recheck=3).table
    assert steady.asked[3:] == [["q3"], ["q2"], ["q1"]]
    assert "reader one: 3 questions of cosine were asked again in other batches; all answers were the same." in table
    assert "reader other: 3 questions of moody were asked again in other batches; 1 answers differ (q1)" in table

    class Failing(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            for record in super().answer(batch, found):
                yield Record(record.id, "", error="server down") if fresh else record

    # A failure is no other answer.
    failing = Failing("failing", cosine().records, reader="third")
    failed = run_evaluation(sets(), [failing], tmp_path / "failing", recheck=3).table
    assert "3 questions of failing were asked again in other batches; all answers were the same." in failed
    steady.asked.clear()
    assert run(tmp_path, steady, moody, recheck=3).table == table and steady.asked == []


def test_a_retrieval_set_is_ranked_by_those_who_rank_and_read_by_nobody(tmp_path: Path) -> None:
    class Reader(Scripted):
        def asks(self, dataset: str) -> bool:
            return dataset != "scifact"

    judged = [
        Question("s1", "scifact", "a claim", (), qrels={"p1": 2, "p2": 1}),
        Question("s2", "scifact", "b", (), qrels={"p9": 1}),
    ]
    ranking = {
        "s1": Record("s1", "", passages(("p2", ""), ("p1", ""))),
        "s2": Record("s2", "", passages(("p3", ""), ("p9", ""))),
    }
    result = run_evaluation(
        [*sets(), DataSet("scifact", "retrieval", judged, None, "", {})],
        [Scripted("ranker", cosine().records | ranking), Reader("closed", closed_book().records)],
        tmp_path / "run",
        measures=["nDCG@10", "RR@10"],
    )
    [own] = [own for own in result.metrics.systems if own.dataset == "scifact"]
    assert (own.system, own.task, own.n, own.em, own.causes) == ("ranker", "retrieval", 2, None, None)
    # s1: gains 1 and 2 at ranks 1 and 2 against the ideal 2 and 1; s2: the one relevant passage at rank 2.
    first = (1 + 2 / np.log2(3)) / (2 + 1 / np.log2(3))
    assert own.measures["nDCG@10"].value == pytest.approx((first + 1 / np.log2(3)) / 2)
    assert own.measures["RR@10"].value == pytest.approx((1 + 1 / 2) / 2)


def test_sentence_pairs_stand_in_the_figures_and_a_refusal_in_the_notes(tmp_path: Path) -> None:
    scores = [
        PairScore("stsb", "cosine", 10, 0.82, (0.8, 0.84)),
        PairScore("stsb", "dot", 10, 0.5, (0.4, 0.6), "", "cosine", -0.32, (-0.4, -0.3)),
        PairScore("stsb", "qnorm", 10, None, None, "one-sided"),
    ]
    sets_of_pairs = [PairSet("stsb", [Pair("a", "b", 1.0)] * 10, {"sha256": "ef"})]
    result = run(tmp_path, cosine(), pair_sets=sets_of_pairs, score_pairs=lambda: scores)
    own, _ = [own for own in result.metrics.systems if own.dataset == "stsb"]
    assert (own.task, own.n, own.measures["Spearman"].value) == ("sts", 10, 0.82)
    [pair] = [pair for pair in result.metrics.comparisons if pair.dataset == "stsb"]
    assert (pair.measure, pair.difference, pair.interval, pair.p) == ("Spearman", -0.32, (-0.4, -0.3), None)
    # No pair is won or lost: a correlation is of all of them.
    assert (pair.wins, pair.ties, pair.losses) == (None, None, None)
    assert re.search(r"dot - cosine +Spearman +none +10 +-0\.32\S* \[.*?\](?: +-){5}", result.table)
    html = (result.path / "report.html").read_text("utf-8")
    assert html.count('<td class="figure">-</td>') >= 5
    assert RunView.open(result.path).manifest["datasets"]["stsb"]["task"] == "sts"
    assert "stsb: qnorm was refused: one-sided" in result.table and "0.82" in result.table


def test_pairs_alone_are_an_evaluation_and_other_pairs_are_another_run(tmp_path: Path) -> None:
    def score(sha256: str) -> RunResult:
        pairs = [PairSet("stsb", [Pair("a", "b", 1.0)] * 10, {"sha256": sha256})]
        scores = [PairScore("stsb", "cosine", 10, 0.82, (0.8, 0.84))]
        return run_evaluation([], [], tmp_path / "run", pair_sets=pairs, score_pairs=lambda: scores)

    assert [own.measures["Spearman"].value for own in score("ef").metrics.systems] == [0.82]
    with pytest.raises(EvalError, match='datasets.stsb.sha256 was "ef", now "00"'):
        score("00")
    for name in ("pairs.json", "metrics.json"):
        (tmp_path / "run" / name).unlink()
    with RunFolder.existing(tmp_path / "run") as folder:
        _, table = publish(folder)
    assert "UNFINISHED: sentence pairs that were not scored: stsb." in table
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert [own.measures["Spearman"].value for own in score("ef").metrics.systems] == [0.82]


def test_an_unfinished_run_is_published_as_what_it_is(tmp_path: Path) -> None:
    run(tmp_path, cosine())
    cut_lines(tmp_path / "run", 3)
    (tmp_path / "run" / "metrics.json").unlink()
    with RunFolder.existing(tmp_path / "run") as folder:
        metrics, table = publish(folder)
    assert "UNFINISHED: 3 of 5 answers are there; the others count 0 in every figure." in table
    assert metrics.systems[0].missing == 2 and not (tmp_path / "run" / "metrics.json").exists()
    assert "UNFINISHED" in (tmp_path / "run" / "report.md").read_text()
    html = (tmp_path / "run" / "report.html").read_text()
    assert html.index("UNFINISHED") < html.index('id="overview"')
    assert latex_tables(metrics).count("UNFINISHED RUN.") == latex_tables(metrics).count("\\caption")


def test_exported_rankings_carry_the_data_sets_own_ids(tmp_path: Path) -> None:
    renamed = [question.renamed() for question in QUESTIONS[:2]]
    ranked = {q.id: Record(q.id, "x", passages(("p1", "Paris"), ("p3", "x")), k=2) for q in renamed}
    run_evaluation(sets(renamed), [Scripted("cosine", ranked)], tmp_path / "run")
    lines = (tmp_path / "run" / "trec" / "nq.cosine.run").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["q1", "q1", "q2", "q2"] and renamed[0].id == "nq:q1"
    assert [line.split()[0] for line in (tmp_path / "run" / "trec" / "nq.qrels").read_text().splitlines()] == [
        "q1",
        "q1",
        "q2",
    ]
