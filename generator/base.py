"""What every generator is to its callers: prompts in, completions out, matched by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

FinishReason = Literal["stop", "length", "error"]


class Message(TypedDict):
    """One turn of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Either a chat (messages) or a completion (text), never both.

    Attributes:
        id: Matches the completion to the question; unique in a batch.
        messages: Chat turns, rendered with the model's own template.
        text: Plain text to be continued.
    """

    id: str
    messages: tuple[Message, ...] | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.text is None):
            raise ValueError("a Prompt holds messages or text, exactly one of them")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Decoding settings; the default is greedy."""

    max_tokens: int = 32
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.temperature < 0:
            raise ValueError(f"temperature must be at least 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model made of one prompt.

    Attributes:
        id: The prompt's id.
        text: Generated text, as decoded, stop strings excluded; "" on error.
        finish_reason: "stop" (end token or stop string), "length" (max_tokens) or "error".
        prompt_tokens: Length of the rendered prompt in tokens.
        completion_tokens: Tokens generated.
        error: One line saying why there is no text, when finish_reason is "error".
    """

    id: str
    text: str
    finish_reason: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None


class Generator(Protocol):
    """A language model behind some back end. Thread-safe: several threads may generate and stream at once."""

    name: str

    @property
    def fingerprint(self) -> str:
        """Names the weights, precision and back end; changes whenever outputs may change."""
        ...

    @property
    def weights_known(self) -> bool:
        """Whether the fingerprint names the very weights; a server may change them under one name."""
        ...

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and completion together."""
        ...

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be rendered."""
        ...

    def start(self) -> None:
        """Load the model now, where that was not done when this was made; `generate` and `stream` do it by themselves.

        Fingerprint, token counts and `truncate` need no loaded model.
        """
        ...

    def count_tokens(self, prompt: Prompt) -> int:
        """Length of the prompt in tokens exactly as the model will see it."""
        ...

    def truncate(self, text: str, max_tokens: int) -> str:
        """The longest beginning of `text` that is at most `max_tokens` tokens long."""
        ...

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        on_result: Callable[[Completion], None] | None = None,
    ) -> list[Completion]:
        """Complete a batch; the result has the prompts' order.

        A prompt that cannot be completed (too long for the context) gets a Completion with finish_reason "error"; the
        others are not disturbed. `on_result` is called as each one finishes, from any thread.
        """
        ...

    def stream(self, prompt: Prompt, sampling: Sampling) -> Iterator[str]:
        """Yield pieces of text as they are generated; their concatenation equals generate()'s text.

        Closing the iterator early stops the generation.
        """
        ...

    def check(self) -> None:
        """Generate one token; raise GeneratorError saying what to do when that fails."""
        ...

    def close(self) -> None:
        """Free the model; calling it twice does nothing."""
        ...
