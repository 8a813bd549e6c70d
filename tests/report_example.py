"""A run that nobody made: seeded questions, rankings and answers, for the report's tests and pictures.

python -m tests.report_example report.html --systems 8 --datasets 12
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.datasets import Question
from eval.report.html import html_report
from eval.summary import Metrics, summarise
from eval.view import CorpusFacts, CorpusSample, RunView

SYSTEMS = ("cosine", "qnorm", "bm25", "closed-book", "learnable", "cosine + rerank", "hybrid (bm25, qnorm), RRF k = 60",
           "contriever-magnitude-finetuned-qnorm-iterative")  # fmt: skip
DATASETS = ("nq", "hotpotqa", "scifact", "triviaqa", "musique", "2wikimultihopqa", "squad_v2", "webquestions",
            "curatedtrec", "popqa", "nfcorpus", "a-data-set-with-a-rather-long-name")  # fmt: skip
RETRIEVAL = frozenset({"scifact", "nfcorpus"})
MEASURES = ("nDCG@10", "R@10", "RR@10", "AP")
HOSTILE = (
    """<script>alert(1)</script></script><img src=x onerror=alert(2)> "quoted" 'too' & &amp; <!-- \u202eleft שלום"""
)
_RULES = {"hotpotqa": "hotpotqa", "musique": "musique", "2wikimultihopqa": "2wikimultihopqa", "squad_v2": "squad_v2"}
_PEOPLE = (
    "Ada Lovelace",
    "James Watt",
    "Marie Curie",
    "Nikola Tesla",
    "Emmy Noether",
    "Alan Turing",
    "Rosalind Franklin",
)
_PLACES = ("Paris", "Cambridge", "Göttingen", "Smiljan", "Warsaw", "Greenock", "Princeton, New Jersey")
_ASKED = ("Where was {} born?", "In which city did {} first publish?", "Which town has a statue of {}, and since when?")


def example(*, systems: int = 5, datasets: int = 3, n: int = 120, depth: int = 20, seed: int = 7) -> RunView:
    """A run of the first so many systems on the first so many data sets, n questions each."""
    rng = np.random.default_rng(seed)
    names, sets = SYSTEMS[:systems], DATASETS[:datasets]
    questions: list[Question] = []
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    corpora: dict[str, CorpusFacts] = {}
    for dataset in sets:
        words = np.clip(rng.lognormal(4.3, 0.6, 2500), 3, 900).astype(int)
        norms = 2.6 - 0.25 * np.log(words) + rng.normal(0, 0.15, len(words))
        own = [_question(dataset, at, rng) for at in range(n)]
        questions += own
        found = {} if dataset in RETRIEVAL else {q.id: bool(rng.random() < 0.95) for q in own}
        sample = CorpusSample(list(names), words.tolist(), [round(float(norm), 4) for norm in norms])
        corpora[dataset] = CorpusFacts(found or None, [sample])
        for place, system in enumerate(names):
            if system == "closed-book" and dataset in RETRIEVAL:
                continue
            for question in own:
                rows[system, question.id] = _row(system, place, question, depth, words, norms, rng)
    manifest = {
        "format": 2,
        "started": "2026-11-30T09:30:00+00:00",
        "command": "magrag eval --config configs/gpu.toml --out runs/example",
        "config": {"decoding": {"max_tokens": 32, "temperature": 0.0}},
        "systems": {name: f"{rng.integers(16**8):08x}" for name in names},
        "baseline": names[0],
        "datasets": {
            name: {"task": "retrieval" if name in RETRIEVAL else "qa", "rule": rule(name), "lang": "en",
                   "corpus": f"wiki-{name}", "index": f"{rng.integers(16**8):08x}", "file": f"{name}.jsonl",
                   "sha256": "ab" * 32, "questions_in_file": 3610, "questions_used": n, "subset_seed": seed}
            for name in sets
        },
        "questions": len(questions),
        "questions_sha256": "cd" * 32,
        "measures": list(MEASURES),
        "seed": seed,
        "batch_size": 32,
        "prompt_sha256": {"system": "ef" * 32},
        "environment": {"python": "3.11.9", "platform": "Linux-6.1-x86_64", "hardware": "AMD EPYC, 16 cores, NVIDIA H200",
                        "packages": {"magrag": "0.1.0", "torch": "2.13.0", "vllm": "0.32.0"},
                        "git": {"commit": "ab8d2a4" + "0" * 33, "changed": True}},
    }  # fmt: skip
    return RunView(Path("runs/example"), manifest, questions, rows, corpora)


def hostile() -> RunView:
    """A run in which everything that a person or a model writes is markup."""
    view = example(systems=3, datasets=1, n=20)
    rename = {name: f"{name} {HOSTILE}" for name in view.systems}
    view.manifest["systems"] = {rename[name]: "1" for name in view.systems}
    view.manifest["command"] = HOSTILE
    questions = [replace(q, question=f"{q.id} {HOSTILE}", answers=(HOSTILE,)) for q in view.questions]
    rows = {}
    for number, ((name, id), row) in enumerate(view.rows.items()):
        passages = [{**passage, "title": f"{passage['id']} {HOSTILE}"} for passage in row["passages"]]
        said = {"prediction": HOSTILE if number % 3 else f"no {HOSTILE}", "error": None, "passages": passages}
        rows[rename[name], id] = {**row, **said, "system": rename[name]}
    rows[rename["qnorm"], "nq-0"]["error"] = HOSTILE
    return replace(view, questions=questions, rows=rows)


def rule(dataset: str) -> str | None:
    """The rule under which the example scores a data set."""
    return None if dataset in RETRIEVAL else _RULES.get(dataset, "squad")


def measured(view: RunView) -> Metrics:
    """Its figures."""
    return summarise(view.questions, view.systems, view.rows, view.rules, view.manifest["seed"],
                     measures=view.manifest["measures"], answerable=view.answerable)  # fmt: skip


def _question(dataset: str, at: int, rng: np.random.Generator) -> Question:
    person = _PEOPLE[int(rng.integers(len(_PEOPLE)))]
    asked = _ASKED[int(rng.integers(len(_ASKED)))].format(person)
    ids = tuple(f"{dataset}-p{at}-{rank}" for rank in (1, 2))
    if dataset in RETRIEVAL:
        return Question(f"{dataset}-{at}", dataset, asked, (), qrels={ids[0]: 2, ids[1]: 1})
    gold = _PLACES[int(rng.integers(len(_PLACES)))]
    return Question(f"{dataset}-{at}", dataset, asked, (gold, f"{gold} (city)"), ids[:1], ids)


def _row(
    system: str, place: int, question: Question, depth: int, words: Any, norms: Any, rng: np.random.Generator
) -> dict[str, Any]:
    closed, read = system == "closed-book", bool(question.answers)
    passages = []
    if not closed:
        wanted = {
            int(rank): id for rank, id in zip(rng.geometric(0.12 + 0.03 * place, 2), _marked(question), strict=True)
        }
        drawn = rng.integers(len(words), size=depth)
        if "qnorm" in system:
            drawn = np.maximum.reduce([drawn, drawn]) if rng.random() < 0.3 else drawn[np.argsort(-norms[drawn])]
        for rank in range(1, depth + 1):
            norm, id = float(norms[drawn[rank - 1]]), wanted.get(rank, f"{question.dataset}-x{drawn[rank - 1]}")
            vectors = system != "bm25"
            passages.append({
                "rank": rank, "id": id, "title": f"{_PEOPLE[drawn[rank - 1] % 7]} ({drawn[rank - 1]})",
                "has_answer": rank in wanted and read, "score": round(1.4 / (rank + 1), 6),
                "cosine": 0.5 if vectors else None, "norm": round(norm, 5) if vectors else None,
                "percentile": round(100 * float((norms <= norm).mean()), 2) if vectors else None,
                "words": int(words[drawn[rank - 1]]),
            })  # fmt: skip
    k = 5 if read and not closed else 0
    helped = any(passage["has_answer"] for passage in passages[:k])
    right = read and rng.random() < (0.62 + 0.02 * place if helped else 0.18)
    prediction = ""
    if read:
        prediction = question.answers[0] if right else _PLACES[int(rng.integers(len(_PLACES)))]
        prediction = prediction.replace("ö", "o") if rng.random() < 0.5 else prediction
    error = "the prompt is longer than the model's context" if rng.random() < 0.01 else None
    dropped = int(rng.integers(0, 3)) if k and rng.random() < 0.1 else 0
    return {"system": system, "id": question.id, "prediction": "" if error else prediction, "error": error, "k": k,
            "dropped": dropped, "cut": False, "prompt_tokens": 700 if k else 40, "passages": passages,
            "seconds": {"encode": 0.01, "search": 0.02, "generate": 0.2} if read else {"search": 0.02}}  # fmt: skip


def _marked(question: Question) -> tuple[str, ...]:
    return question.supporting_ids or tuple(question.qrels)


def main() -> None:
    """Write its report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for name, default in (("systems", 5), ("datasets", 3), ("n", 120)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    view = example(systems=options.systems, datasets=options.datasets, n=options.n)
    options.out.write_text(html_report(view, measured(view)), encoding="utf-8")


if __name__ == "__main__":
    main()
