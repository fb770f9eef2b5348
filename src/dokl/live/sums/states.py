"""A node that shares sums as bytes for its journal, and back; also what earlier versions left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dokl.base import codec, files
from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput
from dokl.learning.columns import LagColumns, LagPlan
from dokl.learning.experts import saving as banks
from dokl.learning.experts.kinds import Settings
from dokl.learning.squares.memory import LIST
from dokl.learning.squares.sums import Sums
from dokl.network import saving
from dokl.network import state as arrays_by_name
from dokl.network.agreed import AgreedMap
from dokl.network.node import NetworkNode
from dokl.network.summing import EXPERTS, OwnSums, SummingNode
from dokl.network.sums import shared

KIND, LAGS = "node", "lags."
_RECORDS = (SummingNode, OwnSums, *saving.RECORDS)


def pack(node: SummingNode, lags: LagColumns | None = None) -> bytes:
    """Everything in bytes, exact, without room for further rows; lags: the rows remembered."""
    own, n = node.own, node.own.n
    own = replace(own, Z=own.Z[:n], Y=own.Y[:n], weight=own.weight[:n])
    known, memories = saving.compact_node(node.node), banks.compact_memories(node.memories)
    meta, arrays = codec.encode(replace(node, node=known, own=own, memories=memories))
    about = {"node": meta}
    if lags is not None:
        about["lags"], past = lags.spec()
        arrays |= {f"{LAGS}{name}": array for name, array in past.items()}
    return files.to_bytes(KIND, about, arrays, "the state of a node")


def unpack(data: bytes, made: AgreedMap, settings: Settings) -> SummingNode:
    """The node that was packed; BadInput where it is damaged, or of another map."""
    try:
        meta, arrays = files.from_bytes(data, KIND, "the stored state")
        own_arrays = {name: array for name, array in arrays.items() if not name.startswith(LAGS)}
        node = codec.decode(meta["node"], own_arrays, _RECORDS)
        if not isinstance(node, SummingNode):
            raise ValueError("there is no node in it")
        _check(node, made, settings)
    except (BadFile, KeyError, TypeError, ValueError, IndexError) as error:
        raise BadInput(f"the stored state is damaged, or not this model's ({error})") from None
    own = node.own
    Z, Y, weight = (_with_room(part) for part in (own.Z, own.Y, own.weight))
    known, memories = saving.completed_node(node.node), banks.completed_memories(node.memories)
    own = replace(own, Z=Z, Y=Y, weight=weight)
    return replace(node, node=known, own=own, memories=memories)


def unpack_lags(data: bytes, plan: LagPlan) -> LagColumns:
    """The rows that a node remembers; BadInput where they are damaged, or of other lags."""
    try:
        meta, arrays = files.from_bytes(data, KIND, "the stored state")
        past = {name: array for name, array in arrays.items() if name.startswith(LAGS)}
        found = LagColumns.from_spec(
            meta["lags"], {name.removeprefix(LAGS): array for name, array in past.items()}
        )
    except (BadFile, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"the stored state is damaged, or has no lags ({error})") from None
    if found.plan != plan:
        raise BadInput("the stored state is not this model's: it has other lags")
    return found


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
    """Whether an earlier version packed it, whose nodes were no lone learners."""
    return data.startswith(b"doklst")


def old_sums(data: bytes, D: int, m: int) -> Sums:
    """The sums of all rows that such a node had learned; BadInput where there are none."""
    found = arrays_by_name.unpack(data)
    vector = found.nodes.get("sums")
    if vector is None or vector.shape != (1, shared.size(D, m)) or not np.isfinite(vector).all():
        raise BadInput("the stored state is not this model's: it has no sums of this size")
    return shared.unpacked(vector[0], D, m)
