"""A node that shares sums as bytes for its journal, and back; also what earlier versions left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dokl.base import codec, files
from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput
from dokl.learning.experts import saving as banks
from dokl.learning.experts.kinds import Settings
from dokl.learning.squares.memory import LIST
from dokl.learning.squares.sums import Sums
from dokl.live import lagged
from dokl.live.lagged import LaggedInputs
from dokl.network import saving
from dokl.network import state as arrays_by_name
from dokl.network.agreed import AgreedMap
from dokl.network.node import NetworkNode
from dokl.network.summing import EXPERTS, OwnSums, SummingNode
from dokl.network.sums import shared
from dokl.tables.models.series import Series

KIND = "node"
_RECORDS = (SummingNode, OwnSums, *saving.RECORDS)


def pack(node: SummingNode, series: Series | None = None) -> bytes:
    """Everything in bytes, exact, without room for further rows; series: the rows remembered."""
    own, n = node.own, node.own.n
    own = replace(own, Z=own.Z[:n], Y=own.Y[:n], weight=own.weight[:n])
    known, memories = saving.compact_node(node.node), banks.compact_memories(node.memories)
    meta, arrays = codec.encode(replace(node, node=known, own=own, memories=memories))
    about, past = lagged.pack(series)
    return files.to_bytes(KIND, {"node": meta, **about}, arrays | past, "the state of a node")


def unpack(
    data: bytes, made: AgreedMap, settings: Settings, lags: LaggedInputs | None = None
) -> tuple[SummingNode, Series | None]:
    """The node that was packed, and the rows that it remembers; BadInput where it is damaged, or of
    another map, or of other lags.
    """
    try:
        meta, arrays = files.from_bytes(data, KIND, "the stored state")
        own_arrays = {name: a for name, a in arrays.items() if not lagged.is_past(name)}
        node = codec.decode(meta["node"], own_arrays, _RECORDS)
        if not isinstance(node, SummingNode):
            raise ValueError("it holds no node")
        _check(node, made, settings)
    except (BadFile, KeyError, TypeError, ValueError, IndexError) as error:
        raise BadInput(f"the stored state is damaged, or not this model's ({error})") from None
    own = node.own
    Z, Y, weight = (_with_room(part) for part in (own.Z, own.Y, own.weight))
    known, memories = saving.complete_node(node.node), banks.complete_memories(node.memories)
    own = replace(own, Z=Z, Y=Y, weight=weight)
    past = None if lags is None else lags.unpack(meta, arrays)
    return replace(node, node=known, own=own, memories=memories), past


def _with_room(part: Array) -> Array:
    """The rows of a list, with room for as many as it takes."""
    room = np.zeros((LIST, *part.shape[1:]))
    room[: len(part)] = part
    return room


def _check(node: SummingNode, made: AgreedMap, settings: Settings) -> None:
    """Refuse parts that do not fit together; the types of fields were checked by the codec."""
    d, m, D, own = made.d, made.m, made.D, node.own
    known: NetworkNode = node.node
    if known.own.settings != settings:
        raise ValueError("its own learner has other settings")
    saving.check_node(known, d, m)
    banks.check_mixture(node.mixture, len(EXPERTS))
    if len(node.memories) not in (0, len(EXPERTS)):
        raise ValueError(f"it has {len(node.memories)} of the network's experts")
    for memory, (_, centres) in zip(node.memories, EXPERTS, strict=False):
        banks.check_memory(memory, made.width(centres), m)
    n = files.whole("n", own.n, 0, LIST - 1)
    banks.fits("weight", own.weight, (n,))
    banks.check_rows("own", (own.Z, own.Y, own.weight), D, m)
    banks.check_sums(own.added, D, m)


# -- states of earlier versions ------------------------------------------------------------------
def is_old(data: bytes) -> bool:
    """Whether an earlier version packed it, whose nodes were no single learners."""
    return data.startswith(b"doklst")


def old_sums(data: bytes, D: int, m: int) -> Sums:
    """The sums of all rows that such a node had learned; BadInput where there are none."""
    found = arrays_by_name.unpack(data)
    vector = found.nodes.get("sums")
    if vector is None or vector.shape != (1, shared.size(D, m)) or not np.isfinite(vector).all():
        raise BadInput("the stored state is not this model's: it has no sums of this size")
    return shared.unpack(vector[0], D, m)
