"""Settings from several places laid over each other, with the place of each remembered for messages.

Nothing here knows a setting by name: keys are checked against the fields of the pydantic models it is given.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rag_app.errors import ConfigError
from retriever.wording import shown

Tree = TypeVar("Tree", bound=BaseModel)

ENVIRONMENT_PREFIX = "MAGRAG_"
# Read by the set-up (rag_app/bootstrap.py), and often still exported when a command runs.
NOT_SETTINGS = frozenset({"MAGRAG_EXTRA"})

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": 'a list, such as ["a", "b"]',
    "list": 'a list, such as ["a", "b"]',
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


class Layers:
    """Values gathered so far.

    Args:
        root: The model of the whole tree.
        defaults: Its values before anything is read.

    Attributes:
        values: Nested dictionaries, as the model takes them.
        origins: Where each value that isn't a default came from, by its path.
    """

    def __init__(self, root: type[BaseModel], defaults: dict[str, Any]) -> None:
        self.root = root
        self.values = defaults
        self.origins: dict[tuple[str, ...], str] = {}

    def add_file(self, path: Path) -> None:
        """Lay a TOML file over what there is.

        Raises:
            ConfigError: It cannot be read, isn't TOML, or has unknown keys.
        """
        try:
            data = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
        except OSError as error:
            raise ConfigError(f"cannot read the configuration {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"the configuration {path} is not UTF-8 text: save it as UTF-8") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"the configuration {path} is not valid TOML: {error}") from error
        for keys, value in self._leaves(data, self.root, (), str(path)):
            self._put(keys, value, str(path))

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Lay the MAGRAG_ variables over what there is; names are matched without regard to case.

        Raises:
            ConfigError: A variable that names no setting.
        """
        for variable, raw in sorted(environ.items()):
            if variable.upper().startswith(ENVIRONMENT_PREFIX) and variable.upper() not in NOT_SETTINGS:
                written = variable[len(ENVIRONMENT_PREFIX) :].lower().split("__")
                self._put_text(tuple(self._spelling(written)), raw, f"environment variable {variable}")

    def add_override(self, override: str) -> None:
        """Lay one "a.b=value" over what there is.

        Raises:
            ConfigError: It has another form or names no setting.
        """
        key, equals, raw = override.partition("=")
        try:
            keys = tuple(_only_path(tomllib.loads(f"{key} = 0"))) if equals else ()
        except tomllib.TOMLDecodeError:
            keys = ()
        if not keys:
            raise ConfigError(f'--set takes KEY=VALUE, such as retrievers.qnorm.k=5, got "{override}"')
        self._put_text(keys, raw.strip(), f"--set {key.strip()}")

    def was_set(self, *start: str) -> bool:
        """Whether anything but the defaults set a value below that path."""
        return any(keys[: len(start)] == start for keys in self.origins)

    def _put(self, keys: tuple[str, ...], value: Any, origin: str) -> None:
        table = self.values
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        table[keys[-1]] = value
        self.origins[keys] = origin

    def _put_text(self, keys: tuple[str, ...], raw: str, origin: str) -> None:
        """Store a value that was written as text, which is TOML, or a plain string where text is wanted anyway."""
        node: Any = self.root
        for depth, key in enumerate(keys):
            node = self._step(node, keys[:depth], key, origin)
            if get_origin(_container(node)) is dict and depth + 1 < len(keys):
                path, new = keys[: depth + 1], keys[depth + 1]
                present = _at(self.values, path)
                # A table of a new name lacks what it needs; a value, such as a column's name, is whole.
                if new not in present and _table(get_args(node)[1]) is not None:
                    close = _closest(new, present)
                    hint = _did_you_mean((*path, close)) if close else ""
                    name = ".".join((*path, new))
                    raise ConfigError(f'unknown setting "{name}"{hint} ({origin}); new ones are made in a file')
        if _table(node) is not None or get_origin(_container(node)) is dict:
            raise ConfigError(f"{'.'.join(keys)} is a table: set one of its keys ({origin})")
        value = _from_text(raw, node)
        self._put(keys, value, origin)

    def _leaves(
        self, data: Mapping[str, Any], node: Any, path: tuple[str, ...], origin: str
    ) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Every value of nested tables with its path; keys are checked on the way."""
        for key, value in data.items():
            below = self._step(node, path, key, origin)
            here = (*path, key)
            if _table(below) is None and get_origin(_container(below)) is not dict:
                yield here, value
            elif not isinstance(value, Mapping):
                raise ConfigError(f"{'.'.join(here)} must be a table [{'.'.join(here)}], got {shown(value)} ({origin})")
            elif not value and len(here) > 1:  # an empty [retrievers.NAME] still makes one
                table = self.values
                for name in here:
                    table = table.setdefault(name, {})
                self.origins[here] = origin
            else:
                yield from self._leaves(value, below, here, origin)

    def _step(self, node: Any, path: tuple[str, ...], key: str, origin: str) -> Any:
        """The type below a key.

        Raises:
            ConfigError: There is no such key.
        """
        table, container = _table(node), _container(node)
        if table is not None:
            if key in table.model_fields:
                return table.model_fields[key].annotation
            raise ConfigError(f'unknown setting "{".".join((*path, key))}"{self._hint(table, path, key)} ({origin})')
        if get_origin(container) is dict:
            return get_args(container)[1]
        raise ConfigError(f'unknown setting "{".".join((*path, key))}": {".".join(path)} has no keys ({origin})')

    def _hint(self, table: type[BaseModel], path: tuple[str, ...], key: str) -> str:
        """A name like this one in the same table, else this very name in another."""
        if close := _closest(key, table.model_fields):
            return _did_you_mean((*path, close))
        return next((_did_you_mean(other) for other in setting_paths(self.root) if other[-1] == key), "")

    def wanted(self, keys: Iterable[str]) -> str:
        """What a setting must be, in the words of its field's description; "" where there are none."""
        node: Any = self.root
        description = ""
        for key in keys:
            table = _table(node)
            if table is not None and key in table.model_fields:
                description = table.model_fields[key].description or ""
            node = self._step(node, (), key, "")
        return description

    def origin(self, path: str) -> str:
        """Where the setting that a dotted path (or a message that begins with one) names came from, in brackets."""
        inside = [keys for keys in self.origins if re.match(re.escape(".".join(keys)) + r"(?![\w-])", path)]
        return f" ({self.origins[max(inside, key=len)]})" if inside else ""

    def _spelling(self, written: list[str]) -> Iterator[str]:
        """Keys in lower case as they are really spelt: variables cannot hold capitals, dots and hyphens."""
        table: Any = self.values
        for key in written:
            names = table if isinstance(table, Mapping) else {}
            key = next((name for name in names if re.sub(r"\W", "_", name.lower()) == key), key)
            yield key
            table = names.get(key)


def setting_paths(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every setting of a model; NAME stands where people choose names."""
    table, container = _table(node), _container(node)
    if table is not None:
        for key, field in table.model_fields.items():
            yield from setting_paths(field.annotation, (*path, key))
    elif get_origin(container) is dict:
        yield from setting_paths(get_args(container)[1], (*path, "NAME"))
    else:
        yield path


def layered(root: type[BaseModel], defaults: dict[str, Any], path: str | Path, overrides: Iterable[str]) -> Layers:
    """A file over the defaults, and overrides ("a.b=value" each) over both.

    Raises:
        ConfigError: The file or an override cannot be used.
    """
    layers = Layers(root, defaults)
    layers.add_file(Path(path).expanduser())
    for override in overrides:
        layers.add_override(override)
    return layers


def validated(root: type[Tree], layers: Layers) -> Tree:
    """The layers as the tree that they are of.

    Raises:
        ConfigError: The first value that cannot be used.
    """
    try:
        return root.model_validate(layers.values)
    except ValidationError as error:
        raise ConfigError(describe(error, layers)) from error


def describe(error: ValidationError, layers: Layers) -> str:
    """The first mistakes of a validation in one line."""
    details = error.errors(include_url=False)
    # A list one of whose values is wrong is also told to be too short, since the value does not count.
    inner = {detail["loc"][:-1] for detail in details}
    lines = [_describe_one(own, layers) for own in details if own["type"] != "too_short" or own["loc"] not in inner]
    more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
    return "; ".join(lines[:3]) + more


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean "..."?` where some known name is close, else ""."""
    close = _closest(name, known)
    return _did_you_mean((close,)) if close else ""


def _describe_one(detail: Any, layers: Layers) -> str:
    keys = tuple(str(part) for part in detail["loc"])
    path, kind, value, context = ".".join(keys), detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "value_error":
        return str(context["error"]) + layers.origin(str(context["error"]))
    place = layers.origin(path)
    if kind == "missing" and isinstance(detail["loc"][-1], int):
        path = ".".join(keys[:-1])
        return f"{path} must have at least {detail['loc'][-1] + 1} values, got {shown(value)}{layers.origin(path)}"
    if kind == "too_long":
        return f"{path} must have at most {context['max_length']} values, got {shown(value)}{place}"
    if kind == "missing":
        # A table that lacks what every table needs is often a misspelt one.
        table, name = keys[:-2], keys[-2]
        close = _closest(name, (other for other in _at(layers.values, table) if other != name))
        hint = _did_you_mean((*table, close)) if close else ""
        below = next((origin for path, origin in layers.origins.items() if path[: len(keys) - 1] == keys[:-1]), "")
        return f"{path} is missing: [{'.'.join(keys[:-1])}] needs it{hint}" + (f" ({below})" if below else "")
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = context[key]
        return f"{path} must be {words} {bound if isinstance(bound, int) else f'{bound:g}'}, got {shown(value)}{place}"
    if kind == "literal_error":
        options = re.findall(r"'([^']*)'", context["expected"])
        hint = nearest(value, options) if isinstance(value, str) else ""
        return f"{path} must be one of {', '.join(map(shown, options))}, got {shown(value)}{hint}{place}"
    if kind in ("string_too_short", "too_short"):
        return f"{path} must not be empty{place}"
    if kind == "string_pattern_mismatch":
        # Not shown: a key or a password may have been put here by mistake.
        return f"{path} must be {layers.wanted(keys) or 'of the form ' + context['pattern']}{place}"
    if kind == "finite_number":
        return f"{path} must be a finite number, got {shown(value)}{place}"
    wanted = _KINDS.get(kind.partition("_")[0], "")
    return f"{path} must be {wanted}, got {shown(value)}{place}" if wanted else f"{path}: {detail['msg']}{place}"


def _at(values: Mapping[str, Any], keys: Iterable[str]) -> Mapping[str, Any]:
    """The table at a path; {} where nothing was set there."""
    for key in keys:
        values = values.get(key, {})
    return values


def _closest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name.lower(), list(known), n=1)), None)


def _did_you_mean(keys: Iterable[str]) -> str:
    return f'; did you mean "{".".join(keys)}"?'


def _from_text(raw: str, annotation: Any) -> Any:
    try:
        parsed = tomllib.loads(f"value = {raw}")
        value = parsed["value"] if len(parsed) == 1 else raw
    except tomllib.TOMLDecodeError:
        return raw
    # `corpus=2024` names a file; the number would be refused.
    wants_text = annotation is str or (get_origin(annotation) is UnionType and str in get_args(annotation))
    return raw if wants_text and not isinstance(value, str) else value


def _only_path(tables: Mapping[str, Any]) -> Iterator[str]:
    while isinstance(tables, Mapping):
        if len(tables) != 1:
            return
        key, tables = next(iter(tables.items()))
        yield key


def _table(node: Any) -> type[BaseModel] | None:
    return node if isinstance(node, type) and issubclass(node, BaseModel) else None


def _container(node: Any) -> Any:
    return node if get_origin(node) is dict else None
