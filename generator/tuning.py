"""LoRA fine-tuning of a causal language model on several questions over one shared context.

A context (passages) is long and a question with its answer short, so that every context carries all questions that it can
answer: they stand side by side as branches of one sequence, each of which sees the context and itself and no other branch.
What the model computes for a branch is exactly what it would compute for context and branch alone (tests/test_tuning.py);
it costs one pass over the context for all of them. Sharing the context so is this project's own choice.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator import tuning_state
from generator.errors import GeneratorError

if TYPE_CHECKING:
    import torch

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Branch:
    """A question's end of the prompt and the completion that it should get, end of line included."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class SharedContext:
    """The beginning that several prompts share, and what follows it in each."""

    text: str
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class TuningSettings:
    """How an adapter is trained.

    Attributes:
        epochs: Passes over the contexts; may be less than 1.
        contexts_per_step: Contexts whose gradients are summed into one update.
        learning_rate: Highest one, after the warm-up; it then falls along a cosine to a tenth.
        warmup: Share of the updates during which it rises.
        weight_decay: AdamW's.
        clip: Longest gradient.
        max_tokens: Contexts with their branches that are longer are left out.
        rank: Of the LoRA matrices.
        alpha: LoRA's scale is alpha / rank.
        dropout: LoRA's.
        seed: Of the order and of the adapter's first values.
        save_every: Updates between two snapshots that a stopped training goes on from.
    """

    epochs: float = 1.0
    contexts_per_step: int = 4
    learning_rate: float = 5e-4
    warmup: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    max_tokens: int = 1536
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    seed: int = 0
    save_every: int = 20


@dataclass(frozen=True, slots=True)
class Encoded:
    """A context with its branches as one sequence of n tokens.

    Attributes:
        ids: [n] token ids: the context, then one branch after the other.
        positions: [n], each branch counting on from the end of the context.
        branch: [n], 0 in the context and 1, 2, ... in the branches.
        labels: [n], what stands next in the branch where that is part of a completion, else `IGNORED`.
    """

    ids: list[int]
    positions: list[int]
    branch: list[int]
    labels: list[int]


def encode(context: SharedContext, tokenizer: Any) -> Encoded:
    """Tokens, positions and labels of a context with its branches.

    Each prompt is tokenised whole, as it will be when it is asked; what the branches' tokens have in common at the start is
    the shared part. (Signs on both sides of the seam may become one token, so the two texts cannot be tokenised apart.)

    Raises:
        GeneratorError: The first sign of a completion and the last of its prompt become one token; end the prompt otherwise.
    """
    prompts: list[list[int]] = []
    wholes: list[list[int]] = []
    for own in context.branches:
        prompt = list(tokenizer(context.text + own.prompt)["input_ids"])
        whole = list(tokenizer(context.text + own.prompt + own.completion)["input_ids"])
        if whole[: len(prompt)] != prompt:
            raise GeneratorError(
                f"the tokenizer joins the end of the prompt {own.prompt[-20:]!r} with the start of the completion "
                f"{own.completion[:20]!r}; such a model cannot be trained with this prompt"
            )
        prompts.append(prompt)
        wholes.append(whole)
    # A branch keeps a token of its prompt at least, since the first token of the completion is predicted there.
    start = min(len(prompt) for prompt in prompts) - 1
    start = next((i for i in range(start) if len({whole[i] for whole in wholes}) > 1), start)
    ids = wholes[0][:start]
    positions, branch, labels = list(range(start)), [0] * start, [IGNORED] * start
    for number, (prompt, whole) in enumerate(zip(prompts, wholes, strict=True), start=1):
        ids += whole[start:]
        positions += range(start, len(whole))
        branch += [number] * (len(whole) - start)
        labels += [IGNORED] * (len(prompt) - start - 1) + whole[len(prompt) :] + [IGNORED]
    return Encoded(ids, positions, branch, labels)


def attention(branch: torch.Tensor) -> torch.Tensor:
    """Who sees whom, [1, 1, n, n] bool: what stands before it in the context or in its own branch.

    Args:
        branch: [n], as in `Encoded`.
    """
    import torch

    same = (branch[:, None] == branch[None, :]) | (branch[None, :] == 0)
    return (same & torch.ones_like(same).tril())[None, None]


def answer_logits(model: Any, encoded: Encoded) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One pass over a context with its branches.

    Returns:
        For the t tokens of all completions: logits [t, vocabulary] float32, labels [t], and the branch of each [t].
    """
    import torch

    device = next(model.parameters()).device
    branch = torch.tensor(encoded.branch, device=device)
    labels = torch.tensor(encoded.labels, device=device)
    # Logits of prompt tokens would cost a fifth of the pass with a vocabulary of 49,152, and nobody reads them.
    wanted = (labels != IGNORED).nonzero().squeeze(1)
    logits = model(
        input_ids=torch.tensor([encoded.ids], device=device),
        position_ids=torch.tensor([encoded.positions], device=device),
        attention_mask=attention(branch),
        logits_to_keep=wanted,
        use_cache=False,
    ).logits[0]
    return logits.float(), labels[wanted], branch[wanted]


def load_for_tuning(folder: Path, settings: TuningSettings) -> tuple[Any, Any]:
    """A model with a fresh adapter on all of its linear layers but the head, and its tokenizer.

    Raises:
        GeneratorError: The folder holds no causal language model.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, use_safetensors=True, attn_implementation="sdpa"
        )
    except (OSError, ValueError) as error:
        raise GeneratorError(f"cannot train the model in {folder}: {str(error).splitlines()[0]}") from error
    if torch.cuda.is_available():
        model = model.to("cuda")
    torch.manual_seed(settings.seed)
    lora = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, lora), tokenizer


@dataclass(frozen=True, slots=True)
class TuningScores:
    """How a model does on contexts that it was not trained on.

    Attributes:
        loss: Mean over the tokens of all completions, in nats.
        exact: Share of completions that greedy decoding would give to the letter: the likeliest token at every place is
            the completion's.
        answers: Number of completions.
    """

    loss: float
    exact: float
    answers: int


def evaluate(model: Any, contexts: Sequence[Encoded]) -> TuningScores:
    """Scores of a model on held-out contexts."""
    import torch

    total, tokens, exact, answers = 0.0, 0, 0, 0
    model.eval()
    with torch.no_grad():
        for encoded in contexts:
            logits, labels, branch = answer_logits(model, encoded)
            total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
            tokens += len(labels)
            right = logits.argmax(dim=-1) == labels
            for number in set(branch.tolist()):
                answers += 1
                exact += int(right[branch == number].all())
    return TuningScores(total / max(tokens, 1), exact / max(answers, 1), answers)


class Tuner:
    """Trains an adapter, with snapshots that a stopped training goes on from.

    Args:
        model: With an adapter (`load_for_tuning`).
        contexts: Encoded; those longer than max_tokens are left out.
        settings: The recipe.
        folder: Gets log.csv, and state/ with the newest snapshot.
        progress: Told of (updates done, all) and the mean loss per token of the last update.
    """

    def __init__(
        self,
        model: Any,
        contexts: Sequence[Encoded],
        settings: TuningSettings,
        folder: Path,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> None:
        import torch

        self.model = model
        self.settings = settings
        self.contexts = [own for own in contexts if len(own.ids) <= settings.max_tokens]
        if not self.contexts:
            raise GeneratorError(f"no context fits into max_tokens = {settings.max_tokens}; raise it")
        self.steps = max(1, math.ceil(len(self.contexts) * settings.epochs / settings.contexts_per_step))
        self._folder = folder
        self._progress = progress
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.done = 0
        self._resume()

    def run(self, until: int | None = None) -> None:
        """Train to the end, or up to an update."""
        import torch

        order = self._order()
        size = self.settings.contexts_per_step
        for step in range(self.done, min(self.steps, until or self.steps)):
            self.model.train()
            # Dropout, where there is any, depends on the update alone, so that a resumed training repeats it.
            torch.manual_seed(self.settings.seed * 1_000_003 + step)
            batch = [self.contexts[i] for i in order[step * size : (step + 1) * size]]
            tokens = sum(label != IGNORED for own in batch for label in own.labels)
            loss = 0.0
            for own in batch:
                logits, labels, _ = answer_logits(self.model, own)
                part = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / tokens
                part.backward()  # type: ignore[no-untyped-call]
                loss += float(part.detach())
            rate = self.settings.learning_rate * schedule(step, self.steps, self.settings.warmup)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            torch.nn.utils.clip_grad_norm_(self._parameters, self.settings.clip)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            self.done = step + 1
            self._log(loss, rate, tokens)
            if self.done % self.settings.save_every == 0 or self.done == self.steps:
                self._save()
            if self._progress is not None:
                self._progress(self.done, self.steps, loss)

    def _order(self) -> list[int]:
        """Indexes of the contexts of all updates: each epoch in an order of its own."""
        order: list[int] = []
        epoch = 0
        while len(order) < self.steps * self.settings.contexts_per_step:
            one = list(range(len(self.contexts)))
            random.Random(f"{self.settings.seed}/{epoch}").shuffle(one)
            order += one
            epoch += 1
        return order

    def _log(self, loss: float, rate: float, tokens: int) -> None:
        path = self._folder / "log.csv"
        new = not path.is_file()
        with path.open("a", encoding="utf-8") as stream:
            if new:
                stream.write("update,loss,learning_rate,answer_tokens\n")
            stream.write(f"{self.done},{loss:.6f},{rate:.3e},{tokens}\n")

    def _save(self) -> None:
        tuning_state.save(self._folder, self._parameters, self._optimizer, self.done, asdict(self.settings))

    def _resume(self) -> None:
        self.done = tuning_state.load(self._folder, self._parameters, self._optimizer, asdict(self.settings))
        # Lines of updates after the snapshot are made again.
        log = self._folder / "log.csv"
        if self.done and log.is_file():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            log.write_text("".join(lines[: self.done + 1]), encoding="utf-8")


def schedule(step: int, steps: int, warmup: float) -> float:
    """Share of the highest learning rate at an update: a linear rise, then half a cosine down to a tenth."""
    rising = warmup * steps
    if step < rising:
        return (step + 1) / (rising + 1)
    return 0.55 + 0.45 * math.cos(math.pi * (step - rising) / max(steps - rising, 1))


def save_adapter(model: Any, folder: Path, description: dict[str, Any]) -> None:
    """Write the adapter in float16, with a description beside it in magrag.json.

    In float16 it takes half the space; the rounding is of the order of 5e-4 of each value.

    Args:
        model: With an adapter.
        folder: Made when missing.
        description: JSON values; base.name is what the adapter goes on.
    """
    import torch

    state = {
        name: value.detach().to(torch.float16).cpu() for name, value in model.state_dict().items() if "lora_" in name
    }
    config = model.peft_config["default"]
    # Where the weights lay on this machine says nothing on another one, and sets have no order.
    config.base_model_name_or_path = description["base"]["name"]
    config.target_modules = sorted(config.target_modules)
    # No embeddings are saved; left to itself PEFT would ask the hub whether the vocabulary has changed.
    model.save_pretrained(folder, state_dict=state, safe_serialization=True, save_embedding_layers=False)
    (folder / "adapter_model.safetensors").chmod(0o644)
    # PEFT leaves a model card with nothing filled in.
    (folder / "README.md").unlink(missing_ok=True)
    (folder / "magrag.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
