"""Prompt to token ids, in one place for every back end, so that all of them see the same prompt.

A back end that rendered for itself would differ from the others in the details: a template not applied, a beginning of
text marked twice. Here a chat goes through the model's own template and a text through its own tokenizer, once.
"""

from __future__ import annotations

import re
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator.base import Prompt, Sampling
from generator.errors import GeneratorError
from generator.fingerprint import hash_behaviour

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Renderer:
    """Turns prompts into token ids with the tokenizer of one model folder. Thread-safe.

    Args:
        folder: A model folder with its tokenizer (tokenizer.json or what transformers converts to it).

    Raises:
        GeneratorError: The folder has no tokenizer that can be read.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self.folder = folder
        try:
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # transformers raises many types here
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise GeneratorError(f"{folder} has no tokenizer ({why}): give a complete model folder") from error
        self.tokenizer: Any = tokenizer
        # A fast tokenizer keeps state that two threads must not set at once.
        self._lock = threading.Lock()
        self._bos: int | None = tokenizer.bos_token_id
        special = [re.escape(token.content) for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._special = re.compile("|".join(sorted(special, key=len, reverse=True)) or "(?!)")

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be rendered."""
        return bool(self.tokenizer.chat_template)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the tokenizer, the template and the rest of the folder's configuration."""
        return hash_behaviour(self.folder)

    def ids(self, prompt: Prompt) -> list[int]:
        """Token ids of the prompt exactly as the model is to see them.

        A chat ends where the assistant's turn begins; what the template writes is not added to, since a template holds
        its own beginning-of-text token where the model wants one. Special tokens written out in a message are dropped,
        so that a passage can't end a turn and begin another. A text gets the special tokens that the tokenizer adds by
        itself, and a beginning-of-text token already written in it is not doubled.

        Raises:
            GeneratorError: A chat for a model without a chat template.
        """
        if prompt.messages is not None:
            return self._encode(self._chat(prompt), add_special_tokens=False)
        assert prompt.text is not None
        ids = self._encode(prompt.text, add_special_tokens=True)
        while self._bos is not None and ids[:2] == [self._bos, self._bos]:
            ids = ids[1:]
        return ids

    def count(self, prompt: Prompt) -> int:
        """How many tokens `ids` gives."""
        return len(self.ids(prompt))

    def truncate(self, text: str, max_tokens: int) -> str:
        """The longest beginning of `text`, cut between two tokens, that is at most `max_tokens` tokens long.

        Special tokens are not counted: this is for text that becomes part of a prompt.
        """
        with self._lock:
            encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ends = [end for _, end in encoded["offset_mapping"]]
        if len(ends) <= max_tokens:
            return text
        for end in dict.fromkeys(reversed(ends[: max(0, max_tokens)])):
            # A cut inside a word, or inside a character of several tokens, can tokenise differently from the whole.
            if len(self._encode(text[:end], add_special_tokens=False)) <= max_tokens:
                return text[:end]
        return ""

    def misfit(self, length: int, sampling: Sampling, context_length: int) -> str | None:
        """Why a prompt of `length` tokens can't be completed within `context_length`, in one line; None when it can."""
        if length == 0:
            return "the prompt is empty: it has no token to continue"
        if length + sampling.max_tokens > context_length:
            return (
                f"the prompt has {length} tokens and the answer may have {sampling.max_tokens}, more than the context "
                f"of {context_length}: shorten the prompt, lower max_tokens or raise generator.context_length"
            )
        return None

    def _chat(self, prompt: Prompt) -> str:
        assert prompt.messages is not None
        if not self.has_chat_template:
            raise GeneratorError(f'the model in {self.folder} has no chat template: set prompt.style = "completion"')
        messages = [{**message, "content": self._special.sub("", message["content"])} for message in prompt.messages]
        try:
            # Templates without a thinking mode ignore the last argument; a short answer leaves no room for thoughts.
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except Exception as error:  # what a template refuses (a role, an order of turns) comes as one of several types
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise GeneratorError(f"the chat template of {self.folder} refuses prompt {prompt.id!r}: {why}") from error
        return str(text)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        with self._lock:
            return list(self.tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)["input_ids"])
