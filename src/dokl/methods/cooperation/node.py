"""One node's rows: predicted by every member, learned, and mixed by what each would have gained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl import intervals
from dokl import mixture as mixing
from dokl.arrays import Array
from dokl.methods.cooperation import reach
from dokl.methods.cooperation.members import Member, numbered
from dokl.methods.squares import NAMES, blocks, shared
from dokl.methods.squares import memory as memories
from dokl.methods.squares.blocks import NotDefinite
from dokl.methods.squares.memory import Memory, Numbers
from dokl.mixture import Mixture
from dokl.state import State

# A row of less weight is predicted and not learned: its label never came.
LEAST_WEIGHT = 1e-20
# Both mixtures of a node: of all members, and of its own alone, to compare with.
MIXTURES = ("all", "alone")


@dataclass(frozen=True)
class Said:
    """What was said of rows before they were learned: mean and variance (n, m), and half the
    widths of their intervals in standard deviations (n, m, levels).
    """

    mean: Array
    variance: Array
    widths: Array


@dataclass(frozen=True)
class Crew:
    """The members at work: names, numbers of each, how many features and rows' offsets in `sums`."""

    members: tuple[Member, ...]
    names: tuple[str, ...]
    numbers: tuple[Numbers, ...]
    bound: float

    @property
    def shared(self) -> list[int]:
        """The shared ones, by number."""
        return [i for i, member in enumerate(self.members) if member.role == "shared"]

    @property
    def own(self) -> list[int]:
        """The node's own, by number."""
        return [i for i, member in enumerate(self.members) if member.role == "own"]

    def base(self, i: int) -> int | None:
        """Whose errors member i corrects."""
        member = self.members[i]
        return self.shared[member.of] if member.role == "corrected" else None

    def sums(self, D: int, m: int) -> dict[int, slice]:
        """Where the sums of each shared member stand among what travels."""
        found, at = {}, 0
        for i in self.shared:
            size = shared.size(self.members[i].D(D), m)
            found[i], at = slice(at, at + size), at + size
        return found


def crew(members: tuple[Member, ...], ridge: float, bound: float) -> Crew:
    """Members with their numbers."""
    numbers = tuple(
        Numbers(ridge * member.ridge, 1.0 - 1.0 / member.memory, bound) for member in members
    )
    return Crew(members, tuple(numbered(members)), numbers, bound)


def memory_of(state: State, k: int, name: str) -> Memory:
    """What one member of node k knows."""
    nodes = state.nodes
    theta, P, a, b, W, c, n, num, den = (nodes[f"{name}.{part}"][k] for part in NAMES)
    return Memory(theta, P.T, float(a), float(b), W, c, int(n), num, float(den))


def put(state: State, k: int, name: str, before: Memory, after: Memory, ours: set[str]) -> None:
    """Write what it knows now. Matrices are large, and only written where they changed; `ours`:
    those that may be written to, others are copied first.
    """
    nodes = state.nodes
    if after.P is not before.P:
        if f"{name}.P" not in ours:
            nodes[f"{name}.P"] = nodes[f"{name}.P"].copy()
            ours.add(f"{name}.P")
        nodes[f"{name}.P"][k] = after.P.T
    if after.W is not before.W:
        nodes[f"{name}.W"][k] = after.W
    for part in ("theta", "a", "b", "c", "n", "num", "den"):
        nodes[f"{name}.{part}"][k] = getattr(after, part)


def narrowed(member: Member, Z: Array) -> Array:
    """The features that a member uses: (n, its D)."""
    if member.width == 0:
        return np.ones((len(Z), 1))
    D = member.D(Z.shape[1])
    return Z if D == Z.shape[1] else np.ascontiguousarray(Z[:, :D])


def learn(
    crew: Crew, state: State, k: int, Z: Array, Y: Array, weight: Array, ours: set[str]
) -> Said:
    """Rows Z: (n, D), Y: (n, m) of positive weight: (n,), in order, into a state that may be
    overwritten (but for matrices that are not `ours`).
    """
    n, m = Y.shape
    learns = weight >= LEAST_WEIGHT
    F, V = np.empty((n, len(crew.members), m)), np.empty((n, len(crew.members), m))
    places = crew.sums(Z.shape[1], m)
    for i, (member, name) in enumerate(zip(crew.members, crew.names, strict=True)):
        base, z = crew.base(i), narrowed(member, Z)
        target = Y if base is None else Y - F[:, base]
        before = memory_of(state, k, name)
        after, F[:, i], V[:, i], held = _member(crew.numbers[i], before, z, target, weight, learns)
        put(state, k, name, before, after, ours)
        if base is not None:
            F[:, i] += F[:, base]
        if i in places and learns.any():
            rows = shared.of_rows(z[learns], Y[learns], held[learns])
            state.nodes["sums"][k, places[i]] += rows
    return _mixed(crew, state, k, F, V, Y, np.where(learns, weight, 0.0))


def _member(
    numbers: Numbers, memory: Memory, Z: Array, Y: Array, weight: Array, learns: Array
) -> tuple[Memory, Array, Array, Array]:
    """The memory after rows, what it said of each before, (n, m), how sure it was, (n, m), and
    their weights as bounded: (n,).
    """
    f, variance, held = np.empty(Y.shape), np.empty(Y.shape), weight.copy()
    for some in _runs(learns):
        z = Z[some]
        if not learns[some.start]:
            f[some] = z @ memory.theta.T
            variance[some] = memory.noise * (1.0 + memory.variance(z))[:, None]
            continue
        w = None if (weight[some] == 1.0).all() else weight[some]
        try:
            memory, found = blocks.learn(numbers, memory, z, Y[some], w)
        except NotDefinite:  # spoiled by rounding: it starts again, and the others carry on
            memory = memories.start(Z.shape[1], Y.shape[1], numbers.rho)
            memory, found = blocks.learn(numbers, memory, z, Y[some], w)
        f[some], held[some] = found.f, found.weight
        variance[some] = found.noise * (1.0 + found.q)[:, None]
    return memory, f, variance, held


def _runs(learns: Array) -> Iterator[slice]:
    """Rows one after the other that are all learned, or all only predicted."""
    ends = [0, *(np.flatnonzero(np.diff(learns)) + 1).tolist(), len(learns)]
    return (slice(a, b) for a, b in zip(ends, ends[1:], strict=False) if b > a)


def _mixed(crew: Crew, state: State, k: int, F: Array, V: Array, Y: Array, weight: Array) -> Said:
    """Mix all members, and for comparison the node's own alone; keep account of both."""
    nodes, said = state.nodes, None
    plain = None if (weight == 1.0).all() else weight
    for j, (name, which) in enumerate(zip(MIXTURES, (slice(None), crew.own), strict=True)):
        before = mixture_of(state, k, name)
        awake = np.ones(len(before.gain), bool)
        after, f, variance = mixing.mixed(
            before, F[:, which], V[:, which], Y, awake, plain, crew.bound
        )
        for part in ("gain", "square", "largest"):
            nodes[f"{name}.{part}"][k] = getattr(after, part)
        nodes["error"][k, j] += weight @ np.mean((Y - f) ** 2, axis=1)
        said = (f, variance) if said is None else said
    assert said is not None
    nodes["learned"][k] += weight.sum()
    scores = np.abs(Y - said[0]) / np.sqrt(np.maximum(said[1], 1e-300))
    scores[weight == 0.0] = np.nan
    parts = nodes["reach"][k], nodes["own_reach"][k], nodes["energy"][k]
    *new, widths = reach.follow(np.array(intervals.LEVELS), *parts, scores)
    nodes["reach"][k], nodes["own_reach"][k], nodes["energy"][k] = new
    return Said(*said, widths)


def mixture_of(state: State, k: int, name: str) -> Mixture:
    """A mixture of node k."""
    gain, square, largest = (state.nodes[f"{name}.{p}"][k] for p in ("gain", "square", "largest"))
    return Mixture(gain, square, float(largest))


def weights_of(crew: Crew, state: State, k: int) -> Array:
    """What each member counts in the next prediction of node k: (E,), summing to one."""
    return mixture_of(state, k, "all").weights(np.ones(len(crew.members), bool))


def fold(crew: Crew, state: State, which: Any = None) -> None:
    """Write the vectors that predict: members share their features, so each node's mixture is one
    vector and an offset, and the mixture of its shared members another.
    """
    nodes = state.nodes
    m = nodes["theta"].shape[1]
    for k in range(state.K) if which is None else which:
        theta, bias = np.zeros(nodes["theta"].shape[1:]), np.zeros(m)
        common = np.zeros_like(theta)
        for i, w in enumerate(weights_of(crew, state, k)):
            if w > 0.0:
                for j in (i, crew.base(i)):
                    _add(crew, state, k, j, w, theta, bias)
        if crew.shared:
            mask = np.isin(np.arange(len(crew.members)), crew.shared)
            for i, w in enumerate(mixture_of(state, k, "all").weights(mask)):
                if w > 0.0:
                    _add(crew, state, k, i, w, common, bias)
            nodes["common"][k] = common
        nodes["theta"][k], nodes["bias"][k] = theta, bias


def _add(
    crew: Crew, state: State, k: int, i: int | None, w: float, theta: Array, bias: Array
) -> None:
    if i is None:
        return
    vector = state.nodes[f"{crew.names[i]}.theta"][k]
    if crew.members[i].width == 0:
        bias += w * vector[:, 0]
    else:
        theta[:, : vector.shape[1]] += w * vector
