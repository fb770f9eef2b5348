"""Banks as files had them before there was `dokl.base.codec`: arrays by names of their own.

They become what the codec writes now, and are checked as that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import isqrt
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.codec import TRIANGLES
from dokl.learning.drift import Drift, untrim_pair
from dokl.learning.experts.group_errors import GroupErrors
from dokl.learning.experts.places import GroupPlaces
from dokl.learning.experts.ranks import Ranks
from dokl.learning.experts.scaling import Scaling
from dokl.learning.intervals import Tracker
from dokl.learning.mixture import Mixture
from dokl.learning.scales import Scales
from dokl.learning.squares.memory import Memory
from dokl.learning.squares.sums import Sums

Arrays = Mapping[str, Array]


def translate(meta: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """The JSON value and the arrays that the codec would have written; KeyError, TypeError or
    ValueError where it holds no bank.
    """
    settings, known = _settings(meta["settings"]), dict(arrays)
    grouped = settings.get("grouped", False)
    recent, pending = (_rows(name, arrays) for name in ("recent", "pending"))
    rows = {name: {"@": f"kept.{name}"} for name in ("X", "Y", "weight", "arrival")}
    kept = {"$": "Kept", **rows, "n": meta["n"], "seen": meta["seen"]}
    bank = {
        "$": "Bank",
        **{name: meta[name] for name in ("d", "m", "mended")},
        "settings": settings,
        "kept": kept | {"recent": None if recent is None else list(recent.values())},
        "mixture": _record(Mixture, "mixture", arrays),
        "tracker": _record(Tracker, "tracker", arrays),
        "total": [_value("total.weight", arrays), {"@": "total.first"}, {"@": "total.second"}],
        "pending": None if pending is None else {"$": "Pending", **pending},
    }
    if settings.get("group_errors", False):
        mixture = _record(Mixture, "groups.mixture", arrays)
        bank["group_errors"] = _record(GroupErrors, "groups", arrays, mixture=mixture)
    if "drift.own" in arrays and not (settings["classes"] or grouped):
        known["drift.counts"] = untrim_pair(arrays["drift.own"], arrays["drift.even"])
        thetas = [{"@": f"drift.theta.{u}"} for u in range(len(arrays["drift.experts"]))]
        bank["drift"] = _record(Drift, "drift", known, thetas=thetas)
    if meta["maps"]:
        bank |= _experts(meta["maps"], grouped, known, len(settings["kinds"]))
    return bank, known


def _settings(packed: Mapping[str, Any]) -> dict[str, Any]:
    """None stood for infinity."""
    kinds = [{"$": "Kind", **kind, "memory": _number(kind["memory"])} for kind in packed["kinds"]]
    return {"$": "Settings", **packed, "kinds": kinds, "bound": _number(packed["bound"])}


def _number(value: object) -> Any:
    return {"#": "inf"} if value is None else value


def _rows(name: str, arrays: Arrays) -> dict[str, Any] | None:
    parts = ("X", "Y", "weight")
    there = f"{name}.X" in arrays
    return {part: {"@": f"{name}.{part}"} for part in parts} if there else None


def _experts(keys: Any, grouped: bool, arrays: dict[str, Array], E: int) -> dict[str, Any]:
    """What a bank with a map has beside; matrices that files left out are left out here."""
    ranks = _record(Ranks, "ranks", arrays) if "ranks.values" in arrays else None
    maps, places = [], None
    for i, (base, kernel) in enumerate(keys):
        name = f"map.{i}"
        made = {"kernel": kernel, "scales": _record(Scales, f"{name}.scales", arrays)}
        made |= {"centres": {"@": f"{name}.centres"}, "lower": {"@": f"{name}.lower"}}
        if f"{name}.lower" in arrays:
            made["lower"] = _value(f"{name}.lower", arrays)
        arrays.setdefault(f"{name}.lower", np.zeros((0, 0)))
        if grouped:
            there, learned = _record(GroupPlaces, f"{name}.places", arrays), base == "learned"
            places = there if learned else places
            made |= {"$": "GroupedMap", "places": there, "slopes": learned}
        else:
            by_ranks = ranks if str(base).endswith(" of ranks") else None
            made |= {"$": "NestedMap", "ranks": by_ranks}
        maps.append([[base, kernel], made])
    parts = {name: _record(Scaling, name, arrays) for name in ("inputs", "targets")}
    parts |= {"scales": _record(Scales, "scales", arrays), "maps": {"{": maps}}
    total, count = arrays["surprise"].tolist()
    arrays["awake"] = arrays["awake"].astype(bool)
    summed = [f"sums.{i}.zz" in arrays for i in range(E)]
    return {
        "now": {"$": "Generation", **parts, "places": places},
        "memories": [_record(Memory, f"expert.{i}", arrays) for i in range(E)],
        "sums": [_record(Sums, f"sums.{i}", arrays) if summed[i] else None for i in range(E)],
        "awake": {"@": "awake"},
        "idle": {"@": "idle"},
        "surprise": [float(total), int(count)],
    }


def _record(made: type, prefix: str, arrays: Arrays, **others: object) -> dict[str, Any]:
    """A record whose fields were arrays; others: fields that were not."""
    names = [each.name for each in fields(made) if each.name not in others]
    return {"$": made.__name__, **{n: _value(f"{prefix}.{n}", arrays) for n in names}, **others}


def _value(name: str, arrays: Arrays) -> Any:
    array = arrays[name]
    if array.ndim == 0:
        return array.item()
    if name.rpartition(".")[2] in TRIANGLES:
        return {"@": name, "triangle": (isqrt(8 * array.size + 1) - 1) // 2}
    return {"@": name}
