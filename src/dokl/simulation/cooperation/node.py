"""One node's rows: predicted by every member, learned, and mixed by what each would have gained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import intervals
from dokl.learning import mixture as mixing
from dokl.learning.mixture import Mixture
from dokl.learning.squares import blocks
from dokl.learning.squares import memory as memories
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import Memory, Numbers
from dokl.network.state import State
from dokl.network.sums import shared
from dokl.simulation.cooperation import reach
from dokl.simulation.cooperation.members import Member, numbered
from dokl.simulation.squares import NAMES

# A row of less weight is predicted and not learned: its label never came.
LEAST_WEIGHT = 1e-20
# Rows over which errors and coverage are accounted for.
LATELY = 1000.0
# A node's first rows, of which everybody errs and chance decides, are not accounted for.
BEGINNING = 30
# Both mixtures of a node: of its own members, and of that mixture with all others, so that no
# node is ever much worse than it would be alone.
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
class Team:
    """The members at work, with the name and the numbers of each.

    one_sum: a node keeps the sums of all rows alone, and experts that forget know what came since.
    """

    members: tuple[Member, ...]
    names: tuple[str, ...]
    numbers: tuple[Numbers, ...]
    bound: float
    one_sum: bool = False

    @property
    def shared(self) -> list[int]:
        """The shared ones, by number."""
        return [i for i, member in enumerate(self.members) if member.role == "shared"]

    @property
    def own(self) -> list[int]:
        """The node's own, by number."""
        return [i for i, member in enumerate(self.members) if member.role == "own"]

    @property
    def others(self) -> list[int]:
        """The rest: shared and corrected, by number."""
        return [i for i, member in enumerate(self.members) if member.role != "own"]

    def base(self, i: int) -> int | None:
        """Whose errors member i corrects."""
        member = self.members[i]
        return self.shared[member.of] if member.role == "corrected" else None

    def sums(self, D: int, m: int) -> dict[int, slice]:
        """Where the sums of each shared member stand among what travels."""
        found, at = {}, 0
        for i in self.shared[:1] if self.one_sum else self.shared:
            size = shared.size(self.members[i].D(D), m)
            found[i], at = slice(at, at + size), at + size
        return found


def crew(members: tuple[Member, ...], ridge: float, bound: float) -> Team:
    """Members with their numbers."""
    numbers = tuple(
        Numbers(ridge * member.ridge, 1.0 - 1.0 / member.memory, bound) for member in members
    )
    return Team(members, tuple(numbered(members)), numbers, bound)


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
    return Z if Z.shape[1] == D else np.ascontiguousarray(Z[:, :D])


def learn(
    crew: Team, state: State, k: int, Z: Array, Y: Array, weight: Array, ours: set[str]
) -> Said:
    """Rows Z: (n, D), Y: (n, m) of positive weight: (n,), in order, into a state that may be
    overwritten (but for matrices that are not `ours`).
    """
    rows = Z, Y, weight
    said = learn_own(crew, state, k, *rows, learn_shared(crew, state, k, *rows, ours), ours)
    return Said(*said, follow(state, k, Y, *said, weight))


def learn_shared(
    crew: Team, state: State, k: int, Z: Array, Y: Array, weight: Array, ours: set[str]
) -> Array:
    """What the shared members say and how sure they are, (2, n, shared, m); rows join the sums."""
    learns, places = weight >= LEAST_WEIGHT, crew.sums(Z.shape[1], Y.shape[1])
    found = np.empty((2, len(Y), len(crew.shared), Y.shape[1]))
    for j, i in enumerate(crew.shared):
        z, name = narrowed(crew.members[i], Z), crew.names[i]
        before = memory_of(state, k, name)
        after, *said, held = _member(crew.numbers[i], before, z, Y, weight, learns)
        found[:, :, j] = said
        put(state, k, name, before, after, ours)
        if i in places and learns.any():
            sums = state.nodes["sums"][k, places[i]]
            shared.add_rows(sums, z[learns], Y[learns], held[learns])
    return found


def learn_own(
    crew: Team,
    state: State,
    k: int,
    Z: Array,
    Y: Array,
    weight: Array,
    by_shared: Array,
    ours: set[str],
) -> tuple[Array, Array]:
    """The rest: the node's own members, its corrections of the shared ones, and the mixture of
    all. Returns its means and variances: (n, m).
    """
    learns = weight >= LEAST_WEIGHT
    both = np.empty((2, len(Y), len(crew.members), Y.shape[1]))
    both[:, :, crew.shared] = by_shared
    F = both[0]
    for i, (member, name) in enumerate(zip(crew.members, crew.names, strict=True)):
        if member.role == "shared":
            continue
        base = crew.base(i)
        target = Y if base is None else Y - F[:, base]
        before, z = memory_of(state, k, name), narrowed(member, Z)
        after, *said, _ = _member(crew.numbers[i], before, z, target, weight, learns)
        both[:, :, i] = said
        put(state, k, name, before, after, ours)
        if base is not None:
            F[:, i] += F[:, base]
    return _mixed(crew, state, k, both, Y, np.where(learns, weight, 0.0))


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
    return (slice(a, b) for a, b in pairwise(ends) if b > a)


def _mixed(
    crew: Team, state: State, k: int, both: Array, Y: Array, weight: Array
) -> tuple[Array, Array]:
    """Mix the node's own members, then that mixture with the others; keep account of both.

    both: means and variances (2, n, members, m).
    """
    nodes, plain = state.nodes, None if (weight == 1.0).all() else weight
    (F, V), said = both[:, :, crew.own], list[tuple[Array, Array]]()
    for name in ("alone", "all"):
        before = mixture_of(state, k, name)
        awake = np.ones(len(before.gain), bool)
        after, f, variance = mixing.mixed(before, F, V, Y, awake, plain, crew.bound, relative=True)
        for part in ("gain", "square", "largest"):
            nodes[f"{name}.{part}"][k] = getattr(after, part)
        said.append((f, variance))
        F, V = np.concatenate([np.stack(said[0])[:, :, None], both[:, :, crew.others]], axis=2)
    late = np.where(nodes["count"][k] + np.arange(len(Y)) >= BEGINNING, weight, 0.0)
    for j, f in enumerate((said[1][0], said[0][0], Y + 1.0)):
        nodes["error"][k, j] = lately(nodes["error"][k, j], late, np.mean((Y - f) ** 2, axis=1))
    nodes["learned"][k] = lately(nodes["learned"][k], weight, np.ones(len(Y)))
    return said[1]


def lately(total: Array, weight: Array, values: Array) -> Array:
    """A running sum of weighted values, (n,) or (n, L), of about the last LATELY rows with any
    weight; what was long ago says little about what sharing is worth now.
    """
    rows = np.cumsum(weight > 0)
    keep = (1.0 - 1.0 / LATELY) ** (rows[-1] - rows)
    return np.asarray((1.0 - 1.0 / LATELY) ** rows[-1] * total + (weight * keep) @ values)


def follow(state: State, k: int, Y: Array, mean: Array, variance: Array, weight: Array) -> Array:
    """Let the widths of intervals follow what was said of rows; returns those that stood before
    each: (n, m, levels).
    """
    nodes, learns = state.nodes, weight >= LEAST_WEIGHT
    scores = np.abs(Y - mean) / np.sqrt(np.maximum(variance, 1e-300))
    scores[~learns] = np.nan
    parts = nodes["reach"][k], nodes["own_reach"][k], nodes["energy"][k]
    *new, widths = reach.follow(np.array(intervals.LEVELS), *parts, scores)
    inside = (scores[:, :, None] <= widths).mean(axis=1)  # NaN is not inside
    nodes["covered"][k] = lately(nodes["covered"][k], np.where(learns, weight, 0.0), inside)
    nodes["reach"][k], nodes["own_reach"][k], nodes["energy"][k] = new
    return widths


def mixture_of(state: State, k: int, name: str) -> Mixture:
    """A mixture of node k."""
    gain, square, largest = (state.nodes[f"{name}.{p}"][k] for p in ("gain", "square", "largest"))
    return Mixture(gain, square, float(largest))


def weights_of(crew: Team, state: State, k: int) -> Array:
    """What each member counts in the next prediction of node k: (E,), summing to one."""
    found = np.empty(len(crew.members))
    first, *rest = mixture_of(state, k, "all").weights(np.ones(1 + len(crew.others), bool))
    found[crew.own] = first * mixture_of(state, k, "alone").weights(np.ones(len(crew.own), bool))
    found[crew.others] = rest
    return found


def predicted(crew: Team, state: State, k: int, Z: Array) -> tuple[Array, Array]:
    """Means and variances (n, m) of rows Z: (n, D) by the mixture of node k."""
    weights, shape = weights_of(crew, state, k), (len(crew.members), len(Z), state.theta.shape[1])
    F, V = np.zeros(shape), np.zeros(shape)
    for i, (member, name) in enumerate(zip(crew.members, crew.names, strict=True)):
        base = crew.base(i)
        if weights[i] > 0.0 or member.role == "shared":
            memory, z = memory_of(state, k, name), narrowed(member, Z)
            F[i] = z @ memory.theta.T + (0.0 if base is None else F[base])
            V[i] = memory.noise * (1.0 + memory.variance(z))[:, None]
    w = weights[:, None, None]
    mean = (w * F).sum(axis=0)
    return mean, (w * (V + (F - mean) ** 2)).sum(axis=0)


def fold(crew: Team, state: State, which: Any = None) -> None:
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
            mask = np.array([False, *(i in crew.shared for i in crew.others)])
            for i, w in zip(
                crew.others, mixture_of(state, k, "all").weights(mask)[1:], strict=True
            ):
                if w > 0.0:
                    _add(crew, state, k, i, w, common, bias)
            nodes["common"][k] = common
        nodes["theta"][k], nodes["bias"][k] = theta, bias


def _add(
    crew: Team, state: State, k: int, i: int | None, w: float, theta: Array, bias: Array
) -> None:
    if i is None:
        return
    vector = state.nodes[f"{crew.names[i]}.theta"][k]
    if crew.members[i].width == 0:
        bias += w * vector[:, 0]
    else:
        theta[:, : vector.shape[1]] += w * vector
