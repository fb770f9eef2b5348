"""A network as a JSON value and named arrays, and back (`dokl.base.codec`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dokl.base import codec
from dokl.base.arrays import Array
from dokl.base.files import real, whole
from dokl.learning.experts.bank import Bank, Generation, Pending
from dokl.learning.experts.kept import Kept
from dokl.learning.experts.kinds import Kind, Settings
from dokl.learning.experts.maps import GroupedMap, NestedMap
from dokl.learning.experts.places import DIMENSIONS, GroupPlaces
from dokl.learning.experts.ranks import Ranks, checked_ranks
from dokl.learning.experts.saving import check_pending, check_settings
from dokl.learning.experts.scaling import Scaling
from dokl.learning.intervals import Tracker
from dokl.learning.mixture import Mixture
from dokl.learning.scales import KERNELS, Scales
from dokl.learning.squares.memory import Memory
from dokl.learning.squares.sums import Sums
from dokl.network import corrections as correcting
from dokl.network.banks import BankNetwork
from dokl.network.corrections import Corrections
from dokl.network.node import MEMBERS, Errors, NetworkNode
from dokl.network.sharing import SentRows, SharingRule

RECORDS = (
    BankNetwork, SharingRule, SentRows, NetworkNode, Errors, Corrections, Bank, Settings, Kind,
    Kept, Pending, Mixture, Tracker, Generation, Scaling, Scales, NestedMap, GroupedMap,
    GroupPlaces, Ranks, Memory, Sums,
)  # fmt: skip


def encode(network: BankNetwork) -> tuple[Any, dict[str, Array]]:
    """A JSON value and the arrays that it names."""
    bank = None if network.bank is None else compact_bank(network.bank)
    nodes = tuple(map(compact_node, network.nodes))
    return codec.encode(replace(network, nodes=nodes, bank=bank))


def decode(meta: Any, arrays: Mapping[str, Array]) -> BankNetwork:
    """The network that was encoded; KeyError, TypeError or ValueError where that cannot be."""
    network = codec.decode(meta, arrays, RECORDS)
    if not isinstance(network, BankNetwork):
        raise ValueError("there is no network in it")
    _check(network)
    return network


def compact_node(node: NetworkNode) -> NetworkNode:
    """Without room for further rows, whose numbers mean nothing."""
    known = node.corrections
    if known is not None:
        known = replace(known, memories=_without_room(known.memories))
    return replace(node, own=compact_bank(node.own), corrections=known)


def compact_bank(bank: Bank) -> Bank:
    """The same of a bank."""
    kept, n = bank.kept, bank.kept.n
    parts = {name: getattr(kept, name)[:n] for name in ("X", "Y", "weight", "arrival")}
    memories = _without_room(bank.memories)
    return replace(bank, kept=replace(kept, **parts), memories=memories)


def _without_room(memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
    return tuple(
        replace(each, W=np.where((np.arange(len(each.W)) < each.n)[:, None], each.W, 0.0))
        for each in memories
    )


# -- checks ----------------------------------------------------------------------------------------
def _check(network: BankNetwork) -> None:
    """Refuse parts that do not fit together; the types of fields were checked by the codec."""
    if not network.nodes:
        raise ValueError("there are no nodes")
    K, own = len(network.nodes), network.nodes[0].own
    d, m = own.d, own.m
    fits("degree", network.sharing.degree, (K,))
    fits("sent", network.sent, (K,))
    whole("delay", network.sharing.delay)
    whole("steps", network.steps)
    real("traffic", network.traffic)
    _check_rows(network.rows, K, d, m)
    if network.units is not None:
        check_scaling(network.units[0], d)
        check_scaling(network.units[1], m)
    if network.bank is not None:
        check_bank(network.bank, d + 1, m, True)
        whole("most", own.settings.most, 1, network.bank.settings.most)
        whole("classes", network.bank.settings.classes, *(own.settings.classes,) * 2)
    for node in network.nodes:
        if node.own.settings != own.settings:
            raise ValueError("nodes have different settings")
        check_node(node, d, m)


def _check_rows(rows: SentRows, K: int, d: int, m: int) -> None:
    n = len(rows.X)
    shapes: list[tuple[int, ...]] = [(n, d), (n, m), (n,), (n,), (n,), (n,)]
    for (name, part), shape in zip(vars(rows).items(), shapes, strict=True):
        fits(f"rows.{name}", part, shape)
    if n and not (rows.node.min() >= 0 and rows.node.max() < K):
        raise ValueError("rows are of nodes that there are not")


def check_node(node: NetworkNode, d: int, m: int) -> None:
    """Refuse a node whose parts do not fit d inputs and m outputs."""
    check_bank(node.own, d, m, False)
    check_mixture(node.mixture, len(MEMBERS))
    _check_tracker(node.tracker, node.own.settings, m)
    fits("errors", node.errors.total, (len(node.errors.total),))
    whole("rows", node.errors.rows)
    for name in ("covered", "weight"):
        real(name, getattr(node.errors, name))
    if node.corrections is not None:
        _check_corrections(node.corrections, d, m)


def _check_corrections(known: Corrections, d: int, m: int) -> None:
    fits("corrections.size", known.size, (m,))
    check_scaling(known.inputs, d)
    check_mixture(known.mixture, 1 + len(correcting.EXPERTS))
    for memory, (_, wide) in zip(known.memories, correcting.EXPERTS, strict=True):
        check_memory(memory, 1 + d * wide, m)


def check_bank(bank: Bank, d: int, m: int, grouped: bool) -> None:
    """Refuse a bank whose parts do not fit d inputs and m outputs."""
    if (bank.d, bank.m) != (d, m):
        raise ValueError(f"a bank is of {bank.d} inputs and {bank.m} outputs, not {d} and {m}")
    settings, kept, n = bank.settings, bank.kept, len(bank.kept.X)
    check_settings(settings, n)
    if settings.grouped is not grouped:
        raise ValueError("a bank is of groups, or of none, where it should not be")
    if settings.group_errors or bank.group_errors is not None:
        raise ValueError("nodes have corrections of their own, and not of groups")
    whole("n", kept.n, n, n)
    whole("seen", kept.seen, n)
    for name, shape in (("X", (n, d)), ("Y", (n, m)), ("weight", (n,)), ("arrival", (n,))):
        fits(f"kept.{name}", getattr(kept, name), shape)
    if kept.recent is not None:
        r = len(kept.recent[0])
        recent: list[tuple[int, ...]] = [(r, d), (r, m), (r,)]
        for part, size in zip(kept.recent, recent, strict=True):
            fits("kept.recent", part, size)
    if bank.pending is not None:
        r = len(bank.pending.X)
        for part, size in zip(bank.pending.rows(), ((r, d), (r, m), (r,)), strict=True):
            fits("pending", part, size)
        check_pending(bank)
    weight, *moments = bank.total
    real("weight", weight)
    for part in moments:
        fits("total", part, (m,))
    whole("mended", bank.mended)
    real("surprise", bank.surprise[0])
    whole("surprise", bank.surprise[1])
    check_mixture(bank.mixture, len(bank.kinds))
    _check_tracker(bank.tracker, settings, m)
    if bank.now is None:
        if bank.memories or bank.awake is not None:
            raise ValueError("a bank has experts and no map")
        return
    _check_generation(bank, bank.now, d, m)


def _check_generation(bank: Bank, now: Generation, d: int, m: int) -> None:
    d, E = d - bank.settings.grouped, len(bank.kinds)
    if (now.places is not None) is not bank.settings.grouped:
        raise ValueError("a map has places, or none, where it should not")
    if now.places is not None:
        _check_places(now.places)
    check_scaling(now.inputs, d)
    check_scaling(now.targets, m)
    _check_scales(now.scales, d)
    fits("awake", bank.awake, (E,))
    fits("idle", bank.idle, (E,))
    for made in now.maps.values():
        check_map(made, d, bank.settings.grouped)
    for kind, memory in zip(bank.kinds, bank.memories, strict=True):
        check_memory(memory, now.maps[kind.features].width(kind.width), m)
    for kind, sums in zip(bank.kinds, bank.sums, strict=True):
        if sums is not None:
            D = now.maps[kind.features].width(kind.width)
            whole("rows", sums.rows)
            real("weight", sums.weight)
            for name, shape in (("zz", (D, D)), ("zy", (m, D)), ("yy", (m,))):
                fits(name, getattr(sums, name), shape)


def check_map(made: NestedMap | GroupedMap, d: int, grouped: bool) -> None:
    """Refuse a map whose parts do not fit d inputs, with groups or without."""
    M = len(made.centres)
    fits("centres", made.centres, (M, d + grouped))
    fits("lower", made.lower, (M, M))
    _check_scales(made.scales, d)
    if made.kernel not in KERNELS:
        raise ValueError(f"{made.kernel!r} is no kernel")
    if isinstance(made, GroupedMap) is not grouped:
        raise ValueError("a map is of groups, or of none, where it should not be")
    if isinstance(made, GroupedMap):
        _check_places(made.places)
    elif made.ranks is not None:
        checked_ranks(made.ranks, d)


def _check_places(places: GroupPlaces) -> None:
    G = len(places.numbers)
    fits("numbers", places.numbers, (G,))
    fits("points", places.points, (G, DIMENSIONS))
    fits("alone", places.alone, (G,))


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


def check_mixture(mixture: Mixture, E: int) -> None:
    """Refuse a mixture that is not of E experts."""
    fits("mixture.gain", mixture.gain, (E,))
    fits("mixture.square", mixture.square, (E,))
    real("largest", mixture.largest)


def _check_tracker(tracker: Tracker, settings: Settings, m: int) -> None:
    L = len(settings.levels)
    for name, shape in (("levels", (L,)), ("width", (m, L)), ("energy", (m, L))):
        fits(f"tracker.{name}", getattr(tracker, name), shape)


def check_memory(memory: Memory, D: int, m: int) -> None:
    """Refuse a memory that is not of D features and m outputs."""
    fits("theta", memory.theta, (m, D))
    fits("P", memory.P, (D, D))
    fits("c", memory.c, (len(memory.c),))
    fits("W", memory.W, (len(memory.c), D))
    fits("num", memory.num, (m,))
    whole("n", memory.n, 0, len(memory.c))
    for name in ("a", "b", "den"):
        real(name, getattr(memory, name))


def fits(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Refuse what is no array of finite numbers of this shape."""
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype.kind not in "biuf":
        raise ValueError(f"{name} is not an array of {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has values that are not finite")
