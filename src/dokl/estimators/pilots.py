"""A network that learns without settings: maps agreed on from its first rows, made anew as more
come, and cooperation on top.

Until the last pilot the rows are kept, with the step and the node they came at; each pilot learns
scales and centres from them, and the network learns them again on the new map. Rows that chose a
map are never scored with it: what was mixed, tracked and counted so far is carried over.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from dokl.arrays import Array, Block
from dokl.diffusion import Problem
from dokl.engines import cooperating
from dokl.exchange import Exchange
from dokl.experts.agreed import AgreedMap, agreed_map
from dokl.learner import Learner
from dokl.methods import cooperation
from dokl.methods.cooperation.members import MEMBERS, Member
from dokl.methods.cooperation.node import LEAST_WEIGHT, MIXTURES, Said, Team, fold
from dokl.state import State

# Rows of the network at which its map is made anew. While they are few, half as many again tell a
# lot more about scales (Beijing, a tenth of the labels, fifth week: .58 to .45 of the variance).
PILOTS = (
    *(1, 4, 12, 30, 60, 125, 180, 250, 350, 500, 700),
    *(1000, 1400, 2000, 3000, 5000, 10_000),
)
COMPONENTS, EVERY = 300, 1
# `fit` weighs members on every row up to so many; of more rows, half are enough.
ENOUGH = 2000
# What is carried over to a new map as it is: gains are in units of the variance.
MIXED = [f"{name}.{part}" for name in MIXTURES for part in ("gain", "square", "largest")]
CARRIED = (*MIXED, "reach", "own_reach", "energy", "learned", "covered")


@dataclass(frozen=True)
class KeptRows:
    """Rows kept for the pilots to come: X (n, d), Y (n, m), weight, step and node (n,)."""

    X: Array
    Y: Array
    weight: Array
    step: Array
    owner: Array

    def and_then(self, other: KeptRows) -> KeptRows:
        """These and later ones."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return KeptRows(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class CooperatingNetwork:
    """All that a cooperating network knows. map and state: None before the first row; kept: None
    once there is no pilot to come.
    """

    exchange: Exchange
    K: int
    m: int
    most: int
    seed: int
    classes: int
    bound: float
    members: tuple[Member, ...] = MEMBERS
    map: AgreedMap | None = None
    state: State | None = None
    kept: KeptRows | None = None
    seen: int = 0

    @property
    def clock(self) -> int:
        """Steps taken."""
        return 0 if self.state is None else self.state.clock

    @property
    def learned_map(self) -> AgreedMap:
        """The map, once there is one."""
        assert self.map is not None
        return self.map

    @property
    def learned_state(self) -> State:
        """The state, once there is one."""
        assert self.state is not None
        return self.state

    @cached_property
    def learner(self) -> Learner:
        """The learner on the network's map."""
        method = cooperation(self.learned_map.ridge, self.bound, self.members)
        problem = Problem(self.learned_map, method)
        return Learner(problem, self.exchange, K=self.K, m=self.m)

    @property
    def crew(self) -> Team:
        """What every node mixes."""
        return self.learner.problem.method.crew(self.exchange)  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what was learned; the learner is made when needed."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def learn(
    network: CooperatingNetwork, X: Array, Y: Array, weight: Array, index: Array
) -> tuple[CooperatingNetwork, Said]:
    """Rows X: (n, d), Y: (n, m) of positive weight, in the order of index: (steps, K), -1 where a
    node has none. Returns what was said of each row, in the targets' own units: (n, m).
    """
    n, L = len(X), 5
    out = Said(np.zeros((n, network.m)), np.ones((n, network.m)), np.zeros((n, network.m, L)))
    index = _begun_in_turn(weight, index) if network.map is None else index
    start = 0
    while start < len(index):
        stop = _until_pilot(network, weight, index, start)
        piece, before = index[start:stop], network
        network, said = _learn_some(network, X, Y, weight, piece)
        used = piece >= 0
        rows = piece[used]
        if said is not None and before.map is not None:
            out.mean[rows] = before.map.outward(said.mean[used], np.nonzero(used)[1])
            out.variance[rows] = said.variance[used] * before.map.targets.size**2
            out.widths[rows] = said.widths[used]
        start = stop
    return network, out


def fitted(
    network: CooperatingNetwork, X: Array, Y: Array, weight: Array, index: Array
) -> tuple[CooperatingNetwork, Array, Array]:
    """The network after these rows, with one map made from all of them; what was said of each
    before it was learned, in the targets' own units: (n, m); and whether that was fair: (n,).

    Rows that chose a map must not be scored with it, or intervals become too narrow. So members
    are weighed and widths tracked on one half of each node's rows by a map of the other half (both
    ways round, where rows are few); then all rows are learned on a map of all.
    """
    rows = _rows_at(X, Y, weight, index)
    seen, told, fair = len(rows.X), np.zeros((len(X), network.m)), np.zeros(len(X), bool)
    kept, weighed = rows if seen < PILOTS[-1] else None, None
    halves = _halves(index)
    ways = [halves, halves[::-1]] if all((half >= 0).any() for half in halves) else []
    for ours, theirs in ways[: 2 if seen <= ENOUGH else 1]:
        weighed, said = _weighed(network, weighed, (X, Y, weight), ours, theirs)
        at = theirs[theirs >= 0]
        told[at], fair[at] = said, True
    network = replace(network, map=_map_of(network, rows), kept=kept, seen=seen)
    state, everything = _learned(network, rows, len(index))
    if weighed is not None:
        return replace(network, state=_carried(network, state, weighed)), told, fair
    assert network.map is not None
    used = index >= 0
    told[index[used]] = network.map.outward(everything.mean[used], np.nonzero(used)[1])
    return replace(network, state=state), told, np.ones(len(X), bool)


def _weighed(
    network: CooperatingNetwork, before: CooperatingNetwork | None,
    data: tuple[Array, Array, Array], ours: Array, theirs: Array,
) -> tuple[CooperatingNetwork, Array]:  # fmt: skip
    """A network that has learned the steps `ours` on a map of them, and then `theirs`, with what
    was mixed and tracked `before` and on those alone; and what it said of those rows: (rows, m).
    """
    rows = _rows_at(*data, ours)
    network = replace(network, map=_map_of(network, rows))
    assert network.map is not None
    state, _ = _learned(network, rows, len(ours))
    before = before or replace(network, state=network.learner.start())
    state = _carried(network, state, before)
    X, Y, weight = data
    block = Block(X, network.map.inward(Y, _owners(len(X), theirs)), weight, theirs)
    state, said = cooperating.advance_said(network.learner.plan, state, block)
    used = theirs >= 0
    mean = network.map.outward(said.mean[used], np.nonzero(used)[1])
    return replace(network, state=state), mean


def _halves(index: Array) -> tuple[Array, Array]:
    """The first half of each node's rows, and the other, in steps as before: (steps, K) each."""
    used = index >= 0
    first = used & (np.cumsum(used, axis=0) <= (used.sum(axis=0) + 1) // 2)
    parts = (np.where(mask, index, -1) for mask in (first, used & ~first))
    one, other = (part[(part >= 0).any(axis=1)] for part in parts)
    return one, other


def _rows_at(X: Array, Y: Array, weight: Array, index: Array) -> KeptRows:
    """The rows of these steps."""
    used = index >= 0
    at = index[used]
    return KeptRows(X[at], Y[at], weight[at], *np.nonzero(used))


def _map_of(network: CooperatingNetwork, rows: KeptRows) -> AgreedMap:
    about = network.most, network.seed, rows.owner, network.K, network.classes
    return agreed_map(rows.X, rows.Y, rows.weight, *about)


def _owners(n: int, index: Array) -> Array:
    """The node of each of n rows, 0 where a row is not among these steps: (n,)."""
    owner, used = np.zeros(n, np.int64), index >= 0
    owner[index[used]] = np.nonzero(used)[1]
    return owner


def _labelled(X: Array, Y: Array, weight: Array, index: Array) -> KeptRows:
    """The rows that are learned, with their steps and nodes."""
    return _rows_at(X, Y, weight, np.where(_learns(weight, index), index, -1))


def _learns(weight: Array, index: Array) -> Array:
    """Where a row is learned, and not only predicted: (steps, K)."""
    return np.asarray((index >= 0) & (weight[np.maximum(index, 0)] >= LEAST_WEIGHT))


def _begun_in_turn(weight: Array, index: Array) -> Array:
    """The first step with a label as several, cut where pilots are due.

    Before anybody has seen a target everybody guesses 0, and where targets lie around 100, a whole
    step of such guesses would be most of all error in a short stream. Somebody is first: the rows
    of that step come in the order given, and those that follow know the level.
    """
    learns = _learns(weight, index)
    if not learns.any():
        return index
    first = int(np.argmax(learns.any(axis=1)))
    there = np.flatnonzero(index[first] >= 0)
    there = there[np.argsort(index[first, there])]
    label = learns[first, there]
    turn = np.searchsorted(PILOTS, np.cumsum(label) - label, side="right")
    steps = np.full((1 + int(turn[-1]), index.shape[1]), -1, np.int64)
    steps[turn, there] = index[first, there]
    return np.concatenate([index[:first], steps, index[first + 1 :]])


def _until_pilot(network: CooperatingNetwork, weight: Array, index: Array, start: int) -> int:
    """Steps up to the one that ends with a pilot."""
    next_one = next((p for p in PILOTS if p > network.seen), None)
    if next_one is None:
        return len(index)
    learns = _learns(weight, index[start:])
    rows = network.seen + np.cumsum(learns.sum(axis=1))
    return min(len(index), start + int(np.searchsorted(rows, next_one)) + 1)


def _learn_some(
    network: CooperatingNetwork, X: Array, Y: Array, weight: Array, index: Array
) -> tuple[CooperatingNetwork, Said | None]:
    """Steps without a pilot among them; a pilot after the last, if it is time."""
    new, clock, kept = _labelled(X, Y, weight, index), network.clock, network.kept
    seen = network.seen + len(new.X)
    if network.seen < PILOTS[-1]:
        new = replace(new, step=new.step + clock)
        kept = new if kept is None else kept.and_then(new)
    said = None
    if network.map is not None and network.state is not None:
        block = Block(X, network.map.inward(Y, _owners(len(X), index)), weight, index)
        state, said = cooperating.advance_said(network.learner.plan, network.state, block)
        network = replace(network, state=state)
    network = replace(network, kept=kept, seen=seen)
    if any(seen - len(new.X) < pilot <= seen for pilot in PILOTS):
        network = _pilot(network, clock + len(index))
    return network, said


def _pilot(network: CooperatingNetwork, clock: int) -> CooperatingNetwork:
    """A new map from the rows that are kept, learned again; the last one lets them go."""
    kept, old = network.kept, network
    assert kept is not None
    made = _map_of(network, kept)
    network = replace(network, map=made)
    state, _ = _learned(network, kept, clock)
    if old.state is not None:
        state = _carried(network, state, old)
    return replace(network, state=state, kept=None if network.seen >= PILOTS[-1] else kept)


def _learned(network: CooperatingNetwork, rows: KeptRows, steps: int) -> tuple[State, Said]:
    """The state after so many steps in which these rows came, and what was said of them."""
    assert network.map is not None
    learner = network.learner
    index = np.full((steps, network.K), -1, np.int64)
    index[rows.step, rows.owner] = np.arange(len(rows.X))
    Y = network.map.inward(rows.Y, rows.owner)
    return cooperating.advance_said(
        learner.plan, learner.start(), Block(rows.X, Y, rows.weight, index)
    )


def _carried(network: CooperatingNetwork, state: State, old: CooperatingNetwork) -> State:
    """Who is believed, how wide intervals are and what was counted, as it was on an old map."""
    assert network.map is not None
    assert old.map is not None
    assert old.state is not None
    sizes = old.map.targets.size / network.map.targets.size  # which errors are in
    ratio, known = float(np.mean(sizes**2)), old.state.nodes
    nodes: dict[str, Any] = {name: known[name] for name in CARRIED}
    nodes["error"] = known["error"] * np.array([ratio, ratio, 1.0])
    state = state.having(**nodes)
    fold(network.crew, state)
    return state
