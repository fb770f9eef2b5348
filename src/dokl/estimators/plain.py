"""Parameters, labels and names as JSON and back: what a data file can hold of an estimator.

Text, numbers and lists are themselves; everything else is a dictionary with a single key that
begins with a dollar sign: {"$tuple": [...]}, {"$float": "nan"}, {"$kernel": {...}}.

>>> pack((1, 2.5)), unpack({"$tuple": [1, 2.5]})
({'$tuple': [1, 2.5]}, (1, 2.5))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dokl.base.errors import BadInput
from dokl.learning import kernels, losses, schedules
from dokl.learning.kernels import Kernel
from dokl.learning.losses import Loss
from dokl.learning.schedules import Schedule

# How each is told from others, and rebuilt from its description.
_MADE: dict[str, tuple[Any, Any]] = {
    "kernel": (Kernel, kernels.from_spec),
    "loss": (Loss, losses.from_spec),
    "schedule": (Schedule, schedules.from_spec),
}


def pack(value: Any) -> Any:
    """The value as JSON can write it; BadInput where that is impossible."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, list | tuple):
        packed = [pack(each) for each in value]
        return packed if isinstance(value, list) else {"$tuple": packed}
    for kind, (made, _) in _MADE.items():
        if isinstance(value, made):
            return {f"${kind}": pack_made(value)}
    raise BadInput(f"{value!r} cannot be saved: only text, numbers and tuples of them can")


def unpack(value: Any, objects: Mapping[str, Any] | None = None) -> Any:
    """The value that was packed; `objects` are the kernels, losses... that are code."""
    if isinstance(value, list):
        return [unpack(each, objects) for each in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "$float":
        return float(content)
    if tag == "$tuple":
        return tuple(unpack(each, objects) for each in content)
    return unpack_made(tag.removeprefix("$"), content, objects)


def pack_made(made: Kernel | Loss | Schedule) -> dict[str, Any]:
    """Name and numbers; of one that is code the name alone, since a data file holds no code."""
    spec = made.spec()
    rebuilt = next(rebuild for kind, rebuild in _MADE.values() if isinstance(made, kind))
    try:
        if rebuilt(spec) == made:
            return spec
    except (BadInput, TypeError, KeyError):
        pass  # none of the built-in ones
    return {"name": made.name, "custom": True}


def unpack_made(kind: str, spec: Mapping[str, Any], objects: Mapping[str, Any] | None) -> Any:
    """A kernel, loss or schedule from its description, or from `objects` if it is code."""
    expected, rebuilt = _MADE[kind]
    if not spec.get("custom"):
        return rebuilt(spec)
    name, given = spec["name"], objects or {}
    found = given.get(f"{kind}:{name}", given.get(name))  # the longer key where names collide
    if isinstance(found, expected) or (kind == "schedule" and callable(found)):
        return found
    if found is not None:
        raise BadInput(f"objects[{name!r}] must be a {kind}, got {found!r}")
    raise BadInput(
        f"this model has a {kind} of your own, {name!r}: it is Python code, which a model file "
        f"does not hold. Pass it to load: load(path, objects={{{name!r}: ...}})"
    )
