"""What nodes remember: arrays by name, declared once, and everything done with them written once.

A method declares its arrays as `Slot`s; `start` makes them. Copying, taking some nodes out and
putting them together again, files, checkpoints and the bytes of a journal follow from the names.

>>> slots = {"theta": Slot((1, 4)), "count": Slot((), np.int64)}
>>> state = start(slots, K=3, dtype=np.float32)
>>> state.theta.shape, state.count.dtype.name
((3, 1, 4), 'int64')
>>> unpack(pack(state)).theta.shape
(3, 1, 4)
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.files import whole

# Before the names: magic, m, D, count, clock, peak; then theta, bias and a checksum of all of it.
_FIRST, _FIRST_HEAD = b"doklst1\n", struct.Struct("<8sIIqqd")
_SECOND, _LENGTH = b"doklst2\n", struct.Struct("<8sI")


@dataclass(frozen=True)
class Slot:
    """One array of a node: its shape, its type, and what it starts from.

    dtype: None is the precision of the run. start: a number, or an array of the shape.
    triangle: a symmetric matrix of which the upper triangle counts; stored as that alone.
    """

    shape: tuple[int, ...]
    dtype: Any = None
    start: Any = 0.0
    triangle: bool = False

    def kind(self, dtype: Any) -> np.dtype[Any]:
        """The type of the array where the run's precision is dtype."""
        kind: np.dtype[Any] = np.dtype(dtype if self.dtype is None else self.dtype)
        return kind


Slots = Mapping[str, Slot]


@dataclass(slots=True)
class State:
    """All that nodes remember; its size never depends on how much was learned.

    nodes: arrays by name, each (K, ...), also read as attributes: state.theta. clock: steps taken;
    peak: largest |y| seen; sent: bytes sent so far, where the exchange's rules decide on them.
    """

    nodes: dict[str, Array] = field(default_factory=dict)
    clock: int = 0
    peak: float = 0.0
    sent: int = 0

    def __getattr__(self, name: str) -> Array:
        if name.startswith("__") or name == "nodes":  # copying and unpickling ask for these
            raise AttributeError(name)
        try:
            return self.nodes[name]
        except KeyError:
            known = ", ".join(self.nodes) or "nothing"
            raise AttributeError(f"these nodes remember {known}, not {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("nodes", "clock", "peak", "sent"):
            object.__setattr__(self, name, value)
        elif name in self.nodes:  # state.theta *= 2
            self.nodes[name] = value
        else:
            raise AttributeError(f"nodes remember nothing of the name {name!r}")

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    @property
    def K(self) -> int:
        """Number of nodes."""
        return len(next(iter(self.nodes.values())))

    def copy(self) -> State:
        """An independent copy: engines advance a copy, so a failed call changes nothing."""
        return self.each(np.copy)

    def each(self, change: Callable[[Array], Array]) -> State:
        """The state with every array changed alike."""
        return replace(self, nodes={name: change(array) for name, array in self.nodes.items()})

    def part(self, own: Any) -> State:
        """The state of some nodes: their numbers, or one slice."""
        return self.each(lambda array: array[own])

    def having(self, **arrays: Array) -> State:
        """The state with some arrays replaced; the others are shared."""
        return replace(self, nodes=self.nodes | arrays)

    def delivered(self) -> tuple[Array, Array]:
        """The vectors (K, m, D) and intercepts (K, m) to predict with."""
        if "mean_theta" in self.nodes:
            return self.nodes["mean_theta"], self.nodes["mean_bias"]
        theta = self.nodes["theta"]
        return theta, self.nodes.get("bias", np.zeros(theta.shape[:2], theta.dtype))

    def pooled(self) -> tuple[Array, Array]:
        """One vector (m, D) and intercept (m,) for the network: the mean of what is delivered.

        Nodes weigh as many samples as they have seen: one that has seen none knows no intercept,
        and working alone no vector either. Where all have seen as many it is the plain mean.
        """
        delivered, count = self.delivered(), self.nodes["count"]
        if (count == count[0]).all():
            theta, bias = (a[0] if len(a) == 1 else a.mean(axis=0) for a in delivered)
        else:
            share = (count / count.sum()).astype(self.nodes["theta"].dtype)
            theta, bias = (np.einsum("k,k...->...", share, a) for a in delivered)
        return theta, bias


def start(slots: Slots, K: int, dtype: Any = np.float64) -> State:
    """K nodes that know nothing yet."""
    nodes = {}
    for name, slot in slots.items():
        nodes[name] = np.zeros((K, *slot.shape), slot.kind(dtype))
        if np.any(slot.start):  # zeros take no memory before they are written to
            nodes[name][...] = slot.start
    return State(nodes)


def check(state: State, slots: Slots, K: int, dtype: Any) -> State:
    """The state itself, if it is of these slots, finite and of K nodes; otherwise ValueError."""
    for name, slot in slots.items():
        if name not in state.nodes:
            raise ValueError(f"{name} is missing")
        array, shape, kind = state.nodes[name], (K, *slot.shape), slot.kind(dtype)
        if array.shape != shape or array.dtype != kind:
            raise ValueError(f"{name} is {array.dtype}{array.shape}, not {kind}{shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite")
    unknown = sorted(set(state.nodes) - set(slots))
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: nothing of that name is remembered here")
    return state


# -- as named arrays, for files ----------------------------------------------------------------
def to_arrays(state: State, slots: Slots | None = None, prefix: str = "") -> dict[str, Array]:
    """Everything by name; the counters are arrays, too: as JSON they would grow a digit."""
    found = {
        name: _fold(array) if slots is not None and slots[name].triangle else array
        for name, array in state.nodes.items()
    }
    found |= {"clock": np.array(state.clock, np.int64), "peak": np.array(state.peak, np.float64)}
    found |= {"sent": np.array(state.sent, np.int64)} if state.sent else {}
    return {prefix + name: np.asarray(array) for name, array in found.items()}


def from_arrays(arrays: Mapping[str, Array], slots: Slots | None = None, prefix: str = "") -> State:
    """What `to_arrays` gave; other names are left alone. Check what comes from outside."""
    found = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    clock, peak = (_number(found.pop(name), name) for name in ("clock", "peak"))
    sent = int(_number(found.pop("sent", np.array(0)), "sent"))
    for name, slot in (slots or {}).items():  # in the order of the slots, whatever it was
        if name in found:
            array = found.pop(name)
            found[name] = _unfold(array, slot.shape[0]) if slot.triangle else array
    return State(found, int(clock), float(peak), sent)


def _number(array: Array, name: str) -> Any:
    if np.shape(array) != () or not np.isfinite(array):
        raise ValueError(f"{name} is not one finite number")
    return array


def _fold(matrices: Array) -> Array:
    """(..., D, D) -> (..., D (D + 1) / 2), the upper triangle row by row."""
    rows, columns = np.triu_indices(matrices.shape[-1])
    return np.ascontiguousarray(matrices[..., rows, columns])


def _unfold(triangles: Array, D: int) -> Array:
    if triangles.shape[-1] != D * (D + 1) // 2:  # before anything of that size is made
        raise ValueError(f"a triangle of {triangles.shape[-1]} numbers, not {D * (D + 1) // 2}")
    rows, columns = np.triu_indices(D)
    full = np.zeros((*triangles.shape[:-1], D, D), triangles.dtype)
    full[..., rows, columns] = triangles
    full[..., columns, rows] = triangles
    return full


# -- as bytes, for journals --------------------------------------------------------------------
def pack(state: State, slots: Slots | None = None) -> bytes:
    """Everything in bytes, exact: a description as JSON, the arrays, a checksum of both."""
    arrays = {
        name: np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        for name, array in to_arrays(state, slots).items()
    }
    about = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps(about, separators=(",", ":")).encode()
    body = _LENGTH.pack(_SECOND, len(text)) + text
    body += b"".join(array.tobytes() for array in arrays.values())
    return body + struct.pack("<I", zlib.crc32(body))


def unpack(data: bytes, slots: Slots | None = None) -> State:
    """The state that `pack` packed, also that of version 0.1; BadInput if it is damaged."""
    if len(data) < _LENGTH.size + 4 or data[:8] not in (_FIRST, _SECOND):
        raise BadInput("the stored state is damaged, or not one of dokl's")
    body, checksum = data[:-4], struct.unpack("<I", data[-4:])[0]
    if zlib.crc32(body) != checksum:
        raise BadInput("the stored state is damaged: its size or its checksum does not fit")
    try:
        return _first(body) if data[:8] == _FIRST else _second(body, slots)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadInput(f"the stored state is damaged ({error})") from None


def _first(body: bytes) -> State:
    """One node, float32."""
    _, m, D, count, clock, peak = _FIRST_HEAD.unpack_from(body)
    numbers = np.frombuffer(body, "<f4", offset=_FIRST_HEAD.size).astype(np.float32)
    if len(numbers) != m * (D + 1):
        raise ValueError(f"{len(numbers)} numbers for shape {(m, D)}")
    theta, bias = numbers[: m * D].reshape(1, m, D), numbers[m * D :].reshape(1, m)
    return State({"theta": theta, "bias": bias, "count": np.array([count])}, clock, peak)


def _second(body: bytes, slots: Slots | None) -> State:
    at = _LENGTH.size + _LENGTH.unpack_from(body)[1]
    arrays = {}
    for name, kind, shape in json.loads(body[_LENGTH.size : at]):
        dtype = np.dtype(kind)
        size = math.prod(whole("a length", length) for length in shape)
        array = np.frombuffer(body, dtype, size, at).reshape(shape)
        arrays[name] = array.astype(dtype.newbyteorder("="))
        at += size * dtype.itemsize
    if at != len(body):
        raise ValueError("bytes are left over")
    return from_arrays(arrays, slots)
