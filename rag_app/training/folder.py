"""The folder of a training: whether it holds this one, another one or nothing yet, and train.json, which says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rag_app.errors import ConfigError
from rag_app.out_folder import refuse_foreign
from rag_app.training.config import TrainConfig
from retriever.shards import write_text
from retriever.training import snapshot
from retriever.training.trainer import BEST, STATE
from retriever.wording import shown

TRAIN = "train.json"
MINED = "mined.jsonl"

_PACKAGES = ("magrag", "torch", "transformers", "sentence-transformers", "peft")
# Settings that change no hard negative. The matched scale takes some for the held-out pairs too.
_AFTER_MINING = ("similarity", "gamma_", "training.", "crop.", "lora.")
_MINED_FOR = ("training.scale",)


def check_folder(out: Path, config: TrainConfig, facts: Mapping[str, str]) -> list[tuple[str, Any, Any]] | None:
    """What stands in the way of this training in a folder.

    Args:
        out: The folder, there or not.
        config: The training.
        facts: Hashes of pairs and weights; {} where they are not known yet.

    Returns:
        None where the folder holds no training. Else the settings of the one there that are others, each as (name, value
        there, value here): [] for this very training, and some only where the one there never began to train.

    Raises:
        ConfigError: It holds another training that has begun (the first setting that differs is named), or something else.
    """
    path = out / TRAIN
    if not path.is_file():
        refuse_foreign(out, (), "a training")
        return None
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        before, known = there["config"], there["facts"]
    except KeyError as error:  # that of a reader's training has another form, and is whole
        raise ConfigError(f"{path} is not of an encoder's training: choose another --out") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is damaged: delete {out} and train again") from error
    now = json.loads(json.dumps(config.identity()))
    changed = [*_differences(before, now), *(_differences(known, dict(facts)) if facts else ())]
    if changed and _has_begun(out):
        name, old, new = changed[0]
        raise ConfigError(
            f"{out} holds a training with {name} = {shown(old)}, and this one has {shown(new)}: choose another --out, "
            "or delete that folder"
        )
    return changed


def claim(out: Path, config: TrainConfig, facts: Mapping[str, str], log: Callable[[str], None]) -> None:
    """Write train.json, unless the one there says the same; another training that never began makes way.

    Raises:
        ConfigError: As in `check_folder`.
    """
    changed = check_folder(out, config, facts)
    if changed == []:
        return
    for name, old, _ in (changed or [])[:1]:
        log(f"{out} held a training with {name} = {shown(old)} that never began: it makes way for this one")
    if not all(name.startswith(_AFTER_MINING) and name not in _MINED_FOR for name, *_ in changed or ()):
        (out / MINED).unlink(missing_ok=True)
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):  # a copy of the sources runs without being installed
            versions[name] = version(name)
    content = {"format": 1, "config": config.identity(), "facts": dict(facts), "versions": versions}
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / TRAIN, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _has_begun(out: Path) -> bool:
    """Whether anything was learnt there: a snapshot, or a checkpoint (perhaps moved aside by a kill)."""
    return snapshot.find(out / STATE) is not None or any(BEST in path.name for path in out.iterdir())


def _differences(before: Any, now: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    """Settings that are not the same in two trees, by dotted name."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*before, *now])
        parts = (_differences(before.get(key), now.get(key), f"{name}.{key}" if name else key) for key in keys)
        return [difference for part in parts for difference in part]
    return [] if before == now else [(name, before, now)]
