"""A bank as named arrays and plain settings, and back; `docs/format.md` lists them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.files import MOST, real, whole
from dokl.base.random_numbers import check_seed
from dokl.learning import drift
from dokl.learning.drift import Drift
from dokl.learning.experts.bank import Bank, Generation, Pending, start
from dokl.learning.experts.group_errors import MEMORIES, MOST_GROUPS, GroupErrors
from dokl.learning.experts.kept import Kept
from dokl.learning.experts.kinds import KEPT, Kind, MapKey, Settings, begin_row, next_pilot
from dokl.learning.experts.maps import GroupedMap, NestedMap, factor
from dokl.learning.experts.places import DIMENSIONS, GroupPlaces
from dokl.learning.experts.ranks import Ranks, checked_ranks
from dokl.learning.experts.scaling import Scaling
from dokl.learning.intervals import Tracker, check_level
from dokl.learning.mixture import Mixture
from dokl.learning.scales import KERNELS, Scales
from dokl.learning.squares.memory import LIST, Memory
from dokl.learning.squares.sums import Sums

Arrays = dict[str, Array]
_RECENT = "recent.X", "recent.Y", "recent.weight"
_PENDING = "pending.X", "pending.Y", "pending.weight"
MATRICES = ("P", "zz", "lower")  # in Fortran's order, of which the lower triangle counts


def to_meta(bank: Bank) -> dict[str, Any]:
    """Everything that is no array."""
    counts = {"n": bank.kept.n, "seen": bank.kept.seen, "mended": bank.mended}
    keys = [] if bank.now is None else [list(key) for key in bank.now.maps]
    return {"settings": _packed(bank.settings), "d": bank.d, "m": bank.m, "maps": keys, **counts}


def _packed(settings: Settings) -> dict[str, Any]:
    """None stands for infinity."""
    packed = asdict(settings)
    for kind in packed["kinds"]:
        kind["memory"] = None if kind["memory"] == math.inf else kind["memory"]
    packed["bound"] = None if packed["bound"] == math.inf else packed["bound"]
    return packed


def to_arrays(bank: Bank) -> Arrays:
    """Every array by name."""
    n, now = bank.kept.n, bank.now
    out: Arrays = {f"kept.{k}": getattr(bank.kept, k)[:n] for k in ("X", "Y", "weight", "arrival")}
    if bank.kept.recent is not None:
        out |= dict(zip(_RECENT, bank.kept.recent, strict=True))
    if bank.pending is not None:
        out |= dict(zip(_PENDING, bank.pending.rows(), strict=True))
    weight, first, second = bank.total
    out |= {"total.weight": np.array(weight), "total.first": first, "total.second": second}
    out |= _record("mixture", bank.mixture) | _record("tracker", bank.tracker)
    out |= {} if bank.drift is None else _drift(bank.drift)
    out |= _group_errors(bank.group_errors)
    if now is None or bank.awake is None:
        return out
    out |= _record("inputs", now.inputs) | _record("targets", now.targets)
    out |= _record("scales", now.scales) | {"awake": bank.awake, "idle": bank.idle}
    out["surprise"] = np.array(bank.surprise)
    for i, made in enumerate(now.maps.values()):
        out |= _record(f"map.{i}.scales", made.scales)
        out[f"map.{i}.centres"] = made.centres
        if isinstance(made, GroupedMap):
            out |= _record(f"map.{i}.places", made.places)
            out[f"map.{i}.lower"] = _triangle(made.lower)
        elif made.ranks is not None:
            out |= _record("ranks", made.ranks)
    for i, (memory, kept) in enumerate(zip(bank.memories, bank.sums, strict=True)):
        out |= _record(f"expert.{i}", memory)
        out |= {f"expert.{i}.W": memory.W[: memory.n], f"expert.{i}.c": memory.c[: memory.n]}
        out |= {} if kept is None else _record(f"sums.{i}", kept)
    return out


def _drift(known: Drift) -> Arrays:
    names = [each.name for each in fields(known) if each.name not in ("counts", "thetas")]
    out = {f"drift.{name}": np.asarray(getattr(known, name)) for name in names}
    out |= {f"drift.theta.{u}": theta for u, theta in enumerate(known.thetas)}
    own, even = map(drift.trimmed, known.counts)
    return out | {"drift.own": own, "drift.even": even}


def _group_errors(known: GroupErrors | None) -> Arrays:
    """What is known of groups, if anything."""
    if known is None:
        return {}
    parts = _record("groups", replace(known, mixture=None))  # type: ignore[arg-type]
    del parts["groups.mixture"]
    return parts | _record("groups.mixture", known.mixture)


def from_arrays(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> Bank:
    """The bank that was written; KeyError, TypeError or ValueError where that cannot be."""
    n, d = arrays["kept.X"].shape
    m = len(arrays["total.first"])
    for name, size in (("n", n), ("d", d), ("m", m)):
        whole(name, meta[name], size, size)
    settings = _settings(meta["settings"], n)
    if settings.grouped and d < 2:
        raise ValueError("there are groups, and no input")
    bank, L, E = start(d, m, settings), len(settings.levels), len(settings.kinds)
    kept = _kept(arrays, n, d, m, whole("seen", meta["seen"], n))
    _check(arrays, {"total.weight": (), "total.first": (m,), "total.second": (m,)})
    total = float(arrays["total.weight"]), arrays["total.first"], arrays["total.second"]
    mixture = _recorded(Mixture, "mixture", arrays, gain=(E,), square=(E,), largest=())
    tracker = _recorded(Tracker, "tracker", arrays, levels=(L,), width=(m, L), energy=(m, L))
    bank = replace(bank, kept=kept, total=total, mixture=mixture, tracker=tracker)
    rows = _rows(_PENDING, arrays, d, m)
    waiting = None if rows is None else Pending(*rows)
    bank = replace(bank, mended=whole("mended", meta["mended"]), pending=waiting)
    check_pending(bank)
    if settings.group_errors:
        bank = replace(bank, group_errors=_known_errors(arrays, m))
    bank = bank if not meta["maps"] else _with_experts(bank, meta["maps"], arrays)
    unwatched = settings.classes or settings.grouped
    return bank if unwatched else replace(bank, drift=_drift_of(bank, arrays))


def _drift_of(bank: Bank, arrays: Mapping[str, Array]) -> Drift:
    """What was counted of copies, and these; nothing yet in files of earlier versions."""
    m, E = bank.m, len(bank.kinds)
    if "drift.own" not in arrays:
        return drift.start(m)
    counts = np.stack([drift.untrimmed(arrays[f"drift.{kind}"], m) for kind in ("own", "even")])
    C, U = len(arrays["drift.rows"]), len(arrays["drift.experts"])
    shapes: dict[str, Any] = {"rows": (C,), "experts": (U,)}
    shapes |= {"weights": (C, U), "variance": (C, U, m), "spread": (C, m), "since": ()}
    shapes |= {name: arrays[f"drift.{name}"].shape for name in ("unsure", "sd")}
    _check(arrays, {f"drift.{name}": shape for name, shape in shapes.items()})
    found: dict[str, Any] = {name: arrays[f"drift.{name}"] for name in shapes}
    experts, rows = found["experts"], found["rows"]
    thetas = [arrays[f"drift.theta.{u}"] for u in range(U)]
    finite = all(np.isfinite(each).all() for each in (*found.values(), *thetas))
    right = (
        finite
        and shapes["unsure"] in ((1,), (E,))
        and shapes["sd"] in ((1,), (m,))
        and rows.dtype.kind == experts.dtype.kind == "i"
        and set(experts.tolist()) <= set(range(len(bank.memories)))
        and all(1 <= row <= bank.seen for row in rows.tolist())
    )
    if not right or any(
        theta.shape != (C, *bank.memories[e].theta.shape)
        for theta, e in zip(thetas, experts.tolist(), strict=True)
    ):
        raise ValueError("what is known of drift does not fit the experts")
    found |= {"counts": counts, "since": whole("since", found["since"].item())}
    return Drift(**found, thetas=tuple(thetas))


def _kept(arrays: Mapping[str, Array], n: int, d: int, m: int, seen: int) -> Kept:
    shapes: dict[str, tuple[int, ...]] = {"kept.X": (n, d), "kept.Y": (n, m)}
    shapes |= {"kept.weight": (n,), "kept.arrival": (n,)}
    _check(arrays, shapes)
    X, Y, weight, arrival = (arrays[f"kept.{k}"] for k in ("X", "Y", "weight", "arrival"))
    return Kept(X, Y, weight, arrival, n, seen, _rows(_RECENT, arrays, d, m))


def _rows(
    names: tuple[str, str, str], arrays: Mapping[str, Array], d: int, m: int
) -> tuple[Array, Array, Array] | None:
    """X, Y and weight by these names, if they are there."""
    if names[0] not in arrays:
        return None
    r = len(arrays[names[0]])
    _check(arrays, dict(zip(names, ((r, d), (r, m), (r,)), strict=True)))
    X, Y, weight = (arrays[name] for name in names)
    return X, Y, weight


def check_pending(bank: Bank) -> None:
    """Refuse rows after a pilot where there is none, or more than there can be."""
    if bank.pending is None:
        return
    began, n = bank.kept.seen, len(bank.pending.X)
    pilot = next_pilot(bank.settings.pilots, began)
    if not begin_row(pilot) <= began <= began + n < pilot:
        raise ValueError(f"{n} rows wait for a pilot that began at row {began}, which cannot be")


def _with_experts(bank: Bank, keys: Any, arrays: Mapping[str, Array]) -> Bank:
    maps: dict[Any, Any] = {}
    d, m, E = bank.d, bank.m, len(bank.kinds)
    ranked, ranks = {kind.features for kind in bank.kinds if kind.ranked}, None
    if ranked:
        ranks = checked_ranks(Ranks(arrays["ranks.values"], arrays["ranks.scores"]), d)
    inputs, places = d - bank.settings.grouped, None
    for i, (base, kernel) in enumerate(keys):
        centres = arrays[f"map.{i}.centres"]
        M = len(centres)
        _check(arrays, {f"map.{i}.centres": (M, d)})
        if f"map.{i}.lower" in arrays or bank.settings.grouped:  # as in all files of before
            lower = _full(arrays[f"map.{i}.lower"], M)
        else:
            _check_used(bank, (base, _kernel(kernel)), arrays, M)
            lower = factor(kernel, centres)
        own = _scales(f"map.{i}.scales", arrays, inputs)
        if bank.settings.grouped:
            there, learned = _places(f"map.{i}.places", arrays), base == "learned"
            places = there if learned else places
            made: Any = GroupedMap(kernel, own, there, centres, lower, learned)
        else:
            by_ranks = ranks if (base, kernel) in ranked else None
            made = NestedMap(kernel, own, centres, lower, by_ranks)
        maps[base, _kernel(kernel)] = made
    if bank.settings.grouped and places is None:
        raise ValueError("there are groups, and no map on which their places were learned")
    now = Generation(
        _scaling("inputs", arrays, inputs), _scaling("targets", arrays, m),
        _scales("scales", arrays, inputs), maps, places,
    )  # fmt: skip
    known, totals = [], []
    for i, kind in enumerate(bank.kinds):
        D = maps[kind.features].width(kind.width)
        known.append(_memory(f"expert.{i}", arrays, D, m))
        kept = f"sums.{i}.zz" in arrays
        totals.append(_sums(f"sums.{i}", arrays, D, m) if kept else None)
    _check(arrays, {"awake": (E,), "idle": (E,), "surprise": (2,)})
    total, count = arrays["surprise"].tolist()
    about: dict[str, Any] = {"memories": tuple(known), "sums": tuple(totals)}
    about |= {"idle": arrays["idle"], "surprise": (float(total), int(count))}
    return replace(bank, now=now, awake=arrays["awake"].astype(bool), **about)


def _check_used(bank: Bank, key: MapKey, arrays: Mapping[str, Array], M: int) -> None:
    """Refuse a map of more centres than its experts have matrices for, before its own is made."""
    d, used = bank.d, 0
    for i, kind in enumerate(bank.kinds):
        if kind.features == key:
            own = M if kind.width is None else min(M, kind.width)
            D = 1 + d + own
            _check(arrays, {f"expert.{i}.P": (D * (D + 1) // 2,)})
            used = max(used, own)
    if used < M:
        raise ValueError(f"a map of {M} centres, of which {used} are used")


def check_settings(settings: Settings, n: int) -> None:
    """Refuse settings that cannot be; n: rows that are kept."""
    _settings(_packed(settings), n)


def _settings(packed: Mapping[str, Any], n: int) -> Settings:
    """n: rows that are kept, so many may be."""
    kinds = tuple(map(_kind, packed["kinds"]))
    bound = math.inf if packed["bound"] is None else real("bound", packed["bound"], above=True)
    pilots = tuple(whole("a pilot", each, 1) for each in packed["pilots"])
    if not kinds or list(pilots) != sorted(set(pilots)):
        raise ValueError("there are no experts, or pilots that do not follow each other")
    whole("most", packed["most"], 1, MOST)
    whole("kept", packed["kept"], max(1, n), max(KEPT, n))
    whole("classes", packed["classes"], 0, MOST)
    check_seed(packed["seed"])
    for name in ("sums", "grouped", "group_errors"):
        if not isinstance(packed.get(name, False), bool):
            raise ValueError(f"{name} is {packed[name]!r}: true or false is expected")
    if packed.get("grouped", False) and any(kind.ranked for kind in kinds):
        raise ValueError("experts on ranks cannot learn rows of groups")
    if packed.get("group_errors", False) and not packed.get("grouped", False):
        raise ValueError("errors of groups are remembered, and there are no groups")
    lists = {"pilots": pilots, "levels": tuple(map(check_level, packed["levels"]))}
    return Settings(**{**packed, **lists, "kinds": kinds, "bound": bound})


def _kind(packed: Mapping[str, Any]) -> Kind:
    memory, width = packed["memory"], packed["width"]
    memory = math.inf if memory is None else real("memory", memory, 1.0)
    if packed["map"] != "learned":
        real("map", packed["map"], above=True)
    if width is not None:
        whole("width", width, 0, MOST)
    if not isinstance(packed.get("ranked", False), bool):
        raise ValueError(f"ranked is {packed['ranked']!r}: true or false is expected")
    _kernel(packed["kernel"])
    return Kind(**{**packed, "memory": memory})


def _kernel(name: Any) -> str:
    if name not in KERNELS:
        raise ValueError(f"{name!r} is no kernel")
    return str(name)


# -- records -----------------------------------------------------------------------------------
def _scales(prefix: str, arrays: Mapping[str, Array], d: int) -> Scales:
    linear = (d,) if arrays[f"{prefix}.linear"].ndim else ()
    own: Scales = _recorded(
        Scales, prefix, arrays, lengths=(d,), linear=linear, amplitude=(), noise=(), offset=()
    )
    if not (own.lengths > 0).all():
        raise ValueError(f"{prefix}.lengths must be above 0")
    return own


def _scaling(prefix: str, arrays: Mapping[str, Array], k: int) -> Scaling:
    made: Scaling = _recorded(Scaling, prefix, arrays, centre=(k,), size=(k,))
    if not (made.size > 0).all():
        raise ValueError(f"{prefix}.size must be above 0")
    return made


def _places(prefix: str, arrays: Mapping[str, Array]) -> GroupPlaces:
    G = len(arrays[f"{prefix}.numbers"])
    shapes: dict[str, Any] = {"numbers": (G,), "points": (G, DIMENSIONS), "alone": (G,)}
    made: GroupPlaces = _recorded(GroupPlaces, prefix, arrays, **shapes)
    _ascending(f"{prefix}.numbers", made.numbers)
    if not (made.alone > 0).all():
        raise ValueError(f"{prefix}.alone must be above 0")
    return made


def _known_errors(arrays: Mapping[str, Array], m: int) -> GroupErrors:
    """What is known of the errors of groups."""
    G, M = len(arrays["groups.numbers"]), len(MEMORIES)
    shapes: dict[str, Any] = {"numbers": (G,), "last": (G,), "total": (G, M, m), "weight": (G, M)}
    mixture = _recorded(
        Mixture, "groups.mixture", arrays, gain=(1 + M,), square=(1 + M,), largest=()
    )
    given = {**arrays, "groups.mixture": np.zeros(())}
    made: GroupErrors = _recorded(
        GroupErrors, "groups", given, errors=(1 + M, m), rows=(), most=(), **shapes
    )
    _ascending("groups.numbers", made.numbers)
    whole("groups.most", made.most, max(1, G), MOST_GROUPS)
    whole("groups.rows", made.rows)
    if not (made.errors > 0).all() or (made.weight < 0).any() or made.last.dtype.kind != "i":
        raise ValueError("groups have errors that cannot be")
    return replace(made, mixture=mixture)


def _ascending(name: str, numbers: Array) -> None:
    if numbers.dtype.kind != "i" or (np.diff(numbers) <= 0).any():
        raise ValueError(f"{name} are not whole numbers that ascend")


def _memory(prefix: str, arrays: Mapping[str, Array], D: int, m: int) -> Memory:
    listed = len(arrays[f"{prefix}.c"])  # n, and LIST in files of before
    shapes: dict[str, Any] = {"theta": (m, D), "W": (listed, D), "c": (listed,), "num": (m,)}
    shapes |= dict.fromkeys(("a", "b", "n", "den"), ())
    made: Memory = _recorded(Memory, prefix, arrays, D, **shapes)
    whole(f"{prefix}.n", made.n, 0, min(listed, LIST))
    real(f"{prefix}.den", made.den, above=True)
    W, c = np.zeros((LIST, D)), np.zeros(LIST)
    W[: made.n], c[: made.n] = made.W[: made.n], made.c[: made.n]
    return replace(made, W=W, c=c)


def _sums(prefix: str, arrays: Mapping[str, Array], D: int, m: int) -> Sums:
    shapes: dict[str, Any] = {"zy": (m, D), "yy": (m,), "rows": (), "weight": ()}
    made: Sums = _recorded(Sums, prefix, arrays, D, **shapes)
    whole(f"{prefix}.rows", made.rows)
    return made


def _record(prefix: str, record: Any) -> Arrays:
    """The fields of a record as arrays."""
    out = {}
    for each in fields(record):
        value = np.asarray(getattr(record, each.name))
        out[f"{prefix}.{each.name}"] = _triangle(value) if each.name in MATRICES else value
    return out


def _recorded(
    made: Any, prefix: str, arrays: Mapping[str, Array], D: int = 0, **shapes: tuple[int, ...]
) -> Any:
    """A record from its arrays, all finite and of these shapes; numbers are numbers again."""
    found = {}
    _check(arrays, {f"{prefix}.{name}": shape for name, shape in shapes.items()})
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
    if triangle.shape != (D * (D + 1) // 2,):  # before anything of that size is made
        raise ValueError(f"a triangle of {triangle.shape}, not of {D} rows")
    rows, columns = np.tril_indices(D)
    matrix = np.zeros((D, D), order="F")
    matrix[rows, columns] = triangle
    return matrix


def _check(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if arrays[name].shape != tuple(shape):
            raise ValueError(f"{name} is {arrays[name].shape}, not {tuple(shape)}")
