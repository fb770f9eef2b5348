"""What a node that shares rows knows, and the same as bytes for its journal, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dokl.base import codec, files
from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput
from dokl.learning.experts import saving as banks
from dokl.learning.experts.kinds import Settings
from dokl.live import lagged
from dokl.live.lagged import LaggedInputs
from dokl.network import listening, saving
from dokl.network.listening import ListeningNode
from dokl.tables.models.series import Series

KIND = "listening node"


@dataclass(frozen=True)
class RowsNode:
    """node: what was learned. names: of the known origins, whose place in here is their
    number in the network's bank; heard: (K,) the number of each origin's next row to learn.

    X: (n, d), Y: (n, m), at: (n,): own rows that are not sealed yet, and when they were learned.
    sealed: how many own rows went before them.
    """

    node: ListeningNode
    names: tuple[str, ...]
    heard: Array
    X: Array
    Y: Array
    at: Array
    sealed: int = 0


_RECORDS = (RowsNode, ListeningNode, *saving.RECORDS)


def pack(node: RowsNode, series: Series | None = None) -> bytes:
    """Everything in bytes, exact, without room for further rows; series: the rows remembered."""
    inner = node.node
    bank = None if inner.bank is None else banks.compact(inner.bank)
    inner = replace(inner, node=saving.compact_node(inner.node), bank=bank)
    meta, arrays = codec.encode(replace(node, node=inner))
    about, past = lagged.pack(series)
    return files.to_bytes(KIND, {"node": meta, **about}, arrays | past, "the state of a node")


def unpack(
    data: bytes, d: int, m: int, settings: Settings, lags: LaggedInputs | None = None
) -> tuple[RowsNode, Series | None]:
    """The node that was packed, and the rows that it remembers; BadInput where it is damaged, or of
    another network.
    """
    try:
        meta, arrays = files.from_bytes(data, KIND, "the stored state")
        own_arrays = {name: a for name, a in arrays.items() if not lagged.is_past(name)}
        node = codec.decode(meta["node"], own_arrays, _RECORDS)
        if not isinstance(node, RowsNode):
            raise ValueError("it holds no node")
        _check(node, d, m, settings)
    except (BadFile, KeyError, TypeError, ValueError, IndexError) as error:
        raise BadInput(f"the stored state is damaged, or not this model's ({error})") from None
    inner = node.node
    bank = None if inner.bank is None else banks.complete(inner.bank)
    inner = replace(inner, node=saving.complete_node(inner.node), bank=bank)
    past = None if lags is None else lags.unpack(meta, arrays)
    return replace(node, node=inner), past


def _check(node: RowsNode, d: int, m: int, settings: Settings) -> None:
    """Refuse parts that do not fit together, or this network."""
    inner, n = node.node, len(node.X)
    saving.check_node(inner.node, d, m)
    if inner.node.own.settings != settings:
        raise ValueError("its settings differ")
    if inner.bank is not None:
        saving.check_bank(inner.bank, d + 1, m, True)
        if inner.bank.settings != listening.bank_settings(settings):
            raise ValueError("the settings of its network's bank differ")
    if inner.units is not None:
        banks.check_scaling(inner.units[0], d)
        banks.check_scaling(inner.units[1], m)
    banks.fits("heard", node.heard, (len(node.names),))
    for name, shape in (("X", (n, d)), ("Y", (n, m)), ("at", (n,))):
        banks.fits(name, getattr(node, name), shape)
    files.whole("sealed", node.sealed)
    if len(set(node.names)) < len(node.names) or (np.asarray(node.heard) < 0).any():
        raise ValueError("its origins are invalid")
