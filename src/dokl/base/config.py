"""TOML files as frozen dataclasses: a misspelled key names the nearest one.

`parse(cls, data, where)` fills a dataclass from a table, section by section. Fields that are
dataclasses are sections; every other field is a value whose type is checked. A field that was
renamed names its old key, `metadata={"earlier": ...}`, which is still read.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from dokl.base.errors import BadInput, UnknownName
from dokl.base.files import Json, read_named_text

T = TypeVar("T")


def read_toml(path: Path) -> Json:
    """The tables of a TOML file; a syntax error names file and line."""
    try:
        return parse_toml(read_named_text(path, "a TOML file"), path)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from None


def parse_toml(text: str, path: str | Path) -> Json:
    """The tables of a TOML text, as if it stood in this file."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise BadInput(f"{path} is not valid TOML: too deeply nested") from None
    except ValueError:  # of Python's int
        raise BadInput(f"{path} is not valid TOML: a number of too many digits") from None


def changed(data: Json, changes: Sequence[str]) -> Json:
    """Tables with some keys changed, each given as "section.key=value", the value as in TOML; a
    word without quotes is text.

    >>> changed({"run": {"runs": 10}}, ["run.runs=5", "sending.dtype=float32"])
    {'run': {'runs': 5}, 'sending': {'dtype': 'float32'}}
    """
    found = {name: dict(part) if isinstance(part, dict) else part for name, part in data.items()}
    for text in changes:
        place, equals, value = text.partition("=")
        section, dot, key = place.strip().partition(".")
        if not (equals and dot and section and key):
            raise BadInput(f"{text!r} is not a change: use section.key=value, as in the file")
        part = found.setdefault(section, {})
        if not isinstance(part, dict):
            raise BadInput(f"[{section}] must be a section, got {part!r}")
        part[key] = _parsed_value(value.strip())
    return found


def _parsed_value(value: str) -> object:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return value


def parse(cls: type[T], data: Json, where: str = "") -> T:
    """A dataclass from a table; unknown keys, missing keys and wrong types raise BadInput.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Run:
    ...     runs: int = 10
    >>> parse(Run, {"rusn": 5}, "[run]")
    Traceback (most recent call last):
    dokl.base.errors.UnknownName: unknown key in [run] 'rusn': did you mean 'runs'? ...
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    data = _rename_keys(fields, data)
    for key in data:
        if key not in fields:
            raise UnknownName(f"key in {where}" if where else "section", key, fields)
    values = {}
    for name, field in fields.items():
        place = f"[{name}]" if dataclasses.is_dataclass(hints[name]) else f"{where} {name}".strip()
        if name in data:
            values[name] = _value(hints[name], data[name], place)
        elif dataclasses.is_dataclass(hints[name]):
            values[name] = _value(hints[name], {}, place)
        elif _required(field):
            raise BadInput(f"{place} is missing")
    return cls(**values)


def _rename_keys(fields: dict[str, dataclasses.Field[Any]], data: Json) -> Json:
    """The table with the names of today: a field's metadata may have the one of earlier files."""
    earlier = {f.metadata["earlier"]: name for name, f in fields.items() if "earlier" in f.metadata}
    for old, new in earlier.items():
        if old in data and new in data:
            raise BadInput(f"{old} is the earlier name of {new}: give one of them")
    return {earlier.get(key, key): value for key, value in data.items()}


def _required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _value(hint: object, value: object, place: str) -> object:
    """The value as the hint wants it, or BadInput with place and reason."""
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise BadInput(f"{place} must be a section, got {value!r}")
        return parse(hint, value, place)  # type: ignore[arg-type]
    if _fits(hint, value):
        if hint is float and isinstance(value, int | float):
            return _real(value, place)
        return _frozen(value)
    raise BadInput(f"{place} must be {_words(hint)}, got {value!r}")


def _real(value: float, place: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise BadInput(f"{place} must be a number that can be used, got {value!r}") from None


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _fits(hint: Any, value: object) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(_fits(option, value) for option in arguments)
    if origin is tuple:
        return isinstance(value, list | tuple) and all(_fits(arguments[0], v) for v in value)
    if origin is dict:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is type(None):
        return value is None
    return isinstance(value, hint)


def _words(hint: Any) -> str:
    """A type in words, for messages."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_words(option) for option in arguments if option is not type(None))
    if origin is tuple:
        return f"a list, each entry {_words(arguments[0])}"
    if origin is dict:
        return "a table, like { key = 1 }"
    known = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    return known.get(hint, str(hint))
