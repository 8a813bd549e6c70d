"""Where a tuning is, on disk: trained values, Adam's averages and the number of updates, as one folder that a rename makes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator.errors import GeneratorError

if TYPE_CHECKING:
    import torch

STATE, _OLD, _PART = "state", ".state.old", ".state.part"
_TENSORS, _FACTS = "state.safetensors", "state.json"


def save(
    folder: Path,
    parameters: Sequence[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    done: int,
    settings: Mapping[str, Any],
) -> None:
    """Write a snapshot; it appears by a rename, so that a kill leaves the one before or the new one."""
    from safetensors.torch import save_file

    state, old, part = folder / STATE, folder / _OLD, folder / _PART
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    tensors: dict[str, torch.Tensor] = {}
    for number, parameter in enumerate(parameters):
        tensors[f"{number}.value"] = parameter.detach().cpu().contiguous()
        for name, value in optimizer.state[parameter].items():
            tensors[f"{number}.{name}"] = value.detach().cpu().contiguous()
    save_file(tensors, part / _TENSORS)
    (part / _FACTS).write_text(json.dumps({"done": done, **settings}), encoding="utf-8")
    for path in part.iterdir():
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())
    shutil.rmtree(old, ignore_errors=True)
    if state.is_dir():
        os.replace(state, old)
    os.replace(part, state)
    shutil.rmtree(old, ignore_errors=True)


def find(folder: Path) -> Path | None:
    """The snapshot in a tuning's folder, or the one before where a kill left no other; None where nothing was learnt."""
    return next((path for path in (folder / STATE, folder / _OLD) if path.is_dir()), None)


def load(
    folder: Path,
    parameters: Sequence[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    settings: Mapping[str, Any],
) -> int:
    """Put values and averages back; returns the updates done, 0 where there is no snapshot.

    Raises:
        GeneratorError: It is of other settings, or damaged.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    state = find(folder)
    if state is None:
        return 0
    try:
        saved = json.loads((state / _FACTS).read_text(encoding="utf-8"))
        done = int(saved.pop("done"))
        if saved != settings:
            raise GeneratorError(f"{folder} holds a training with other settings; give another folder")
        tensors = load_file(state / _TENSORS)
        for number, parameter in enumerate(parameters):
            with torch.no_grad():
                parameter.copy_(tensors[f"{number}.value"])
            names = [name for name in ("step", "exp_avg", "exp_avg_sq") if f"{number}.{name}" in tensors]
            optimizer.state[parameter] = {
                name: tensors[f"{number}.{name}"].to("cpu" if name == "step" else parameter.device) for name in names
            }
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RuntimeError, SafetensorError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise GeneratorError(
            f"{state} is damaged ({why}): delete it, and the same command trains from the beginning"
        ) from error
    return done
