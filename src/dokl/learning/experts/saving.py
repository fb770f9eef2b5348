"""A bank as a JSON value and named arrays, and back (`dokl.base.codec`); docs/format.md lists them.

Files leave out what follows from the rest: room for further rows, and the matrix of a map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dokl.base import codec
from dokl.base.arrays import Array
from dokl.base.files import MOST, real, whole
from dokl.base.random_numbers import check_seed
from dokl.base.unlocked import one_thread
from dokl.learning import drift
from dokl.learning.drift import DISTANCES, SCORES, Drift
from dokl.learning.experts import old_banks
from dokl.learning.experts.bank import AT_ONCE, Bank, Pending, PilotMaps, features, numbers_of
from dokl.learning.experts.buffer import Buffer
from dokl.learning.experts.group_errors import MEMORIES, MOST_GROUPS, GroupErrors
from dokl.learning.experts.kinds import KEPT, Kind, Settings, begin_row, next_pilot
from dokl.learning.experts.maps import GroupedMap, NestedMap, factor
from dokl.learning.experts.places import DIMENSIONS, GroupPlaces
from dokl.learning.experts.ranks import Ranks, checked_ranks
from dokl.learning.experts.rivals import Beside, Rivals, inputs_tried
from dokl.learning.experts.scaling import LEAST, Scaling, beyond
from dokl.learning.intervals import Tracker, check_level
from dokl.learning.mixture import Mixture
from dokl.learning.scales import KERNELS, Scales
from dokl.learning.squares import sums as adding
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import LIST, Memory, fold
from dokl.learning.squares.sums import Sums

RECORDS = (
    Bank, Settings, Kind, Buffer, Pending, Mixture, Tracker, PilotMaps, Scaling, Scales, NestedMap,
    GroupedMap, GroupPlaces, Ranks, Memory, Sums, Drift, Rivals, Beside, GroupErrors,
)  # fmt: skip

# Covariances of up to this many rows are made again within a second.
MOST_ROWS = 2000


def encode(bank: Bank, exact: bool = True) -> tuple[Any, dict[str, Array]]:
    """A JSON value and the arrays that it names; if not exact, covariances in single precision, and
    without those that follow from rows in the file.
    """
    made = compact(bank, exact)
    return codec.encode(made if exact else _without_covariances(made), exact)


def decode(meta: Any, arrays: Mapping[str, Array]) -> Bank:
    """The bank that was encoded, also by earlier versions; KeyError, TypeError or ValueError where
    that cannot be.
    """
    old = "$" not in meta
    meta, arrays = old_banks.translate(meta, arrays) if old else (meta, arrays)
    bank = codec.decode(meta, arrays, RECORDS)
    if not isinstance(bank, Bank):
        raise ValueError("it holds no bank")
    check_bank(bank, bank.d, bank.m)
    if old and bank.drift is None and not (bank.settings.classes or bank.settings.grouped):
        bank = replace(bank, drift=drift.start(bank.m))
    return complete(bank)


# -- what files leave out --------------------------------------------------------------------------
def compact(bank: Bank, exact: bool = True) -> Bank:
    """Without room for further rows and without matrices that follow from the centres of maps.
    exact: whether covariances are to keep their bits.
    """
    kept, now, n = bank.kept, bank.now, bank.kept.n
    kept = replace(kept, **{k: getattr(kept, k)[:n] for k in ("X", "Y", "weight", "arrival")})
    if now is not None:
        now = replace(now, maps={key: _without_matrix(made) for key, made in now.maps.items()})
    known = bank.drift
    if known is not None:
        met = max(len(drift.trim(each)) for each in known.counts)
        known = replace(known, counts=known.counts[:, :met])
    memories, beside = compact_memories(bank.memories, exact), bank.rivals
    if beside is not None:
        beside = replace(beside, counts=drift.trim(beside.counts))
    return replace(bank, kept=kept, now=now, memories=memories, drift=known, rivals=beside)


def complete(bank: Bank) -> Bank:
    """What `compact` left out, once the bank was checked: nothing larger than its file is made."""
    now, known = bank.now, bank.drift
    if now is not None:
        with one_thread():  # as when it was learned, to the last bit
            now = replace(now, maps={key: _with_matrix(made) for key, made in now.maps.items()})
    if known is not None:
        known = replace(known, counts=drift.untrim_pair(*known.counts))
    memories, beside = complete_memories(bank.memories), bank.rivals
    if beside is not None:
        beside = replace(beside, counts=drift.untrim(beside.counts, bank.m))
    bank = replace(bank, now=now, memories=memories, drift=known, rivals=beside)
    return _with_covariances(bank)


def _from_rows(bank: Bank, i: int) -> bool:
    """Whether the covariance of expert i follows from the rows that are kept: classes bound no row
    by its innovation, so that of an endless memory is a function of rows and weights. Of more rows
    it would take seconds.
    """
    s, here = bank.settings, bank.stored
    plain = s.classes > 0 and s.bound == math.inf and not s.grouped and not beyond(bank.extent)
    everything = here.recent is None and here.n == bank.seen <= MOST_ROWS
    return (
        plain
        and everything
        and bank.kinds[i].memory == math.inf
        and bank.awake is not None
        and bool(bank.awake.all())
        and not any(kept is not None for kept in bank.sums)
    )


def _without_covariances(bank: Bank) -> Bank:
    none = np.zeros((0, 0))
    follow = {i for i in range(len(bank.memories)) if _from_rows(bank, i)}
    each = enumerate(bank.memories)
    memories = tuple(replace(known, P=none) if i in follow else known for i, known in each)
    return replace(bank, memories=memories)


@one_thread()
def _with_covariances(bank: Bank) -> Bank:
    now, memories = bank.now, list(bank.memories)
    which = [i for i, known in enumerate(memories) if len(known.P) < known.theta.shape[1]]
    if now is None or not which:
        return bank
    X, Y, w = bank.stored.all()
    totals = {i: adding.no_rows(memories[i].theta.shape[1], bank.m) for i in which}
    for at in range(0, len(X), AT_ONCE):
        rows = slice(at, at + AT_ONCE)
        Z = features(bank, now, X[rows], which)
        totals = {i: adding.add(totals[i], Z[i], Y[rows], w[rows]) for i in which}
    for i, total in totals.items():
        try:
            made = adding.solve(total, numbers_of(bank, now, i).rho)
        except NotDefinite:
            raise ValueError(
                f"the covariance of expert {i} does not follow from its rows"
            ) from None
        memories[i] = replace(memories[i], P=made.P, a=1.0, b=0.0)
    return replace(bank, memories=tuple(memories))


def compact_memories(memories: tuple[Memory, ...], exact: bool = True) -> tuple[Memory, ...]:
    """Without room in their lists. Where not exact, with empty lists: rounded apart, a matrix less
    its list would be no covariance.
    """
    memories = memories if exact else tuple(map(fold, memories))
    return tuple(replace(each, W=each.W[: each.n], c=each.c[: each.n]) for each in memories)


def complete_memories(memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
    """With room in their lists."""
    return tuple(map(_with_room, memories))


def _with_room(memory: Memory) -> Memory:
    W, c, n = np.zeros((LIST, memory.W.shape[1])), np.zeros(LIST), memory.n
    W[:n], c[:n] = memory.W[:n], memory.c[:n]
    return replace(memory, W=W, c=c)


def _without_matrix(made: NestedMap | GroupedMap) -> NestedMap | GroupedMap:
    return made if isinstance(made, GroupedMap) else replace(made, lower=np.zeros((0, 0)))


def _with_matrix(made: NestedMap | GroupedMap) -> NestedMap | GroupedMap:
    if len(made.lower) == len(made.centres):
        return made
    return replace(made, lower=factor(made.kernel, made.centres))


# -- checks: the types of fields were seen to by the codec -----------------------------------------
def check_bank(bank: Bank, d: int, m: int) -> None:
    """Refuse a bank whose parts do not fit each other, or not d inputs and m outputs."""
    if (bank.d, bank.m) != (d, m):
        raise ValueError(f"a bank is of {bank.d} inputs and {bank.m} outputs, not {d} and {m}")
    settings, kept, n = bank.settings, bank.kept, len(bank.kept.X)
    check_settings(settings, n)
    if settings.grouped and d < 2:
        raise ValueError("there are groups, and no input")
    whole("n", kept.n, n, n)
    whole("seen", kept.seen, n)
    check_rows("kept", (kept.X, kept.Y, kept.weight), d, m)
    fits("kept.arrival", kept.arrival, (n,))
    if kept.recent is not None:
        check_rows("kept.recent", kept.recent, d, m)
    if bank.pending is not None:
        check_rows("pending", bank.pending.rows(), d, m)
        _check_pending(bank)
    weight, *moments = bank.total
    real("weight", weight)
    for part in moments:
        fits("total", part, (m,))
    whole("mended", bank.mended)
    real("surprise", bank.surprise[0])
    whole("surprise", bank.surprise[1])
    check_mixture(bank.mixture, len(bank.kinds))
    check_tracker(bank.tracker, settings, m)
    if (bank.group_errors is not None) is not settings.group_errors:
        raise ValueError("errors of groups are known, or not, where the settings say otherwise")
    if bank.group_errors is not None:
        _check_group_errors(bank.group_errors, m)
    if bank.now is not None:
        _check_pilot_maps(bank, bank.now, d, m)
    elif bank.memories or bank.awake is not None or bank.extent is not None:
        raise ValueError("a bank has experts and no map")
    if bank.drift is not None:
        _check_drift(bank, bank.drift)
    if bank.rivals is not None:
        _check_rivals(bank.rivals, bank.d, bank.m)


def check_settings(settings: Settings, n: int) -> None:
    """Refuse settings that cannot be; n: rows that are kept."""
    pilots = [whole("a pilot", each, 1) for each in settings.pilots]
    if not settings.kinds or pilots != sorted(set(pilots)):
        raise ValueError("there are no experts, or pilots that do not follow each other")
    real("bound", settings.bound, above=True, infinite=True)
    whole("most", settings.most, 1, MOST)
    whole("kept", settings.kept, max(1, n), max(KEPT, n))
    whole("classes", settings.classes, 0, MOST)
    check_seed(settings.seed)
    for level in settings.levels:
        check_level(level)
    for kind in settings.kinds:
        real("memory", kind.memory, 1.0, infinite=True)
        if kind.map != "learned":
            real("map", kind.map, above=True)
        if kind.width is not None:
            whole("width", kind.width, 0, MOST)
        _check_kernel(kind.kernel)
    if settings.group_errors and not settings.grouped:
        raise ValueError("errors of groups are remembered, and there are no groups")


def _check_pending(bank: Bank) -> None:
    """Refuse rows after a pilot where there is none, or more than there can be."""
    began, n = bank.kept.seen, bank.seen - bank.kept.seen
    pilot = next_pilot(bank.settings.pilots, began)
    if not begin_row(pilot) <= began <= began + n < pilot:
        raise ValueError(f"{n} rows wait for a pilot that began at row {began}, which cannot be")


def _check_pilot_maps(bank: Bank, now: PilotMaps, d: int, m: int) -> None:
    grouped, E = bank.settings.grouped, len(bank.kinds)
    d -= grouped
    if (now.places is not None) is not grouped:
        raise ValueError("a map has places, or none, where it should not")
    if now.places is not None:
        _check_places(now.places)
    check_scaling(now.inputs, d)
    check_scaling(now.targets, m)
    check_extent(bank.extent, d)
    _check_scales(now.scales, d)
    fits("awake", bank.awake, (E,))
    fits("idle", bank.idle, (E,))
    if bank.awake is None or bank.awake.dtype.kind != "b":
        raise ValueError("the list of sleeping experts is not of true and false")
    used = dict.fromkeys(now.maps, 0)
    each = zip(bank.kinds, bank.memories, bank.sums, strict=True)
    for i, (kind, memory, sums) in enumerate(each):
        made = now.maps[kind.features]
        D, M = made.width(kind.width), len(made.centres)
        check_memory(memory, D, m, not len(memory.P) and _from_rows(bank, i))
        if sums is not None:
            check_sums(sums, D, m)
        used[kind.features] = max(used[kind.features], M if kind.width is None else kind.width)
    for key, made in now.maps.items():
        check_map(made, d, grouped, len(made.lower) or used[key])


def check_map(made: NestedMap | GroupedMap, d: int, grouped: bool, used: int) -> None:
    """Refuse a map whose parts do not fit d inputs, with groups or without. used: of its centres,
    by experts; more are none where the matrix is yet to be made.
    """
    M, known = len(made.centres), len(made.lower)
    fits("centres", made.centres, (M, d + grouped))
    fits("lower", made.lower, (known, known))
    _check_scales(made.scales, d)
    _check_kernel(made.kernel)
    if isinstance(made, GroupedMap) is not grouped:
        raise ValueError("a map is of groups, or of none, where it should not be")
    if known != M and (known or grouped or used < M):
        raise ValueError(f"a map of {M} centres, with a matrix of {known}, of which {used} count")
    if isinstance(made, GroupedMap):
        _check_places(made.places)
    if made.ranks is not None:
        checked_ranks(made.ranks, d)


def _check_kernel(name: str) -> None:
    if name not in KERNELS:
        raise ValueError(f"{name!r} is no kernel")


def _check_places(places: GroupPlaces) -> None:
    G = len(places.numbers)
    fits("numbers", places.numbers, (G,))
    fits("points", places.points, (G, DIMENSIONS))
    fits("alone", places.alone, (G,))
    _check_ascending("places", places.numbers)
    if not (places.alone > 0).all():
        raise ValueError("distances of groups from all others are not above 0")


def _check_ascending(name: str, numbers: Array) -> None:
    if numbers.dtype.kind != "i" or (np.diff(numbers) <= 0).any():
        raise ValueError(f"numbers of {name} are not whole ones that ascend")


def _check_scales(scales: Scales, d: int) -> None:
    fits("lengths", scales.lengths, (d,))
    linear = np.asarray(scales.linear, float)
    fits("linear", linear, (d,) if linear.ndim else ())
    if not ((scales.lengths > 0).all() and (linear >= 0).all()):
        raise ValueError("lengths are not above 0, or slopes below it")
    for name in ("amplitude", "noise", "offset"):
        real(name, getattr(scales, name))


def check_scaling(scaling: Scaling, d: int) -> None:
    """Refuse a scaling that is not of d columns."""
    fits("centre", scaling.centre, (d,))
    fits("size", scaling.size, (d,))
    if not (scaling.size > 0).all():
        raise ValueError("sizes are not above 0")


def check_extent(extent: Array | None, d: int) -> None:
    """Refuse an extent that is not of d inputs, or below LEAST."""
    if extent is not None:
        fits("extent", extent, (d,))
        if not (extent >= LEAST).all():
            raise ValueError(f"the extent of an input is below {LEAST:g}")


def check_mixture(mixture: Mixture, E: int) -> None:
    """Refuse a mixture that is not of E experts."""
    fits("mixture.gain", mixture.gain, (E,))
    fits("mixture.square", mixture.square, (E,))
    real("largest", mixture.largest)


def check_tracker(tracker: Tracker, settings: Settings, m: int) -> None:
    """Refuse widths of intervals that are not of these settings' levels and m outputs."""
    L = len(settings.levels)
    for name, shape in (("levels", (L,)), ("width", (m, L)), ("energy", (m, L))):
        fits(f"tracker.{name}", getattr(tracker, name), shape)


def check_memory(memory: Memory, D: int, m: int, from_rows: bool = False) -> None:
    """Refuse a memory that is not of D features and m outputs; from_rows: without its P."""
    fits("theta", memory.theta, (m, D))
    fits("P", memory.P, (0, 0) if from_rows else (D, D))
    listed = whole("rows listed", len(memory.c), 0, LIST)
    fits("c", memory.c, (listed,))
    fits("W", memory.W, (listed, D))
    fits("num", memory.num, (m,))
    whole("n", memory.n, 0, listed)
    real("den", memory.den, above=True)
    for name in ("a", "b"):
        real(name, getattr(memory, name))


def check_sums(sums: Sums, D: int, m: int) -> None:
    """Refuse sums that are not of D features and m outputs."""
    whole("rows", sums.rows)
    real("weight", sums.weight)
    for name, shape in (("zz", (D, D)), ("zy", (m, D)), ("yy", (m,))):
        fits(name, getattr(sums, name), shape)


def check_rows(name: str, rows: tuple[Array, Array, Array], d: int, m: int) -> None:
    """Refuse rows X, Y and weight that are not of d inputs and m outputs."""
    n = len(rows[0])
    shapes: list[tuple[int, ...]] = [(n, d), (n, m), (n,)]
    for part, shape in zip(rows, shapes, strict=True):
        fits(name, part, shape)


def _check_group_errors(known: GroupErrors, m: int) -> None:
    G, M = len(known.numbers), len(MEMORIES)
    shapes: dict[str, tuple[int, ...]] = {"numbers": (G,), "last": (G,), "errors": (1 + M, m)}
    for name, shape in {**shapes, "total": (G, M, m), "weight": (G, M)}.items():
        fits(f"groups.{name}", getattr(known, name), shape)
    check_mixture(known.mixture, 1 + M)
    _check_ascending("groups", known.numbers)
    whole("groups.most", known.most, max(1, G), MOST_GROUPS)
    whole("groups.rows", known.rows)
    if not (known.errors > 0).all() or (known.weight < 0).any() or known.last.dtype.kind != "i":
        raise ValueError("groups have errors that cannot be")


def _check_drift(bank: Bank, known: Drift) -> None:
    m, C, U = bank.m, len(known.rows), len(known.experts)
    bins = known.counts.shape[1] if known.counts.ndim == 4 else math.inf
    if bins > 1 + DISTANCES or (known.counts < 0).any():
        raise ValueError(f"counts of drift are {known.counts.shape}, or not counts")
    shapes: dict[str, Any] = {"counts": (2, bins, m, SCORES), "rows": (C,), "experts": (U,)}
    shapes |= {"weights": (C, U), "variance": (C, U, m), "spread": (C, m)}
    for name, shape in shapes.items():
        fits(f"drift.{name}", getattr(known, name), shape)
    for name, most in (("unsure", len(bank.kinds)), ("sd", m)):
        size = np.size(getattr(known, name))
        fits(f"drift.{name}", getattr(known, name), (1,) if size == 1 else (most,))
    whole("since", known.since)
    experts, rows = known.experts.tolist(), known.rows.tolist()
    for expert, theta in zip(experts, known.thetas, strict=True):
        whole("an expert of copies", expert, 0, len(bank.memories) - 1)
        fits("drift.theta", theta, (C, *bank.memories[expert].theta.shape))
    for row in rows:
        whole("the row of a copy", row, 1, bank.seen)


def _check_rivals(known: Rivals, d: int, m: int) -> None:
    K, bins = inputs_tried(d) + 2, len(known.counts)
    if bins > 1 + DISTANCES or (known.counts < 0).any():
        raise ValueError(f"counts of rivals are {known.counts.shape}, or not counts")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("origin", "scale", "low", "high"), (d,))
    shapes |= {"unit": (m,), "seen": (2, d), "xx": (1 + d, 1 + d), "yx": (m, 1 + d)}
    shapes |= {"products": (m, K, K), "squares": (m, K), "counts": (bins, m, SCORES)}
    shapes |= {} if known.yy is None else {"yy": (m,)}
    for name, shape in shapes.items():
        fits(f"rivals.{name}", getattr(known, name), shape)
    real("rows of rivals", known.rows)
    if not ((known.scale > 0).all() and (known.unit > 0).all() and known.xx[0, 0] > 0):
        raise ValueError("rivals have sizes or weights that are not above 0")
    for copy in known.copies:
        check_beside(copy, d, m)


def check_beside(copy: Beside, d: int, m: int) -> None:
    """Refuse what stands beside a bank, if it is not of d inputs and m outputs."""
    shapes = {"weights": (m, inputs_tried(d) + 2), "linear": (m, 1 + d)}
    for name, shape in (shapes | {"error": (m,), "low": (d,), "high": (d,)}).items():
        fits(f"beside.{name}", getattr(copy, name), shape)


def fits(name: str, array: object, shape: tuple[int, ...]) -> None:
    """Refuse what is no array of finite numbers of this shape."""
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype.kind not in "biuf":
        raise ValueError(f"{name} is not an array of {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has values that are not finite")
