"""Whose norms stand behind whose in a run's report: a sample of the corpus for each encoder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from eval.data.datasets import Question
from eval.report.html.norms import norms_html
from eval.view import CORPUS, RunView
from rag_app.config import load_config
from rag_app.evaluate import run
from rag_app.experiment import open_experiment
from retriever.index import Index
from tests.random_bert import random_bert, some_texts
from tests.run_folders import row, write_run

SYSTEMS = ["cosine k=3", "qnorm k=3", "bm25 k=3", "closed-book"]
# By retriever, the norms of the passages ranked first; one encoder is far from the other.
FIRSTS = {"cosine k=3": [1.0, 2.0, 1.5], "qnorm k=3": [40.0, 60.0, 50.0], "bm25 k=3": [1.2, 1.4, 1.3]}
ONE: dict[str, Any] = {"words": [5, 50, 500], "norms": [1.1, 1.7, 1.9]}
OTHER: dict[str, Any] = {"words": [6, 60, 600], "norms": [41.0, 58.0, 52.0]}
CONFIG = {
    "eval": {"retrievers": ["cosine", "qnorm", "bm25", "closed-book"]},
    "retrievers": {
        "cosine": {"encoder": "a"},
        "qnorm": {"encoder": "b"},
        "bm25": {"kind": "hybrid", "encoder": "x", "of": ["cosine", "qnorm"]},
    },
}


def _shown(tmp_path: Path, facts: dict[str, Any], **changes: Any) -> tuple[dict[str, str], list[list[str]]]:
    """The chart by system, and the rows of the table."""
    questions = [Question(f"q{at}", "nq", f"who {at}?", ("x",)) for at in range(3)]
    rows = [
        row(system, questions[at].id, "x", "p1" if norms else "", percentiles=[10 * norms[at]] if norms else [])
        for system in SYSTEMS
        for at in range(3)
        for norms in [FIRSTS.get(system, [])]
    ]
    write_run(tmp_path / "run", questions, SYSTEMS, rows, **changes)
    (tmp_path / "run" / CORPUS).write_text(json.dumps({"nq": facts}))
    html = norms_html(RunView.open(tmp_path / "run"), "nq", SYSTEMS)
    charts = dict(re.findall(r"<figcaption>(.*?)</figcaption>(<svg.*?</svg>)", html))
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in re.findall(r"<tr>.*?</tr>", html)]
    return charts, cells


def _marks(chart: str) -> list[float]:
    return [float(mark) for mark in re.findall(r'text-anchor="end">([\d.]+)<', chart)]


def test_each_encoder_has_its_own_sample_and_each_chart_its_own_axis(tmp_path: Path) -> None:
    samples = [{"retrievers": ["cosine", "bm25"], **ONE}, {"retrievers": ["qnorm"], **OTHER}]
    charts, rows = _shown(tmp_path, {"answerable": None, "samples": samples})
    assert list(charts) == list(FIRSTS) and all('class="cloud"' in chart for chart in charts.values())
    assert max(_marks(charts["cosine k=3"])) < 3 and min(_marks(charts["qnorm k=3"])) > 30
    medians = {cells[0]: float(cells[2]) for cells in rows[1:]}
    assert medians == {
        "corpus sample (cosine k=3, bm25 k=3)": median(ONE["norms"]),
        "corpus sample (qnorm k=3)": median(OTHER["norms"]),
        **{name: median(norms) for name, norms in FIRSTS.items()},
    }


def test_the_one_sample_of_an_earlier_run_stands_behind_its_own_retrievers(tmp_path: Path) -> None:
    old = {"answerable": None, **ONE}
    charts, rows = _shown(tmp_path / "told", old, config=CONFIG)
    assert [name for name, chart in charts.items() if "cloud" in chart] == ["cosine k=3", "bm25 k=3"]
    assert rows[1][0] == "corpus sample (cosine k=3, bm25 k=3)"
    # Where nobody says which encoder that was, it is the first retriever's.
    charts, rows = _shown(tmp_path / "untold", old)
    assert [name for name, chart in charts.items() if "cloud" in chart] == ["cosine k=3"]
    assert [cells[0] for cells in rows[1:]] == ["corpus sample (cosine k=3)", *FIRSTS]


def test_a_run_notes_a_sample_of_every_encoder_that_is_searched(tmp_path: Path) -> None:
    passages = some_texts(20)
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"id": str(at), "text": own}) + "\n" for at, own in enumerate(passages))
    )
    (tmp_path / "asked.jsonl").write_text(json.dumps({"id": "q", "question": "old tower", "answers": ["tower"]}) + "\n")
    tables = "".join(
        f'[encoders.{name}]\nmodel = "{tmp_path / name}"\n[retrievers.{name}]\nkind = "dense"\nencoder = "{name}"\n'
        for name in ("one", "two")
    )
    for seed, name in enumerate(("one", "two")):
        random_bert(tmp_path / name, seed=seed).save(str(tmp_path / name))
    (tmp_path / "run.toml").write_text(
        f'corpus = "{tmp_path}/corpus.jsonl"\ndata_dir = "{tmp_path}/data"\n{tables}'
        '[retrievers.bm25]\nencoder = "two"\n[retrievers.both]\nkind = "hybrid"\nof = ["two", "bm25"]\n'
        '[eval]\nread = false\nretrievers = ["one", "two", "bm25", "both"]\n'
        f'[eval.datasets.asked]\npath = "{tmp_path}/asked.jsonl"\n'
    )
    config = load_config(tmp_path / "run.toml", environ={})
    view = RunView.open(run(config, open_experiment(config, [], print), tmp_path / "out", log=print).path)
    samples = view.corpora["asked"].samples
    assert [sample.retrievers for sample in samples] == [["one"], ["two", "bm25", "both"]]
    for folder in (tmp_path / "data").rglob("manifest.json"):
        index = Index(folder.parent)
        [own] = [sample for sample in samples if np.allclose(sample.norms, index.norms())]
        assert own.words == [len(index.passage(at).text.split()) for at in range(len(index))]
