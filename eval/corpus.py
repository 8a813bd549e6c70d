"""What a run notes of the corpus it searched: can a question be answered from it at all, and how long are its vectors?"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from eval.data.datasets import Question
from eval.metrics import answer_tokens, dpr_tokens, get_rule, has_answer

# Passages looked through at once: one search in a long text is quicker than many in short ones.
_BLOCK = 512


def find_answerable(questions: Sequence[Question], texts: Iterable[str], rule: str) -> dict[str, bool]:
    """Whether any passage holds an answer string (DPR's match, see `eval.metrics.has_answer`), by question id.

    Args:
        questions: Those without answers are left out of the result.
        texts: Of all passages, without titles; read once, in bounded memory.
        rule: The data set's, which says whether answers are regular expressions, and in which language.
    """
    patterns, lang = get_rule(rule).patterns, get_rule(rule).lang
    waiting = {question.id: question.answers for question in questions if question.has_answers}
    found = dict.fromkeys(waiting, False)
    tokens = {
        id: [t for answer in answers if len(t := answer_tokens(answer, lang)) > 1] for id, answers in waiting.items()
    }
    for block in _blocks(texts):
        # Each passage's tokens begin and end with a NUL, so that no run of tokens crosses from one into the next.
        inside = "" if patterns else "".join(dpr_tokens(text, lang) for text in block)
        for id in list(waiting):
            if patterns:
                hit = any(has_answer(waiting[id], text, patterns=True) for text in block)
            else:
                hit = any(answer in inside for answer in tokens[id])
            if hit:
                found[id] = True
                del waiting[id]
        if not waiting:
            break
    return found


def _blocks(texts: Iterable[str]) -> Iterable[tuple[str, ...]]:
    # itertools.batched came with Python 3.12.
    iterator = iter(texts)
    while block := tuple(itertools.islice(iterator, _BLOCK)):
        yield block
