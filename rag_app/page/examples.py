"""Questions to try: a few of the demo's, by kind."""

from __future__ import annotations

import json

from rag_app.config import Config
from rag_app.demo import QUESTIONS

# Short ones, and such that the demo's retrievers do not all find the same.
EXAMPLE_IDS = ("q006", "q183", "q030", "q105", "q151", "q220")
# Question q001's matter in French, for what an encoder that was trained on English makes of another language.
IN_FRENCH = "Quel ingénieur japonais a servi de charge dans la démonstration du pont cantilever ?"


def example_questions(config: Config) -> list[tuple[str, str]]:
    """(kind, question) pairs; none for another corpus, which knows nothing of them."""
    if not config.is_demo:
        return []
    with QUESTIONS.open(encoding="utf-8") as lines:
        questions = {question["id"]: question for question in map(json.loads, lines)}
    english = [(questions[id]["kind"], questions[id]["question"]) for id in EXAMPLE_IDS]
    return [*english, ("language", IN_FRENCH)]
