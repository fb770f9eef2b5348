"""Pilots: what the rows so far show about scales, and experts that begin again with them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.base.background import Each
from dokl.learning import classification, scales
from dokl.learning.experts import device
from dokl.learning.experts import group_errors as correcting
from dokl.learning.experts.bank import (
    AT_ONCE,
    Bank,
    PilotMaps,
    extents,
    features,
    numbers_of,
)
from dokl.learning.experts.buffer import RECENT
from dokl.learning.experts.folding import predict_groups
from dokl.learning.experts.group_errors import GroupErrors
from dokl.learning.experts.kinds import Kind, MapKey
from dokl.learning.experts.maps import (
    GroupedMap,
    NestedMap,
    drawn_rows,
    evenly_apart,
    grouped_map,
    median_distance,
    nested_map,
    some_rows,
)
from dokl.learning.experts.places import learn_class_places, learn_places
from dokl.learning.experts.ranks import ranks_of
from dokl.learning.experts.scaling import (
    FAR,
    cut_wild_targets,
    input_scaling,
    sane,
    scaling_of,
)
from dokl.learning.scales import Scales
from dokl.learning.squares import blocks, passes, sums
from dokl.learning.squares import memory as memories
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import Memory
from dokl.learning.squares.passes import Pass
from dokl.learning.squares.sums import Sums

# Centres are chosen among this many times as many rows.
CANDIDATES, CLASS_CANDIDATES = 4, 2
# Where rows are many, each kernel learns the scales of classes from this many rows of its own.
OWN_ROWS, MANY = 800, 5000
# Evaluations for scales of ranks: what sixty find is hardly better in the mixture, and takes longer
# than everything else that ranks cost.
RANKED_STEPS = 25
# Where scales begin with those of a thousand rows before, this many times fewer are enough.
LATER = 3
RANKED_SCALES = "learned of ranks"
# Places are learned from this many rows: as good as by a thousand, in half the time.
GROUPED_ROWS = 700


def start_over(bank: Bank, now: PilotMaps, each: Each = map) -> Bank:
    """The bank with new maps, whose experts have learned the rows that are kept."""
    bank = with_nothing_learned(replace(bank, now=now), now)
    bank = with_extent(bank, now, bank.stored.newest()[0])
    return with_memories(bank, *relearn(bank, now, range(len(bank.kinds)), each))


def with_memories(bank: Bank, known: Mapping[int, Memory], totals: Mapping[int, Sums]) -> Bank:
    """The bank with what all its experts know, and the sums of those that keep them."""
    everybody = range(len(bank.kinds))
    kept = tuple(totals.get(i) for i in everybody)
    return replace(bank, memories=tuple(known[i] for i in everybody), sums=kept)


def with_extent(bank: Bank, now: PilotMaps, X: Array) -> Bank:
    """The bank before it learns from rows of which the newest are X: (n, d): inputs count as far
    as they come there, in all rows.
    """
    return replace(bank, extent=extents(bank, now, X[-RECENT:])[1])


def with_nothing_learned(bank: Bank, now: PilotMaps) -> Bank:
    """All experts awake, and knowing nothing."""
    everybody = range(len(bank.kinds))
    known, totals = at_the_prior(bank, now, everybody), []
    for i, kind in enumerate(bank.kinds):
        lasting = bank.settings.sums and kind.memory == math.inf
        totals.append(sums.no_rows(known[i].theta.shape[1], bank.m) if lasting else None)
    awake = np.ones(len(bank.kinds), bool)
    rested = {"awake": awake, "idle": np.zeros(len(awake), int), "surprise": (0.0, 0)}
    rested["extent"] = None
    learned = tuple(known[i] for i in everybody)
    return replace(bank, memories=learned, sums=tuple(totals), **rested)  # type: ignore[arg-type]


def at_the_prior(bank: Bank, now: PilotMaps, which: Sequence[int]) -> dict[int, Memory]:
    """What these experts know before any row."""
    known = {}
    for i in which:
        D = now.maps[bank.kinds[i].features].width(bank.kinds[i].width)
        known[i] = memories.start(D, bank.m, numbers_of(bank, now, i).rho)
    return known


def relearn(
    bank: Bank, now: PilotMaps, which: Sequence[int], each: Each = map
) -> tuple[dict[int, Memory], dict[int, Sums]]:
    """Experts that have learned the rows that are kept, and sums of those that keep them. A sample
    stands for all rows seen; experts that forget want the newest rows in their order.
    """
    stored = bank.stored
    everything = stored.all()
    share = bank.seen / max(1, len(everything[0]))
    forgetting = [i for i in which if share > 1.0 and bank.kinds[i].memory < math.inf]
    lasting = [i for i in which if i not in forgetting]
    X, Y, w = everything
    one = learn_from_prior(bank, now, lasting, X, Y, share * w, each)
    other = learn_from_prior(bank, now, forgetting, *stored.newest(), each)
    return one[0] | other[0], one[1]


def learn_from_prior(
    bank: Bank, now: PilotMaps, which: Sequence[int], X: Array, Y: Array, w: Array, each: Each
) -> tuple[dict[int, Memory], dict[int, Sums]]:
    """These experts after rows X: (n, d), Y: (n, m) of weight w: (n,) and nothing before them; and
    the sums of those that keep them.
    """
    X, Y, w = _sane_rows(X, Y, w)
    rows = X, cut_wild_targets(Y), w
    endless = [i for i in which if bank.kinds[i].memory == math.inf]
    forgetting = [i for i in which if i not in endless]
    if device.pays(len(X)):  # it works for the endless ones, and the processor for the others
        with ThreadPoolExecutor(1) as beside:
            later = beside.submit(_one_after_another, bank, now, forgetting, *rows, each)
            known, totals = _learn_by_sums(bank, now, endless, *rows, each)
            known |= later.result()[0]
    else:
        known, totals = _learn_by_sums(bank, now, endless, *rows, each)
        known |= _one_after_another(bank, now, forgetting, *rows, each)[0]
    rest = [i for i in endless if i not in known]
    more, further = _one_after_another(bank, now, rest, *rows, each)
    return known | more, totals | further


def _learn_by_sums(
    bank: Bank, now: PilotMaps, which: Sequence[int], X: Array, Y: Array, w: Array, each: Each
) -> tuple[dict[int, Memory], dict[int, Sums]]:
    """Experts of endless memory after these rows, by their sums, and the sums of those that keep
    them; without those whose rows are not of one function.
    """
    begun = at_the_prior(bank, now, which)
    known = {i: passes.start(numbers_of(bank, now, i), begun[i]) for i in which}
    y = now.targets.inward(Y)

    def one(of: tuple[int, Array, slice]) -> Pass:
        i, z, rows = of
        return passes.learn(known[i], z, y[rows], w[rows])

    try:
        if device.pays(len(X)) and not bank.settings.grouped:
            known = {i: _on_device(bank, now, i, known[i], X, y, w) for i in which}
        else:
            for rows in _parts(len(X) if which else 0):
                Z = features(bank, now, X[rows], which, each)
                known = dict(zip(which, each(one, [(i, Z[i], rows) for i in which]), strict=True))
        known = {i: found for i, found in known.items() if found.trusted}
        learned = dict(zip(known, each(passes.solve, known.values()), strict=True))
    except NotDefinite:  # by rounding; one after another each repairs its own
        return {}, {}
    return learned, {i: found.sums for i, found in known.items() if bank.sums[i] is not None}


def _on_device(
    bank: Bank, now: PilotMaps, i: int, known: Pass, X: Array, y: Array, w: Array
) -> Pass:
    """Expert i after all rows, by a GPU."""
    made = now.maps[bank.kinds[i].features]
    assert isinstance(made, NestedMap)
    rows = now.inward(X, bank.extent)
    return device.learn(known, made, made.width(bank.kinds[i].width), rows, y, w)


def _one_after_another(
    bank: Bank, now: PilotMaps, which: Sequence[int], X: Array, Y: Array, w: Array, each: Each
) -> tuple[dict[int, Memory], dict[int, Sums]]:
    """Experts after these rows, and the sums of those that keep them."""
    known = dict(at_the_prior(bank, now, which))
    totals = {
        i: sums.no_rows(*known[i].theta.shape[::-1]) for i in which if bank.sums[i] is not None
    }
    numbers = {i: numbers_of(bank, now, i) for i in which}
    first = {i: len(X) - passes.rows_that_count(numbers[i], len(X)) for i in which}
    y = now.targets.inward(Y)

    def one(of: tuple[int, Array, slice]) -> tuple[Memory, blocks.Found]:
        i, z, rows = of
        return blocks.learn(numbers[i], known[i], z, y[rows], w[rows])

    for rows in _parts(len(X) if which else 0):
        some = [i for i in which if rows.stop > first[i]]
        Z = features(bank, now, X[rows], some, each)
        found = list(each(one, [(i, Z[i], rows) for i in some]))
        for i, (memory, result) in zip(some, found, strict=True):
            known[i] = memory
            if i in totals:
                totals[i] = sums.add(totals[i], Z[i], y[rows], result.weight)
    return known, totals


def _parts(n: int) -> Iterator[slice]:
    """n rows in parts: all their features at once may not fit."""
    return (slice(at, min(n, at + AT_ONCE)) for at in range(0, n, AT_ONCE))


def residual_group_errors(bank: Bank, X: Array, Y: Array, w: Array) -> GroupErrors:
    """The errors of groups that a bank still makes on rows that it has learned: what neither a
    place nor a centre of its own has taught it of a group.
    """
    known, now = correcting.start(bank.m), bank.now
    X, Y, w = _sane_rows(X, Y, w)
    if now is None or not len(X):
        return known
    variance = np.tile(now.targets.size**2, (len(X), 1))
    given = X[:, -1].astype(np.int64), Y, predict_groups(bank, X), variance, w, bank.settings.bound
    return correcting.learn(known, *given)[0]


def run_pilot(
    bank: Bank, X: Array, Y: Array, w: Array, each: Each = map, before: PilotMaps | None = None
) -> PilotMaps:
    """Scalings, scales and maps by these rows. before: made from as many rows as scales are ever
    learned from; scales of numbers then begin there.
    """
    X, Y, w = _sane_rows(X, Y, w)
    if bank.settings.grouped:
        return _run_grouped_pilot(bank, X, Y, w, each)
    Y = cut_wild_targets(Y, FAR)
    inputs, targets = input_scaling(X, w), scaling_of(Y, w)
    rows, y = inputs.clipped(X), targets.inward(Y)
    some = some_rows(bank.settings.seed, len(rows), scales.MOST)
    ranks = ranks_of(rows, w) if any(kind.ranked for kind in bank.kinds) else None
    given = {False: rows} if ranks is None else {False: rows, True: ranks.of(rows)}
    # From the start each time: where few rows looked linear, the slope around their scales is flat.
    if bank.settings.classes:
        numbers = classification.class_numbers(Y)
        learned = {
            which: _class_scales(bank, own, numbers, each, which) for which, own in given.items()
        }
    else:
        found = each(lambda which: _scales(given[which][some], y[some], which, before), given)
        by_input = dict(zip(given, found, strict=True))
        learned = {which: dict.fromkeys(scales.KERNELS, by_input[which]) for which in given}
    middle = {which: median_distance(own[some]) for which, own in given.items()}
    maps = {}
    for key, kind in {kind.features: kind for kind in bank.kinds}.items():
        learns, ranked = kind.map == "learned", kind.ranked
        length = 0.0 if learns else float(kind.map) * middle[ranked]
        own = learned[ranked][kind.kernel] if learns else scales.isotropic(length, bank.d)
        among = _candidates(bank, rows, key)
        maps[key] = nested_map(kind.kernel, own, *among, ranks if ranked else None)
    return PilotMaps(inputs, targets, learned[False]["gaussian"], maps)


def _scales(rows: Array, y: Array, ranked: bool, before: PilotMaps | None) -> Scales:
    """Of standardised rows (n, d), or of their ranks, and targets (n, m)."""
    steps = RANKED_STEPS if ranked else scales.EVALUATIONS
    if before is None:
        return scales.learn_scales(rows, y, evaluations=steps)
    started = before.scales
    if ranked:
        started = next(made.scales for key, made in before.maps.items() if key[0] == RANKED_SCALES)
    return scales.learn_scales(rows, y, evaluations=steps // LATER, before=started)


def _run_grouped_pilot(bank: Bank, X: Array, Y: Array, w: Array, each: Each) -> PilotMaps:
    """The same where the last input is a group, with places learned."""
    Y, settings = cut_wild_targets(Y, FAR), bank.settings
    inputs, targets = input_scaling(X[:, :-1], w), scaling_of(Y, w)
    rows, y = np.hstack([inputs.clipped(X[:, :-1]), X[:, -1:]]), targets.inward(Y)
    some = some_rows(settings.seed, len(rows), GROUPED_ROWS)
    group, seed = rows[some, -1].astype(np.int64), settings.seed
    given = {False: rows[some]}
    if settings.classes:
        numbers = classification.class_numbers(Y[some])
        of_classes = rows[some, :-1], numbers, settings.classes, group
        learned = {False: learn_class_places(*of_classes, seed=seed)}
    else:
        learned = {False: learn_places(rows[some, :-1], y[some], group, seed=seed)}
    ranks = ranks_of(rows[:, :-1], w) if any(kind.ranked for kind in bank.kinds) else None
    if ranks is not None:
        own, near = ranks.of(rows[some, :-1]), learned[False][1]
        given[True] = np.column_stack([own, rows[some, -1]])
        learned[True] = learn_places(
            own, y[some], group, seed=seed, evaluations=RANKED_STEPS, near=near
        )

    def one(kind: Kind) -> GroupedMap:
        learns, ranked = kind.map == "learned", kind.ranked
        found = learned[ranked] if learns else evenly_apart(float(kind.map), given[ranked])
        among, most = _candidates(bank, rows, kind.features)
        by = ranks if ranked else None
        return grouped_map(kind.kernel, *found, among, most, learns, by)

    kinds = {kind.features: kind for kind in bank.kinds}
    maps = dict(zip(kinds, each(one, kinds.values()), strict=True))
    return PilotMaps(inputs, targets, learned[False][0], maps, learned[False][1])


def _sane_rows(X: Array, Y: Array, w: Array) -> tuple[Array, Array, Array]:
    kept = sane(Y) if len(Y) else np.ones(0, bool)
    return (X, Y, w) if kept.all() else (X[kept], Y[kept], w[kept])


def _class_scales(
    bank: Bank, rows: Array, numbers: Array, each: Each, ranked: bool
) -> dict[str, Scales]:
    """Scales of classes by kernel, from standardised rows: (n, d), or their ranks, of these class
    numbers: (n,).

    Many rows: each kernel learns its own from rows of its own. What a thousand rows say of sixteen
    lengths is half chance, and one draw for all maps would be good or bad luck for all of them.
    Few: one for all, as there are no other rows to learn from.
    """
    classes, seed, n = bank.settings.classes, bank.settings.seed, len(rows)
    learning = [kind for kind in bank.kinds if kind.map == "learned" and kind.ranked == ranked]
    kernels = {kind.kernel: None for kind in learning}
    if not kernels:
        return {}
    if n < MANY or len(kernels) < 2:
        some = some_rows(seed, n, scales.MOST)
        found = scales.learn_class_scales(rows[some], numbers[some], classes)
        return dict.fromkeys(scales.KERNELS, found)
    order, size = drawn_rows(seed, n, "pilot"), min(OWN_ROWS, n // len(kernels))

    def one(of: tuple[int, str]) -> Scales:
        some = np.sort(order[of[0] * size : (of[0] + 1) * size])
        return scales.learn_class_scales(rows[some], numbers[some], classes, of[1])

    return dict(zip(kernels, each(one, enumerate(kernels)), strict=True))


def _candidates(bank: Bank, rows: Array, key: MapKey) -> tuple[Array, int]:
    """Rows among which the centres of a map, by its key, are chosen, and how many it has at most.

    For classes fewer, and others for every map: centres that lie far apart explain the inputs best
    but not the borders, and maps that differ err on different rows.
    """
    settings, centres = bank.settings, min(bank.settings.most, len(rows))
    widths = [kind.width for kind in bank.kinds if kind.features == key]
    used = max(centres if width is None else width for width in widths)
    if settings.classes:
        name = f"{key[0]} {key[1]}"
        some = some_rows(settings.seed, len(rows), CLASS_CANDIDATES * centres, name)
    else:
        some = some_rows(settings.seed, len(rows), CANDIDATES * centres)
    return rows[some], min(centres, used)
