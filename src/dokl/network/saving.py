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
from dokl.network import node as nodes
from dokl.network.banks import BankNetwork
from dokl.network.corrections import Corrections
from dokl.network.guard import RecentErrors
from dokl.network.node import MEMBERS, Errors, ExpectedErrors, HeardErrors, NetworkNode
from dokl.network.sharing import SentRows, SharingRule

RECORDS = (
    BankNetwork, SharingRule, SentRows, NetworkNode, Errors, HeardErrors, ExpectedErrors,
    RecentErrors, Corrections, *banks.RECORDS,
)  # fmt: skip


def encode(network: BankNetwork, exact: bool = True) -> tuple[Any, dict[str, Array]]:
    """A JSON value and the arrays that it names; covariances in single precision if not exact."""
    bank = None if network.bank is None else banks.compact(network.bank, exact)
    nodes = tuple(compact_node(node, exact) for node in network.nodes)
    return codec.encode(replace(network, nodes=nodes, bank=bank), exact)


def decode(meta: Any, arrays: Mapping[str, Array]) -> BankNetwork:
    """The network that was encoded; KeyError, TypeError or ValueError where that cannot be."""
    network = codec.decode(meta, arrays, RECORDS)
    if not isinstance(network, BankNetwork):
        raise ValueError("it holds no network")
    _check(network)
    bank = None if network.bank is None else banks.complete(network.bank)
    if bank is not None and network.sharing.way != "rows":  # earlier versions knew no other range
        bank = replace(bank, settings=replace(bank.settings, fixed_inputs=True))
    return replace(network, nodes=tuple(map(complete_node, network.nodes)), bank=bank)


def compact_node(node: NetworkNode, exact: bool = True) -> NetworkNode:
    """Without what files leave out. exact: whether covariances are to keep their bits."""
    return replace(
        node,
        own=banks.compact(node.own, exact),
        corrections=_each_memory(
            node.corrections, lambda memories: banks.compact_memories(memories, exact)
        ),
    )


def complete_node(node: NetworkNode) -> NetworkNode:
    """A node that was checked, with what files leave out, and those of earlier versions."""
    node = replace(
        node,
        own=banks.complete(node.own),
        corrections=_each_memory(node.corrections, banks.complete_memories),
    )
    return nodes.completed(node)


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
        raise ValueError("rows name unknown nodes")


def check_node(node: NetworkNode, d: int, m: int) -> None:
    """Refuse a node whose parts do not fit d inputs and m outputs."""
    check_bank(node.own, d, m, False)
    check_mixture(node.mixture, len(MEMBERS))
    banks.check_tracker(node.tracker, node.own.settings, m)
    fits("errors", node.errors.total, (len(node.errors.total),))
    _check_recent(node.recent, len(MEMBERS))
    fits("heard", node.heard.total, (len(node.heard.total),))
    whole("heard", node.heard.count)
    whole("rows", node.errors.rows)
    for name in ("covered", "weight"):
        real(name, getattr(node.errors, name))
    real("expected.own", node.expected.own, above=True)
    real("expected.network", node.expected.network)
    if node.corrections is not None:
        _check_corrections(node.corrections, d, m)


def _check_corrections(known: Corrections, d: int, m: int) -> None:
    """Files of earlier versions have fewer experts."""
    fits("corrections.size", known.size, (m,))
    check_scaling(known.inputs, d)
    experts = correcting.EXPERTS[: len(known.memories)]
    check_mixture(known.mixture, 1 + len(experts))
    for memory, expert in zip(known.memories, experts, strict=True):
        banks.check_memory(memory, expert.width(d, m), m)
    if len(experts) == len(correcting.EXPERTS):
        fits("corrections.last", known.last, (2, m))
        _check_recent(known.recent, correcting.MIXED)


def _check_recent(recent: RecentErrors, experts: int) -> None:
    fits("recent.total", recent.total, (experts,))
    real("recent.reference", recent.reference)
    real("recent.weight", recent.weight)


def check_bank(bank: Bank, d: int, m: int, grouped: bool) -> None:
    """Refuse a bank whose parts do not fit d inputs and m outputs, with groups or without."""
    banks.check_bank(bank, d, m)
    if bank.settings.grouped is not grouped:
        raise ValueError("a bank is of groups, or of none, where it should not be")
    if bank.settings.group_errors:
        raise ValueError("nodes have corrections of their own, and not of groups")
