"""What a run's figures depend on, in words, from its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def provenance(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, value) of everything that run.json says but the configuration's bulk; what it doesn't say is left out."""
    environment = manifest.get("environment") or {}
    config = manifest.get("config") or {}
    git = environment.get("git")
    questions = manifest.get("questions")
    facts: list[tuple[str, Any]] = [
        ("started", manifest.get("started")),
        ("command", manifest.get("command")),
        ("systems", [f"{name} ({mark})" for name, mark in (manifest.get("systems") or {}).items()]),
        ("baseline", manifest.get("baseline")),
        ("questions", f"{questions}, SHA-256 {manifest.get('questions_sha256')}" if questions is not None else None),
        *((f"data: {name}", _described(facts)) for name, facts in (manifest.get("datasets") or {}).items()),
        ("measures", manifest.get("measures")),
        ("prompt (SHA-256)", _described(manifest.get("prompt_sha256") or {})),
        ("decoding", _described(config.get("decoding") or {})),
        ("seed", manifest.get("seed")),
        ("batch size", manifest.get("batch_size")),
        ("revision", f"{git['commit']}{' with changes' if git['changed'] else ''}" if git else None),
        ("hardware", environment.get("hardware")),
        ("platform", environment.get("platform")),
        ("python", environment.get("python")),
        ("packages", [f"{name} {version}" for name, version in (environment.get("packages") or {}).items()]),
    ]
    return [(name, _text(value)) for name, value in facts if value not in (None, "", [])]


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _described(source: Mapping[str, Any]) -> str:
    """Names with their values; a description within another one is in brackets."""
    parts = []
    for name, value in source.items():
        if isinstance(value, Mapping):
            value = f"({_described(value)})"
        if value not in (None, "", [], ()):
            parts.append(f"{name} {_text(value)}")
    return ", ".join(parts)
