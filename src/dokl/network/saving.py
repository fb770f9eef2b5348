"""A network as a JSON value and named arrays, and back (`dokl.base.codec`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dokl.base import codec
from dokl.base.arrays import Array
from dokl.base.files import real, whole
from dokl.learning.experts import saving as banks
from dokl.learning.experts.bank import Bank
from dokl.learning.experts.saving import check_mixture, check_scaling, fits
from dokl.learning.squares.memory import Memory
from dokl.network import corrections as correcting
from dokl.network.banks import BankNetwork
from dokl.network.corrections import Corrections
from dokl.network.node import MEMBERS, Errors, NetworkNode
from dokl.network.sharing import SentRows, SharingRule

RECORDS = (
    BankNetwork, SharingRule, SentRows, NetworkNode, Errors, Corrections, *banks.RECORDS,
)  # fmt: skip


def encode(network: BankNetwork) -> tuple[Any, dict[str, Array]]:
    """A JSON value and the arrays that it names."""
    bank = None if network.bank is None else banks.compact(network.bank)
    nodes = tuple(map(compact_node, network.nodes))
    return codec.encode(replace(network, nodes=nodes, bank=bank))


def decode(meta: Any, arrays: Mapping[str, Array]) -> BankNetwork:
    """The network that was encoded; KeyError, TypeError or ValueError where that cannot be."""
    network = codec.decode(meta, arrays, RECORDS)
    if not isinstance(network, BankNetwork):
        raise ValueError("there is no network in it")
    _check(network)
    bank = None if network.bank is None else banks.completed(network.bank)
    return replace(network, nodes=tuple(map(completed_node, network.nodes)), bank=bank)


def compact_node(node: NetworkNode) -> NetworkNode:
    """Without what files leave out."""
    return replace(
        node,
        own=banks.compact(node.own),
        corrections=_each_memory(node.corrections, banks.compact_memories),
    )


def completed_node(node: NetworkNode) -> NetworkNode:
    """A node that was checked, with what files leave out."""
    return replace(
        node,
        own=banks.completed(node.own),
        corrections=_each_memory(node.corrections, banks.completed_memories),
    )


def _each_memory(
    known: Corrections | None, change: Callable[[tuple[Memory, ...]], tuple[Memory, ...]]
) -> Corrections | None:
    return None if known is None else replace(known, memories=change(known.memories))


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
    banks.check_tracker(node.tracker, node.own.settings, m)
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
        banks.check_memory(memory, 1 + d * wide, m)


def check_bank(bank: Bank, d: int, m: int, grouped: bool) -> None:
    """Refuse a bank whose parts do not fit d inputs and m outputs, with groups or without."""
    banks.check_bank(bank, d, m)
    if bank.settings.grouped is not grouped:
        raise ValueError("a bank is of groups, or of none, where it should not be")
    if bank.settings.group_errors:
        raise ValueError("nodes have corrections of their own, and not of groups")
