"""What the back ends share whose weights and tokenizer lie here."""

from __future__ import annotations

from pathlib import Path

from generator.base import Generator, Prompt, Sampling
from generator.errors import GeneratorError
from generator.render import Renderer
from generator.settings import GeneratorSettings, check_folder


class LocalModel(Generator):
    """A model folder under settings, as far as its tokenizer answers for it; see `generator.base.Generator`.

    Raises:
        GeneratorError: The folder holds no model for these settings.
    """

    def __init__(self, settings: GeneratorSettings, folder: Path) -> None:
        check_folder(settings, folder)
        self._settings = settings
        self._folder = folder
        self._renderer = Renderer(folder)

    @property
    def weights_known(self) -> bool:
        """Always: they lie here."""
        return True

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and completion together."""
        return self._settings.context_length

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be rendered."""
        return self._renderer.has_chat_template

    def count_tokens(self, prompt: Prompt) -> int:
        """Length of the prompt in tokens exactly as the model will see it."""
        return self._renderer.count(prompt)

    def truncate(self, text: str, max_tokens: int) -> str:
        """The longest beginning of `text` that is at most `max_tokens` tokens long."""
        return self._renderer.truncate(text, max_tokens)

    def check(self) -> None:
        """Generate one token; raise GeneratorError saying what to do when that fails."""
        [completion] = self.generate([Prompt(id="check", text="1 2 3")], Sampling(max_tokens=1))
        if completion.error:
            raise GeneratorError(f"the model can't complete a prompt of a few tokens: {completion.error}")
