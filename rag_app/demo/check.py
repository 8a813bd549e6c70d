"""Checks the demo corpus: every answer stands in its gold passage and no id dangles.

Run it with `python -m rag_app.demo.check`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from rag_app.demo import PASSAGES, QUESTIONS

KINDS = ("trivia", "search", "multihop", "unanswerable")


def find_faults(passages: list[dict[str, Any]], questions: list[dict[str, Any]]) -> list[str]:
    """One line for each fault; empty when the corpus is sound."""
    faults = [f"id {id_!r} is used {n} times" for id_, n in _ids(passages, questions).items() if n > 1]
    texts = {p["id"]: f"{p['title']}\n{p['text']}" for p in passages}
    for passage in passages:
        words = len(passage["text"].split())
        if not 20 <= words <= 250:
            faults.append(f"{passage['id']}: {words} words; a passage has 20 to 250")
    for text, n in Counter(p["text"] for p in passages).items():
        if n > 1:
            faults.append(f"{n} passages have the text {text[:40]!r}")
    for text, n in Counter(q["question"].lower() for q in questions).items():
        if n > 1:
            faults.append(f"{n} questions ask {text[:40]!r}")
    for question in questions:
        faults += [f"{question['id']}: {fault}" for fault in _question_faults(question, texts)]
    return faults


def _ids(passages: list[dict[str, Any]], questions: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["id"] for row in passages + questions)


def _question_faults(question: dict[str, Any], texts: dict[str, str]) -> list[str]:
    kind, answers, gold = question["kind"], question["answers"], question["gold_ids"]
    if kind not in KINDS:
        return [f"kind {kind!r} is none of {', '.join(KINDS)}"]
    dangling = [id_ for id_ in gold if id_ not in texts]
    if dangling:
        return [f"gold passage {dangling[0]!r} is not in the corpus"]
    if kind == "unanswerable":
        return ["an unanswerable question has answers or gold passages"] if answers or gold else []
    if not answers or not all(answer.strip() for answer in answers):
        return ["no answer, or a blank one"]
    if len(gold) < (2 if kind == "multihop" else 1) or len(set(gold)) != len(gold):
        return [f"{kind} has gold passages {gold}"]
    # The passage with the answer comes last.
    if not re.search(rf"(?<!\w){re.escape(answers[0])}(?!\w)", texts[gold[-1]], re.IGNORECASE):
        return [f"answer {answers[0]!r} does not stand in passage {gold[-1]}"]
    return []


def main() -> int:
    """Print the faults and counts; 0 when there are no faults."""
    passages, questions = (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in (PASSAGES, QUESTIONS)
    )
    faults = find_faults(passages, questions)
    print(*faults, f"{len(passages)} passages on {len({p['subject'] for p in passages})} subjects", sep="\n")
    print(", ".join(f"{n} {kind}" for kind, n in Counter(q["kind"] for q in questions).items()))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
