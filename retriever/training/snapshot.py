"""Where a training is, on disk: what it needs to go on as if it had never stopped.

Order, crops and dropout follow from the seed and the step, so no random state is kept: trained weights, Adam's two
averages and a few numbers are all there is. A snapshot is written under a temporary name, flushed and renamed; the one
before it is removed afterwards, so that a kill at any moment leaves a whole one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.errors import RetrieverError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Parameter

_WEIGHTS = "weights.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_PROGRESS = "progress.json"
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a snapshot knows beside weights.

    Attributes:
        step: Updates done.
        scale: The factor of the scores, which may have been matched.
        best_step: Where the best development scores were; -1 before any.
        best: Those scores.
        worse: Evaluations since then.
        stopped: Whether it stopped early here.
        untrained: The development scores before the first step; None in snapshots of versions that did not keep them.
    """

    step: int
    scale: float
    best_step: int = -1
    best: Mapping[str, float] | None = None
    worse: int = 0
    stopped: bool = False
    untrained: Mapping[str, float] | None = None


def save(
    folder: Path, parameters: Mapping[str, Parameter], optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Write a snapshot into `folder`, in place of the one before.

    Args:
        folder: Holds snapshots and nothing else.
        parameters: What is trained, by name.
        optimizer: Over these parameters.
        progress: Numbers beside them.
    """
    from safetensors.torch import save_file

    target = folder / f"{progress.step:08d}"
    partial = folder / f"{target.name}{_PARTIAL}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(
        {name: parameter.detach().cpu().contiguous() for name, parameter in parameters.items()}, partial / _WEIGHTS
    )
    save_file(_moments(parameters, optimizer), partial / _OPTIMIZER)
    (partial / _PROGRESS).write_text(json.dumps(asdict(progress), indent=2) + "\n", encoding="utf-8")
    flush(partial)
    os.replace(partial, target)
    for other in folder.iterdir():
        if other != target:
            shutil.rmtree(other, ignore_errors=True)


def find(folder: Path) -> Path | None:
    """The newest whole snapshot in `folder`, or None."""
    if not folder.is_dir():
        return None
    whole = [path for path in folder.iterdir() if path.is_dir() and not path.name.endswith(_PARTIAL)]
    return max(whole, key=lambda path: path.name, default=None)


def load(snapshot: Path, parameters: Mapping[str, Parameter], optimizer: torch.optim.Optimizer) -> Progress:
    """Put weights and Adam's averages back; returns the numbers.

    Raises:
        RetrieverError: A file is missing, cut short, or of another model.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights = load_file(snapshot / _WEIGHTS)
        moments = load_file(snapshot / _OPTIMIZER)
        progress = Progress(**json.loads((snapshot / _PROGRESS).read_text(encoding="utf-8")))
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])
                state: dict[str, Tensor] = {}
                for key in ("exp_avg", "exp_avg_sq", "step"):
                    if f"{name}:{key}" in moments:
                        value = moments[f"{name}:{key}"]
                        state[key] = value if key == "step" else value.to(parameter.device)
                if state:
                    optimizer.state[parameter] = state
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise RetrieverError(
            f"{snapshot} is damaged ({why}): delete {snapshot.parent}, and the same command trains from the beginning"
        ) from error
    return progress


def flush(folder: Path) -> None:
    """Have every file below `folder` on the disk before it is renamed."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as stream:
                os.fsync(stream.fileno())


def _moments(parameters: Mapping[str, Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {
        f"{name}:{key}": value.detach().cpu().contiguous()
        for name, parameter in parameters.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
