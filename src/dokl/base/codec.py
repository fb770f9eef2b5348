"""Records to plain values and named arrays, and back: what files hold.

A record is a frozen dataclass of arrays, numbers, texts, None, tuples, dictionaries and further
records. `encode` gives a JSON value and arrays named by their path; `decode` takes only record
types that are named to it, never code, and refuses fields that are not of their declared type.

`encode(record, exact=False)` halves what covariances take: in single precision, as their Cholesky
factors. Rounded factors are factors of a covariance, while a rounded covariance is often none.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Point:
...     name: str
...     at: Array
>>> meta, arrays = encode(Point("a", np.zeros(2)))
>>> meta, list(arrays)
({'$': 'Point', 'name': 'a', 'at': {'@': 'at'}}, ['at'])
>>> decode(meta, arrays, [Point])
Point(name='a', at=array([0., 0.]))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from dokl.base import unlocked
from dokl.base.arrays import Array

# Metadata of a field that files do not hold; it has a default.
UNSAVED = {"saved": False}
# Of a field that files leave out while it has its default: what is saved without it, and
# fingerprints of that, are as they were before there was such a field.
IF_SET = {"if_set": True}

# Square matrices in Fortran's order of which the lower triangle counts, by the name of their field.
TRIANGLES = ("P", "zz", "lower")
# Those of them that are covariances.
COVARIANCES = ("P",)

Arrays = dict[str, Array]


def encode(record: object, exact: bool = True) -> tuple[Any, Arrays]:
    """A JSON value and the arrays that it names. Where not exact, covariances are in single
    precision; all else comes back with the same bits.
    """
    arrays: Arrays = {}
    return _pack(record, "", arrays, exact), arrays


def decode(meta: object, arrays: Mapping[str, Array], types: Iterable[type]) -> Any:
    """The record that was encoded; KeyError, TypeError or ValueError where that cannot be."""
    return _unpack(meta, arrays, {saved_name(each): each for each in types})


def saved_name(record: type) -> str:
    """What files call a type of records: its name, or the earlier one that `SAVED_AS` gives."""
    return str(vars(record).get("SAVED_AS", record.__name__))


def _pack(value: object, path: str, arrays: Arrays, exact: bool) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        inside = {
            each.name: _pack(getattr(value, each.name), _join(path, each.name), arrays, exact)
            for each in _saved(value)
            if not (each.metadata.get("if_set") and getattr(value, each.name) is each.default)
        }
        return {"$": saved_name(type(value)), **inside}
    if isinstance(value, np.ndarray):
        return _array(value, path, arrays, exact)
    if isinstance(value, tuple):
        parts = enumerate(value)
        return [_pack(each, _join(path, str(i)), arrays, exact) for i, each in parts]
    if isinstance(value, dict):
        pairs = enumerate(value.items())
        return {
            "{": [
                [_pack(k, "", arrays, exact), _pack(v, _join(path, str(i)), arrays, exact)]
                for i, (k, v) in pairs
            ]
        }
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        return {"#": repr(float(value))}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{path or 'the record'} is a {type(value).__name__}, which no file holds")


def _saved(record: Any) -> list[Field[Any]]:
    """The fields of a record, or of a type of records, that files hold."""
    return [each for each in fields(record) if each.metadata.get("saved", True)]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _array(value: Array, path: str, arrays: Arrays, exact: bool) -> dict[str, object]:
    name, square = path.rpartition(".")[2], value.ndim == 2 and len(set(value.shape)) == 1
    if name in TRIANGLES and square:
        rows, columns = np.tril_indices(len(value))
        rounded = name in COVARIANCES and not exact and len(value) > 0
        factor = np.array(value, order="F") if rounded else None
        if factor is not None and unlocked.potrf(factor):
            arrays[path] = factor[rows, columns].astype(np.float32)
            return {"@": path, "factor": len(value)}
        arrays[path] = np.ascontiguousarray(value[rows, columns])
        return {"@": path, "triangle": len(value)}
    arrays[path] = np.ascontiguousarray(value)
    return {"@": path}


def _unpack(value: object, arrays: Mapping[str, Array], types: Mapping[str, type]) -> Any:
    if isinstance(value, list):
        return tuple(_unpack(each, arrays, types) for each in value)
    if not isinstance(value, dict):
        return value
    if "@" in value:
        return _read(value, arrays)
    if "{" in value:
        pairs = ([_unpack(part, arrays, types) for part in pair] for pair in value["{"])
        return dict(pairs)
    if "#" in value:
        return float(value["#"])
    made, given = types[value["$"]], {k: v for k, v in value.items() if k != "$"}
    known = {each.name for each in _saved(made)}
    if unknown := set(given) - known:
        raise ValueError(f"a {value['$']} has no {', '.join(sorted(unknown))}")
    inside, hints = {k: _unpack(v, arrays, types) for k, v in given.items()}, _hints(made)
    for name, each in inside.items():
        if not _is(each, hints[name]):
            raise ValueError(f"{name} of a {value['$']} is {str(each)[:80]!r}, of the wrong type")
    return made(**inside)


@cache
def _hints(made: type) -> dict[str, Any]:
    """The declared types of a record's fields."""
    return get_type_hints(made)


def _is(value: object, hint: Any) -> bool:
    """Whether a value is of a declared type; whole numbers are real ones, true and false are not.

    >>> [_is(each, float | None) for each in (1, 1.5, True, None, "1")]
    [True, True, False, True, False]
    >>> _is((1, "a"), tuple[int, str]), _is((1, 2.5), tuple[int, ...])
    (True, False)
    """
    origin, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is(value, each) for each in inside)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        each = inside[:1] * len(value) if inside[-1] is ... else inside
        return len(each) == len(value) and all(map(_is, value, each))
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        return all(_is(k, inside[0]) and _is(v, inside[1]) for k, v in pairs)
    if hint in (int, float):
        kinds = (int,) if hint is int else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, NoneType if hint is None else origin or hint)


def _read(value: Mapping[str, Any], arrays: Mapping[str, Array]) -> Array:
    array = arrays[value["@"]]
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{value['@']} has values that are not finite")
    shape = next((name for name in ("triangle", "factor") if name in value), None)
    if shape is None:
        return array
    D = int(value[shape])
    if array.shape != (D * (D + 1) // 2,):
        raise ValueError(f"{value['@']} is {array.shape}, not the triangle of {D} rows")
    lower = np.zeros((D, D), order="F")
    lower[np.tril_indices(D)] = array
    return lower if shape == "triangle" else _product(lower)


def _product(lower: Array) -> Array:
    """L L' for L: (D, D), its lower triangle, in Fortran's order."""
    out = np.zeros_like(lower)
    with unlocked.one_thread():  # the same bits on every machine
        unlocked.syrk(1.0, lower.T, 0.0, out)
    return out
