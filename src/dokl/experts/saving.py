"""A bank as named arrays and plain settings, and back; `docs/format.md` lists them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.experts.bank import Bank, Generation, start
from dokl.experts.kept import Kept
from dokl.experts.kinds import Kind, Settings
from dokl.experts.maps import NestedMap
from dokl.experts.scaling import Scaling
from dokl.intervals import Tracker
from dokl.methods.squares.memory import Memory
from dokl.methods.squares.sums import Sums
from dokl.mixture import Mixture
from dokl.scales import Scales

Arrays = dict[str, Array]
MATRICES = ("P", "zz", "lower")  # in Fortran's order, of which the lower triangle counts


def to_meta(bank: Bank) -> dict[str, Any]:
    """Everything that is no array."""
    settings = asdict(bank.settings)
    for kind in settings["kinds"]:
        kind["memory"] = None if kind["memory"] == math.inf else kind["memory"]
    settings["bound"] = None if settings["bound"] == math.inf else settings["bound"]
    counts = {"n": bank.kept.n, "seen": bank.kept.seen, "mended": bank.mended}
    keys = [] if bank.now is None else [list(key) for key in bank.now.maps]
    return {"settings": settings, "d": bank.d, "m": bank.m, "maps": keys, **counts}


def to_arrays(bank: Bank) -> Arrays:
    """Every array by name."""
    n, now = bank.kept.n, bank.now
    out: Arrays = {f"kept.{k}": getattr(bank.kept, k)[:n] for k in ("X", "Y", "weight", "arrival")}
    if bank.kept.recent is not None:
        out |= dict(zip(("recent.X", "recent.Y", "recent.weight"), bank.kept.recent, strict=True))
    weight, first, second = bank.total
    out |= {"total.weight": np.array(weight), "total.first": first, "total.second": second}
    out |= _record("mixture", bank.mixture) | _record("tracker", bank.tracker)
    if now is None or bank.awake is None:
        return out
    out |= _record("inputs", now.inputs) | _record("targets", now.targets)
    out |= _record("scales", now.scales) | {"awake": bank.awake, "idle": bank.idle}
    out["surprise"] = np.array(bank.surprise)
    for i, made in enumerate(now.maps.values()):
        out |= _record(f"map.{i}.scales", made.scales)
        out |= {f"map.{i}.centres": made.centres, f"map.{i}.lower": _triangle(made.lower)}
    for i, (memory, kept) in enumerate(zip(bank.memories, bank.sums, strict=True)):
        out |= _record(f"expert.{i}", memory)
        out[f"expert.{i}.W"] = memory.W * (np.arange(len(memory.W)) < memory.n)[:, None]
        out |= {} if kept is None else _record(f"sums.{i}", kept)
    return out


def from_arrays(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> Bank:
    """The bank that was written; KeyError, TypeError or ValueError where that cannot be."""
    bank = start(int(meta["d"]), int(meta["m"]), _settings(meta["settings"]))
    d, m, E = bank.d, bank.m, len(bank.kinds)
    _check(arrays, {"kept.X": (meta["n"], d), "kept.Y": (meta["n"], m), "mixture.gain": (E,)})
    X, Y, weight, arrival = (arrays[f"kept.{k}"] for k in ("X", "Y", "weight", "arrival"))
    names = ("recent.X", "recent.Y", "recent.weight")
    recent = tuple(arrays[k] for k in names) if names[0] in arrays else None
    counts = int(meta["n"]), int(meta["seen"])
    kept = Kept(X, Y, weight, arrival, *counts, recent)  # type: ignore[arg-type]
    total = float(arrays["total.weight"]), arrays["total.first"], arrays["total.second"]
    mixture = _recorded(Mixture, "mixture", arrays)
    tracker = _recorded(Tracker, "tracker", arrays)
    bank = replace(bank, kept=kept, total=total, mixture=mixture, tracker=tracker)
    bank = replace(bank, mended=int(meta["mended"]))
    return bank if not meta["maps"] else _with_experts(bank, meta["maps"], arrays)


def _with_experts(bank: Bank, keys: Any, arrays: Mapping[str, Array]) -> Bank:
    maps = {}
    for i, (base, kernel) in enumerate(keys):
        centres = arrays[f"map.{i}.centres"]
        lower = _full(arrays[f"map.{i}.lower"], len(centres))
        own = _recorded(Scales, f"map.{i}.scales", arrays)
        maps[base, str(kernel)] = NestedMap(str(kernel), own, centres, lower)
    inputs, targets = (_recorded(Scaling, name, arrays) for name in ("inputs", "targets"))
    now = Generation(inputs, targets, _recorded(Scales, "scales", arrays), maps)
    known, totals = [], []
    for i, kind in enumerate(bank.kinds):
        D = maps[kind.features].width(kind.width)
        _check(arrays, {f"expert.{i}.theta": (bank.m, D)})
        known.append(_recorded(Memory, f"expert.{i}", arrays, D))
        kept = f"sums.{i}.zz" in arrays
        totals.append(_recorded(Sums, f"sums.{i}", arrays, D) if kept else None)
    total, count = arrays["surprise"].tolist()
    about: dict[str, Any] = {"memories": tuple(known), "sums": tuple(totals)}
    about |= {"idle": arrays["idle"], "surprise": (float(total), int(count))}
    return replace(bank, now=now, awake=arrays["awake"].astype(bool), **about)


def _settings(packed: Mapping[str, Any]) -> Settings:
    kinds = tuple(
        Kind(**{**kind, "memory": math.inf if kind["memory"] is None else kind["memory"]})
        for kind in packed["kinds"]
    )
    bound = math.inf if packed["bound"] is None else packed["bound"]
    lists = {name: tuple(packed[name]) for name in ("pilots", "levels")}
    return Settings(**{**packed, **lists, "kinds": kinds, "bound": bound})


def _record(prefix: str, record: Any) -> Arrays:
    """The fields of a record as arrays."""
    out = {}
    for each in fields(record):
        value = np.asarray(getattr(record, each.name))
        out[f"{prefix}.{each.name}"] = _triangle(value) if each.name in MATRICES else value
    return out


def _recorded(made: Any, prefix: str, arrays: Mapping[str, Array], D: int = 0) -> Any:
    """A record from its arrays, all of them finite; numbers are numbers again."""
    found = {}
    for each in fields(made):
        value = arrays[f"{prefix}.{each.name}"]
        if not np.isfinite(value).all():
            raise ValueError(f"{prefix}.{each.name} has values that are not finite")
        if each.name in MATRICES:
            value = _full(value, D)
        found[each.name] = value.item() if value.ndim == 0 else value
    return made(**found)


def _triangle(matrix: Array) -> Array:
    rows, columns = np.tril_indices(len(matrix))
    return np.ascontiguousarray(matrix[rows, columns])


def _full(triangle: Array, D: int) -> Array:
    rows, columns = np.tril_indices(D)
    matrix = np.zeros((D, D), order="F")
    matrix[rows, columns] = triangle  # ValueError where it does not fit
    return matrix


def _check(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if arrays[name].shape != tuple(shape):
            raise ValueError(f"{name} is {arrays[name].shape}, not {tuple(shape)}")
