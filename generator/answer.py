"""Token ids to text as they come: where the answer ends, and how much of it is sure enough to be shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from generator.base import FinishReason, Sampling


class AnswerText:
    """The text of one answer, fed token by token; it ends as vLLM's answers end.

    An end token is counted and not shown. A stop string ends the text before it. What could still become the beginning of
    a stop string is held back, so that pieces once given are never taken back, and a character of several tokens is
    given when it is whole.

    Args:
        tokenizer: A fast tokenizer's own `tokenizers.Tokenizer`.
        prompt_ids: The prompt, since some tokenizers write a token differently at the beginning of a text.
        sampling: max_tokens and stop are used.
        end_ids: Tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int], sampling: Sampling, end_ids: Collection[int]) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream: Any = DecodeStream(ids=list(prompt_ids), skip_special_tokens=True)
        self._sampling = sampling
        self._end_ids = end_ids
        self._hold = max((len(stop) for stop in sampling.stop), default=1) - 1
        self._given = 0
        self.text = ""
        self.tokens = 0
        self.finish_reason: FinishReason | None = None

    def feed(self, token: int) -> str:
        """Add one token; return the text that is now sure. Not to be called after the end."""
        self.tokens += 1
        if token in self._end_ids:
            self.finish_reason = "stop"
        else:
            before = len(self.text)
            self.text += self._stream.step(self._tokenizer, token) or ""
            self._cut_at_stop(before)
        if self.finish_reason is None and self.tokens >= self._sampling.max_tokens:
            self.finish_reason = "length"
        sure = len(self.text) if self.finish_reason else max(self._given, len(self.text) - self._hold)
        piece = self.text[self._given : sure]
        self._given = sure
        return piece

    def _cut_at_stop(self, before: int) -> None:
        """End the text at the stop string that is complete first, if the newest token completed one."""
        ends = []
        for stop in self._sampling.stop:
            start = self.text.find(stop, max(0, before - len(stop) + 1))
            if start >= 0:
                ends.append((start + len(stop), start))
        if ends:
            self.text = self.text[: min(ends)[1]]
            self.finish_reason = "stop"
