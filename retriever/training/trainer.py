"""The training loop: plain torch over an encoder's own modules.

Everything a step needs is a function of the seed and the step (order, crops, negatives, dropout), so a training that was
killed ends with the same weights, to the bit, as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.errors import RetrieverError
from retriever.similarity import Similarity
from retriever.training import snapshot
from retriever.training.batches import Batch, Batches, one_a_query
from retriever.training.checkpoint import (
    MERGED,
    CheckpointManifest,
    load_adapter,
    manifest_of,
    restore_checkpoint,
    save_checkpoint,
    save_merged,
)
from retriever.training.figures import FigureLog, norm_figures
from retriever.training.forward import Forward, check_lengths
from retriever.training.masking import known_positives
from retriever.training.optim import clip_gradient, make_optimizer, rate_factor, set_rates
from retriever.training.pairs import TrainingPair, data_hash
from retriever.training.result import TrainingResult
from retriever.training.settings import TrainingSettings
from retriever.training.share import Share, share_of
from retriever.training.teacher import make_teacher

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from retriever.encoder import Encoder

Dev = Callable[["Encoder", Similarity], Mapping[str, float]]
"""Scores of the encoder under the similarity of now; the first decides which checkpoint is best (more is better)."""

Report = Callable[[int, int, Mapping[str, float]], None]
"""Called after each step with (steps done, steps in all, the step's figures)."""

STATE = "state"
BEST = "best"


class Trainer:
    """One training in one folder.

    Args:
        encoder: In float32; its weights change. Where the settings ask for a projection, `add_projection` has put it there.
        pairs: What is trained on.
        settings: The recipe.
        folder: For log.csv, state and best; one that a killed training left is continued.
        dev: Scores the encoder; None keeps the last weights as the best.
        held_out: Pairs outside the training. One a query, up to a batch, with their hard negatives where the settings ask
            for some, match the scale; the first training batch where they are fewer than two a process.
        adapter: What `add_lora` put into the encoder; None trains all weights.
        adapter_dtype: How the best adapter is stored.
        report: Told of each step.
        log: Told, in a line, of anything else.

    Raises:
        RetrieverError: The batch cannot be split among the processes, the pairs don't fit the batch size, or the model has
            no positions for the longest texts.
    """

    def __init__(
        self,
        encoder: Encoder,
        pairs: Sequence[TrainingPair],
        settings: TrainingSettings,
        folder: Path,
        *,
        dev: Dev | None = None,
        held_out: Sequence[TrainingPair] = (),
        adapter: Any = None,
        adapter_dtype: str = "float32",
        report: Report | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        from retriever.training.distributed import check_shares, world
        from retriever.training.loss import ContrastiveLoss

        check_lengths(encoder, settings)
        self.encoder, self.settings, self.folder = encoder, settings, folder
        self.steps = settings.total_steps(len(pairs))
        self._world = world()
        check_shares(settings.batch_size)
        self._batches = self._make_batches(pairs, settings.batch_size)
        self._known = known_positives([*pairs, *held_out])
        self._held_out = held_out
        self._dev, self._report, self._log = dev, report, log or (lambda line: None)
        self._adapter, self._adapter_dtype = adapter, adapter_dtype
        self._projection = encoder.model[-1] if settings.projection else None
        self._data_hash = data_hash(pairs)
        if adapter is None:
            encoder.model.requires_grad_(True)  # PEFT leaves weights frozen that an adapter was merged into
        self._forward = Forward(encoder, tokens_per_batch=settings.tokens_per_batch, precision=settings.precision)
        self._loss = ContrastiveLoss(settings.similarity, settings.alpha).to(encoder.device)
        self._teacher = make_teacher(encoder, adapter, settings) if settings.anchor else None
        trained = {name: p for name, p in encoder.model.named_parameters() if p.requires_grad}
        gammas = dict(self._loss.named_parameters())
        self._parameters: dict[str, Parameter] = {**trained, **gammas}
        self._optimizer = make_optimizer(
            trained.items(),
            gammas.values(),
            learning_rate=settings.learning_rate,
            gamma_lr=settings.gamma_lr,
            weight_decay=settings.weight_decay,
            betas=settings.betas,
            eps=settings.eps,
        )
        self._progress = snapshot.Progress(0, settings.alpha)
        self._figures = FigureLog(folder)

    def run(self) -> TrainingResult:
        """Train to the end, from where the folder's snapshot is.

        Raises:
            RetrieverError: A gradient is not finite, or what an earlier start left is damaged or of other pairs.
        """
        from retriever.training.distributed import wait_for_all

        if self._world.is_first:
            restore_checkpoint(self.folder / BEST)
        wait_for_all()
        state = snapshot.find(self.folder / STATE)
        if state is None:
            self._begin()
        else:
            self._resume(state)
        while self._progress.step < self.steps and not self._progress.stopped:
            done = self._progress.step + 1
            figures = self._step(self._progress.step)
            self._progress = replace(self._progress, step=done)
            scores: Mapping[str, float] = {}
            if done == self.steps or self._due(self.settings.eval_every, done):
                scores = self._evaluate()
            self._write_row({**figures, **scores})
            if self._report is not None:
                self._report(done, self.steps, {**figures, **scores})
            if done == self.steps or self._progress.stopped or self._due(self._save_every, done):
                self._save_state()
        return self._finish()

    # --- beginning and ending ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.settings.scale == "matched":
            self._loss.scale = self._match()
            self._log(f"scale matched to cosine's entropy at {self.settings.alpha:g}: {self._loss.scale:.4g}")
        scores = self._scores()
        self._progress = snapshot.Progress(0, self._loss.scale, untrained=scores)
        if self._world.is_first:
            self._figures.begin(list(scores))
        self._write_row({"step": 0, "alpha": self._loss.scale, **self._gammas(), **scores})
        if self._report is not None:
            self._report(0, self.steps, scores)

    def _resume(self, state: Path) -> None:
        self._progress = snapshot.load(state, self._parameters, self._optimizer)
        self._loss.scale = self._progress.scale
        # A lost one should not be found out hours later.
        if self._progress.best_step >= 0 and manifest_of(self.folder / BEST).data_hash != self._data_hash:
            raise RetrieverError(f"{self.folder} was begun with other pairs or negatives: delete it and train again")
        self._log(f"continuing after step {self._progress.step} of {self.steps}")
        if self._world.is_first and not self._figures.go_on(self._progress.step, self._progress.best or ()):
            self._log("log.csv is gone or damaged: a new one begins here")

    def _finish(self) -> TrainingResult:
        """Whatever is missing is written, so that a training killed here is finished by the same command too."""
        from retriever.training.distributed import wait_for_all

        best = self.folder / BEST
        if self._world.is_first:
            if self._progress.best_step < 0:
                self._save_best({})
            if self._adapter is not None and not (best / MERGED).is_dir():
                load_adapter(best, self._adapter, self._projection)
                save_merged(best, self.encoder, self._adapter)
        wait_for_all()
        manifest = manifest_of(best)
        result = TrainingResult(
            best,
            self._progress.step,
            manifest.step,
            dict(manifest.dev),
            self._progress.stopped,
            Similarity(manifest.similarity, manifest.gamma_q, manifest.gamma_d),
            manifest.scale,
            dict(self._progress.untrained or {}),
        )
        if result.setback:
            self._log(result.setback)
        return result

    # --- one step ----------------------------------------------------------------------------------------------------

    def _step(self, step: int) -> dict[str, float]:
        """Update once; returns the step's figures (of this process's share of the batch)."""
        import torch

        from retriever.training.cached import backward
        from retriever.training.distributed import average_gradients

        started = time.perf_counter()
        settings = self.settings
        share = self._share(self._batches.at(step))
        self.encoder.model.train(settings.dropout)
        # Processes draw different dropout, the same process the same one when a step is done again.
        torch.manual_seed(np.random.default_rng([settings.seed, step, self._world.rank]).integers(2**62))
        factor = rate_factor(step, self.steps, settings.warmup)
        set_rates(self._optimizer, factor)
        self._optimizer.zero_grad(set_to_none=True)
        figures: dict[str, float] = {}

        def loss(queries: Tensor, passages: Tensor) -> Tensor:
            return self._value(share, queries, passages, figures)

        value = backward(
            self._forward.chunks(share.queries, settings.chunk_size),
            self._forward.chunks(share.passages, settings.chunk_size),
            loss,
        )
        average_gradients(self._parameters.values())
        norm = clip_gradient(self._parameters.values(), settings, step)
        self._optimizer.step()
        tokens = int(share.queries.lengths.sum() + share.passages.lengths.sum())
        return {
            "step": step + 1,
            "loss": float(value),
            "alpha": self._loss.scale,
            **self._gammas(),
            **figures,
            "learning_rate": settings.learning_rate * factor,
            "gradient_norm": norm,
            "tokens_per_second": tokens / (time.perf_counter() - started),
        }

    def _value(self, share: Share, queries: Tensor, passages: Tensor, figures: dict[str, float]) -> Tensor:
        """The loss of this process's queries against everyone's passages."""
        import torch

        from retriever.training.distributed import gather
        from retriever.training.loss import anchor_loss

        device = queries.device
        queries = queries[torch.from_numpy(share.queries.inverse).to(device)]
        own = passages[torch.from_numpy(share.passages.inverse).to(device)]
        passages = gather(own)
        excluded = share.excluded.to(device)
        value = self._loss(queries, passages, share.targets.to(device), excluded)
        if self._teacher is not None:
            teacher_queries, teacher_passages = self._teacher(share.queries, share.passages)
            value = value + self.settings.anchor * anchor_loss(
                queries, passages, teacher_queries, gather(teacher_passages), self._loss, excluded
            )
        figures.update(norm_figures(own.detach().float().norm(dim=-1).cpu().numpy(), share.passages.lengths))
        figures["entropy"] = self._loss.entropy(queries.detach(), passages.detach(), excluded)
        return value

    def _share(self, batch: Batch) -> Share:
        return share_of(batch, self._forward, self.settings, self._known, self._world)

    # --- what is known of the encoder now ----------------------------------------------------------------------------

    def _match(self) -> float:
        """The scale at which the untrained encoder's softmax is as sharp as cosine's at alpha, on one batch."""
        from retriever.training.distributed import gather
        from retriever.training.loss import matched_scale

        own = one_a_query(self._held_out)
        size = min(self.settings.batch_size, len(own))
        batches = self._make_batches(own, size) if size >= self._world.size * 2 else self._batches
        share = self._share(batches.at(0))
        self.encoder.model.eval()
        # All processes need the same figure, so each looks at the whole batch.
        return matched_scale(
            gather(self._forward.vectors(share.queries)),
            gather(self._forward.vectors(share.passages)),
            self.settings.similarity,
            gather(share.excluded.byte().to(self.encoder.device)).bool(),
            reference=self.settings.alpha,
        )

    def _scores(self) -> dict[str, float]:
        """Development scores, the same in all processes; {} without any."""
        from retriever.training.distributed import from_first

        dev = self._dev
        if dev is None:
            return {}
        self.encoder.model.eval()
        return from_first(lambda: dict(dev(self.encoder, self._loss.current)))

    def _evaluate(self) -> dict[str, float]:
        scores = self._scores()
        if not scores:
            return scores
        first = next(iter(scores))
        progress = self._progress
        if progress.best is None or scores[first] > progress.best[first]:
            self._progress = replace(progress, best_step=progress.step, best=scores, worse=0)
            if self._world.is_first:
                self._save_best(scores)
        else:
            worse = progress.worse + 1
            stopped = 0 < self.settings.patience <= worse and progress.step < self.steps
            self._progress = replace(progress, worse=worse, stopped=stopped)
        return scores

    def _gammas(self) -> dict[str, float]:
        current = self._loss.current
        return {"gamma_q": current.gamma_q, "gamma_d": current.gamma_d}

    # --- writing -----------------------------------------------------------------------------------------------------

    @property
    def _save_every(self) -> int:
        return self.settings.save_every or self.settings.eval_every

    @staticmethod
    def _due(every: int, done: int) -> bool:
        return every > 0 and done % every == 0

    def _make_batches(self, pairs: Sequence[TrainingPair], size: int) -> Batches:
        settings = self.settings
        return Batches(pairs, size, settings.seed, hard_negatives=settings.hard_negatives, crops=settings.crops)

    def _write_row(self, figures: Mapping[str, float]) -> None:
        if self._world.is_first:
            self._figures.write(figures)

    def _save_state(self) -> None:
        if self._world.is_first:
            snapshot.save(self.folder / STATE, self._parameters, self._optimizer, self._progress)

    def _save_best(self, scores: Mapping[str, float]) -> None:
        current, encoder = self._loss.current, self.encoder
        spec = replace(encoder.spec, trained_for=current.name)
        note = ""
        if current.name == "learnable":
            note = "sentence-transformers has no such similarity and takes cosine; search with these gammas instead"
        manifest = CheckpointManifest(
            similarity=current.name,
            gamma_q=current.gamma_q,
            gamma_d=current.gamma_d,
            scale=self._loss.scale,
            base={"name": encoder.name, "weights": encoder.weights_hash},
            data_hash=self._data_hash,
            recipe=asdict(self.settings),
            dev=dict(scores),
            encoder=asdict(spec),
            step=self._progress.step,
            note=note,
        )
        save_checkpoint(
            self.folder / BEST,
            encoder,
            manifest,
            adapter=self._adapter,
            adapter_dtype=self._adapter_dtype,
            projection=self._projection,
        )
