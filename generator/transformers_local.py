"""transformers in this process, where vLLM has no wheel or is not wanted: slower, the same interface, the same text.

Prompts of a batch are sorted by length, padded on the left and decoded together with a key-value cache, one token a step;
a prompt that has ended leaves the batch. The lock is held for one step at a time, so several threads take turns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator.answer import AnswerText
from generator.base import Completion, Prompt, Sampling
from generator.errors import GeneratorError
from generator.fingerprint import hash_weights, name_model
from generator.local import LocalModel
from generator.quiet import quiet_transformers
from generator.settings import GeneratorSettings

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class _Row:
    """One prompt on its way through a batch."""

    place: int
    id: str
    ids: list[int]
    answer: AnswerText
    random: torch.Generator | None = None


@dataclass(slots=True)
class _Batch:
    """What the model needs for the next step: cache and mask [rows, tokens so far]."""

    cache: Any = None
    mask: torch.Tensor = field(default=None)  # type: ignore[assignment]


class TransformersGenerator(LocalModel):
    """Completions from a causal language model of transformers. Thread-safe.

    Args:
        settings: dtype, context_length and batch_size are used. On a CPU everything is computed in float32: 16-bit
            arithmetic is slower there, and rounds so coarsely that a prompt's answer depends on its batch.
        folder: A model folder with a fast tokenizer (tokenizer.json).
        device: "auto" takes a GPU where there is one.

    Raises:
        GeneratorError: The folder can't be loaded.
    """

    name = "transformers"

    def __init__(self, settings: GeneratorSettings, folder: Path, *, device: str = "auto") -> None:
        import torch
        from transformers import AutoModelForCausalLM

        super().__init__(settings, folder)
        if not getattr(self._renderer.tokenizer, "is_fast", False):
            raise GeneratorError(f'{folder} has no tokenizer.json, needed here: set generator.backend = "vllm"')
        self._device = _device() if device == "auto" else device
        self._dtype = _dtype(settings.dtype, self._device)
        try:
            with quiet_transformers():
                model = AutoModelForCausalLM.from_pretrained(
                    folder, dtype=getattr(torch, self._dtype), local_files_only=True, use_safetensors=True
                )
            self._model: Any = model.to(self._device).eval()
        except Exception as error:  # transformers raises many types here
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise GeneratorError(f"transformers can't load {folder} on {self._device}: {why}") from error
        self._end_ids = _end_ids(self._model, self._renderer.tokenizer)
        self._lock = threading.Lock()

    def start(self) -> None:
        """The model was loaded when this was made."""

    @cached_property
    def fingerprint(self) -> str:
        """Names the weights, precision and back end; changes whenever outputs may change."""
        import torch
        import transformers

        settings = self._settings
        return name_model(
            settings.weights_id or hash_weights(self._folder),
            self._renderer.fingerprint,
            transformers=transformers.__version__,
            torch=torch.__version__,
            device=self._device,
            dtype=self._dtype,
            context=settings.context_length,
            batch=settings.batch_size,
        )

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        on_result: Callable[[Completion], None] | None = None,
    ) -> list[Completion]:
        """Complete a batch; the result has the prompts' order.

        `on_result` is called in the calling thread as each one finishes. A batch too big for the memory is halved.

        Raises:
            GeneratorError: The generator is closed.
        """
        done: dict[int, Completion] = {}

        def finish(place: int, completion: Completion) -> None:
            done[place] = completion
            if on_result is not None:
                on_result(completion)

        rows: list[tuple[int, Prompt, list[int]]] = []
        for place, prompt in enumerate(prompts):
            ids, why = self._render(prompt, sampling)
            if why:
                finish(place, Completion(prompt.id, "", "error", prompt_tokens=len(ids), error=why))
            else:
                rows.append((place, prompt, ids))
        rows.sort(key=lambda row: len(row[2]), reverse=True)  # longest first: memory runs out at once or not at all
        size = self._settings.batch_size
        batches = deque(rows[start : start + size] for start in range(0, len(rows), size))
        while batches:
            batch = batches.popleft()
            try:
                self._complete(batch, sampling, finish)
            except (MemoryError, RuntimeError) as error:
                if not _out_of_memory(error):
                    raise
                self._free_memory()
                rest = [row for row in batch if row[0] not in done]
                if len(rest) > 1:
                    half = (len(rest) + 1) // 2
                    batches.extendleft([rest[half:], rest[:half]])
                    continue
                place, prompt, ids = rest[0]
                why = f"out of memory on {self._device} with this prompt alone ({len(ids)} tokens): shorten the prompt"
                finish(place, Completion(prompt.id, "", "error", prompt_tokens=len(ids), error=why))
        return [done[place] for place in range(len(prompts))]

    def stream(self, prompt: Prompt, sampling: Sampling) -> Iterator[str]:
        """Yield pieces of text as they are generated; their concatenation equals generate()'s text.

        Closing the iterator early stops the generation.

        Raises:
            GeneratorError: The prompt can't be completed, or the generator is closed.
        """
        ids, why = self._render(prompt, sampling)
        if why:
            raise GeneratorError(why)
        for pieces in self._decode([self._row(0, prompt, ids, sampling)], sampling):
            for _, piece in pieces:
                if piece:
                    yield piece

    def close(self) -> None:
        """Free the model; calling it twice does nothing."""
        with self._lock:
            self._model = None
        self._free_memory()

    def _render(self, prompt: Prompt, sampling: Sampling) -> tuple[list[int], str | None]:
        try:
            ids = self._renderer.ids(prompt)
        except GeneratorError as error:
            return [], str(error)
        return ids, self._renderer.misfit(len(ids), sampling, self.context_length)

    def _row(self, place: int, prompt: Prompt, ids: list[int], sampling: Sampling) -> _Row:
        import torch

        answer = AnswerText(self._renderer.tokenizer.backend_tokenizer, ids, sampling, self._end_ids)
        random = torch.Generator().manual_seed(sampling.seed) if sampling.temperature > 0 else None
        return _Row(place, prompt.id, ids, answer, random)

    def _complete(
        self,
        batch: list[tuple[int, Prompt, list[int]]],
        sampling: Sampling,
        finish: Callable[[int, Completion], None],
    ) -> None:
        rows = [self._row(place, prompt, ids, sampling) for place, prompt, ids in batch]
        for pieces in self._decode(rows, sampling):
            for row, _ in pieces:
                answer = row.answer
                if answer.finish_reason:
                    text, reason, tokens = answer.text, answer.finish_reason, answer.tokens
                    finish(row.place, Completion(row.id, text, reason, len(row.ids), tokens))

    def _decode(self, rows: list[_Row], sampling: Sampling) -> Iterator[list[tuple[_Row, str]]]:
        """One token for every row at each step, until all have ended; yields each row with its new text."""
        state = _Batch()
        logits = self._prefill(rows, state)
        while True:
            tokens = [_pick(line, row.random, sampling) for line, row in zip(logits, rows, strict=True)]
            yield [(row, row.answer.feed(token)) for row, token in zip(rows, tokens, strict=True)]
            keep = [place for place, row in enumerate(rows) if row.answer.finish_reason is None]
            if not keep:
                return
            logits = self._step([tokens[place] for place in keep], keep if len(keep) < len(rows) else None, state)
            rows = [rows[place] for place in keep]

    def _prefill(self, rows: list[_Row], state: _Batch) -> torch.Tensor:
        """Logits [rows, vocabulary] float32 on the CPU after each prompt's last token."""
        import torch

        width = max(len(row.ids) for row in rows)
        ids = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, width - len(row.ids) :] = torch.tensor(row.ids)
            mask[place, width - len(row.ids) :] = 1
        state.mask = mask.to(self._device)
        positions = (state.mask.cumsum(-1) - 1).clamp(min=0)
        return self._forward(ids.to(self._device), positions, state)

    def _step(self, tokens: list[int], keep: list[int] | None, state: _Batch) -> torch.Tensor:
        """Logits after one more token a row; rows not in `keep` are dropped first."""
        import torch

        if keep is not None:
            chosen = torch.tensor(keep, device=self._device)
            state.cache.batch_select_indices(chosen)
            state.mask = state.mask[chosen]
        state.mask = torch.cat([state.mask, state.mask.new_ones((len(tokens), 1))], dim=1)
        positions = state.mask.sum(-1, keepdim=True) - 1
        return self._forward(torch.tensor(tokens, device=self._device)[:, None], positions, state)

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor, state: _Batch) -> torch.Tensor:
        import torch

        with self._lock, torch.inference_mode():
            if self._model is None:
                raise GeneratorError("the transformers generator is closed: load it again")
            output = self._model(
                input_ids=ids,
                attention_mask=state.mask,
                position_ids=positions,
                past_key_values=state.cache,
                use_cache=True,
                logits_to_keep=1,  # the others would be [tokens, vocabulary] numbers that nobody reads
            )
            state.cache = output.past_key_values
            return output.logits[:, -1].float().cpu()

    def _free_memory(self) -> None:
        import gc

        import torch

        gc.collect()
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()


def _pick(logits: torch.Tensor, random: torch.Generator | None, sampling: Sampling) -> int:
    """The next token from one row of logits [vocabulary]: the likeliest, or a draw from the top_p nucleus."""
    import torch

    if random is None:
        return int(logits.argmax())
    shares = torch.softmax(logits / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        values, order = shares.sort(descending=True)
        # The smallest set that reaches top_p: a token stays when those before it have not reached it.
        shares[order[values.cumsum(-1) - values >= sampling.top_p]] = 0.0
    # The exponential race: token i wins with probability shares[i]. Noise goes by token, not by rank, so that two tokens
    # of almost the same probability that change places do not change the draw.
    return int((shares / torch.empty_like(shares).exponential_(generator=random)).argmax())


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _dtype(wanted: str, device: str) -> str:
    import torch

    if device == "cpu":
        return "float32"
    if wanted != "auto":
        return wanted
    return "float16" if device == "cuda" and not torch.cuda.is_bf16_supported() else "bfloat16"


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer by the model's generation settings or its tokenizer."""
    named = model.generation_config.eos_token_id
    ids = named if isinstance(named, list) else [named]
    return frozenset(token for token in [*ids, tokenizer.eos_token_id] if token is not None)


def _out_of_memory(error: BaseException) -> bool:
    import torch

    # On a CPU the allocator raises a plain RuntimeError.
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
