"""A corpus and questions written for this project, so that everything can be tried without downloading data."""

from __future__ import annotations

from pathlib import Path

PASSAGES = Path(__file__).with_name("passages.jsonl")
QUESTIONS = Path(__file__).with_name("questions.jsonl")
