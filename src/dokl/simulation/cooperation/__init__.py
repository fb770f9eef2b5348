"""Method `cooperation`: own, shared and corrected experts at every node; sharing never hurts.

members  who is mixed: {own, shared, shared and an own correction} x memories
node     one node's rows: predicted by every member, learned, mixed by what each would have gained
rows     the same for one live node by compiled `loops`, to the same bits in any cut
reach    widths of intervals, with a part that nodes share and a private one

What travels are sums of rows, so each node's shared experts come to know all the network's rows. A
node believes them as far as they have helped on its own rows (`dokl.learning.mixture`): where nodes
learn the same function that is all the way, where they do not it works alone, and where they differ
by a little it learns the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block
from dokl.base.errors import BadInput
from dokl.learning import intervals
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.sums import solved
from dokl.network.exchange import Exchange
from dokl.network.exchange.rules import MEAN
from dokl.network.state import Slot, Slots, State
from dokl.network.sums import checks, shared
from dokl.network.sums.shared import ROWS
from dokl.simulation.cooperation import members as parts
from dokl.simulation.cooperation import node
from dokl.simulation.cooperation.members import MEMBERS, Member
from dokl.simulation.cooperation.node import Team
from dokl.simulation.squares import memory_slots, squares

# A shared expert that forgets is solved anew at every exchange that brings anything: what is newest
# counts most (a hundredth of its memory late, and Beijing's errors with a tenth of the labels are
# 4 % larger). One that does not forget is solved once the network has this share of rows more.
# Just above 2 %: rounding must not decide for each engine whether 10 rows of 500 are enough.
DUE = 0.02 + 1e-9
# In doubt a node believes itself: its own mixture begins as though it had gained so much, in units
# of the variance. The network's first rows would otherwise cost those who differ.
FIRST_GAIN = 64.0
# What solving writes; of an empty list of rows nothing is read.
SOLVED = ("theta", "P", "num", "den", "a", "b", "n")


@dataclass(frozen=True)
class Cooperation:
    """Members with a common ridge, and a bound on innovations in standard deviations."""

    ridge: float = 0.01
    bound: float = 10.0
    members: tuple[Member, ...] = MEMBERS
    name = "cooperation"
    conserved = True
    merges = False

    def __post_init__(self) -> None:
        squares(self.ridge, bound=self.bound)  # which checks both
        parts.check_members(self.members)

    def crew(self, exchange: Exchange) -> Team:
        """The members at work: a node that is alone has nothing but its own."""
        alone = tuple(member for member in self.members if member.role == "own")
        return node.crew(self.members if exchange.graphs else alone, self.ridge, self.bound)

    def slots(self, features: Any, m: int, exchange: Exchange) -> Slots:
        """Everything in float64, for each member what `squares` remembers, under its name."""
        D, kind, crew = features.D, np.float64, self.crew(exchange)
        made = {"theta": Slot((m, D), kind), "bias": Slot((m,), kind)}
        for member, name, numbers in zip(crew.members, crew.names, crew.numbers, strict=True):
            known = memory_slots(member.D(D), m, numbers.rho)
            made |= {f"{name}.{part}": slot for part, slot in known.items()}
        counts = {"alone": len(crew.own), "all": 1 + len(crew.others)}
        for name, count in counts.items():
            for part, shape in (("gain", (count,)), ("square", (count,)), ("largest", ())):
                made[f"{name}.{part}"] = Slot(shape, kind)
        made["all.gain"] = Slot(
            (counts["all"],), kind, FIRST_GAIN * (np.arange(counts["all"]) == 0)
        )
        made["all.largest"] = Slot((), kind, FIRST_GAIN**2)
        tracked = intervals.start(outputs=m)
        shape = tracked.width.shape
        made |= {"reach": Slot(shape, kind, tracked.width), "own_reach": Slot(shape, kind)}
        made |= {"energy": Slot(shape, kind, tracked.energy), "covered": Slot(shape[1:], kind)}
        made |= {"error": Slot((3,), kind), "learned": Slot((), kind), "count": Slot((), np.int64)}
        if crew.shared:
            _check(exchange)
            size = sum(place.stop - place.start for place in crew.sums(D, m).values())
            made |= {"common": Slot((m, D), kind), "sums": Slot((size,), kind)}
            made |= {"seen": Slot((len(crew.shared),), kind)}
        return made

    def adapt(
        self, exchange: Exchange, state: State, Z: Array, Y: Array, w: Array
    ) -> tuple[State, Array]:
        """One row per node, Z: (K, D), Y: (K, m), w: (K,)."""
        crew, f, ours = self.crew(exchange), np.full(Y.shape, np.nan), set(state.nodes)
        for k in np.flatnonzero(w > 0).tolist():
            row = slice(k, k + 1)
            f[k] = node.learn(crew, state, k, Z[row], Y[row], w[row], ours).mean[0]
            state.nodes["count"][k] += 1
            node.fold(crew, state, [k])
        return state, f

    def outgoing(self, state: State) -> Array:
        """Copies of the network's sums, one for each shared expert, and the shared widths."""
        widths = state.reach.reshape(state.K, -1)
        return np.hstack([state.sums, widths]) if "sums" in state else widths

    def incoming(self, state: State, mixed: Array) -> State:
        """What follows from the sums, where enough has come to be worth solving; in new arrays."""
        size = state.sums.shape[1]
        reach = mixed[:, size:].reshape(state.reach.shape).copy()
        state = self.received(state, np.array(mixed[:, :size])).having(reach=reach)
        changed = {name: state.nodes[name].copy() for name in ("theta", "bias", "common")}
        state = state.having(**changed)
        node.fold(node.crew(self.members, self.ridge, self.bound), state)
        return state

    def received(self, state: State, sums: Array, ours: set[str] | None = None) -> State:
        """The shared members by what nodes hold now, sums: (K, S), which are the state's from now
        on. Where little has come they stay as they are: the sums lose nothing.

        ours: matrices of a state that may be overwritten but for others; None: nothing may be.
        """
        crew = node.crew(self.members, self.ridge, self.bound)
        (K, m, D), seen = state.theta.shape, state.seen.copy()
        state = state.having(sums=sums, seen=seen)
        for j, (i, place) in enumerate(crew.sums(D, m).items()):
            total, lasting = K * sums[:, place.start + ROWS], crew.numbers[i].lam == 1.0
            due = total - seen[:, j] > (DUE * total if lasting else 0.0)
            if due.any():
                names = {f"{crew.names[i]}.{part}" for part in SOLVED}
                if ours is not None:
                    names = {name for name in names if name.endswith(".P")} - ours
                    ours |= names
                state = state.having(**{name: state.nodes[name].copy() for name in names})
                for k in np.flatnonzero(due).tolist():
                    _solve(crew, state, i, k, sums[k, place])
                seen[:, j] = np.where(due, total, seen[:, j])
        return state

    def check(
        self, features: Any, exchange: Exchange, state: State, block: Block, f: Array,
        largest: float,
    ) -> None:  # fmt: skip
        """Targets must be finite; least squares does not diverge."""
        squares().check(features, exchange, state, block, f, largest)

    def check_rows(self, old: State, new: State, Y: Array, f: Array) -> None:
        """Nothing that `check` has not seen."""

    def wild(self, features: Any, state: State, payload: Array) -> bool:
        """Whether what a neighbour sent are no sums that nodes could hold, a row a step each."""
        if not np.isfinite(payload).all():
            return True
        crew, (_, m, D) = node.crew(self.members, self.ridge, self.bound), state.theta.shape
        layout, most = checks.layout_of(features), state.clock + 1.0
        for i, place in crew.sums(D, m).items():
            width, lasting = crew.members[i].D(D), crew.numbers[i].lam == 1.0
            sums = shared.unpacked(payload[place], width, m)
            if payload[place][ROWS] > most * (1 + 1e-6):
                return True
            # What is left after forgetting is of no rows any more, and passes few checks.
            known = layout if width == D else checks.Layout(longest=layout.longest)
            if checks.faults(sums, known) if lasting else checks.negative(sums):
                return True
        return False

    def spec(self) -> dict[str, Any]:
        """Name, numbers and members; an infinite bound is None."""
        bound = None if self.bound == math.inf else self.bound
        members = [member.spec() for member in self.members]
        return {"name": self.name, "ridge": self.ridge, "bound": bound, "members": members}


def cooperation(
    ridge: float = 0.01, bound: float = 10.0, members: tuple[Member, ...] = MEMBERS
) -> Cooperation:
    """Own, shared and corrected experts of least squares, mixed at each node on its own rows.

    ridge: noise variance over the prior variance of theta, for features of length one. bound: an
    innovation of more standard deviations pulls like one of that size. members: who is mixed;
    their widths are numbers of features, the first ones, so they suit maps whose first features
    count most.

    >>> [member.text for member in cooperation().members][:2]
    ['own, all rows', 'own, 1,000 rows']
    """
    return Cooperation(float(ridge), float(bound), tuple(members))


def of_spec(spec: Mapping[str, Any]) -> Cooperation:
    """The method that `spec` described."""
    bound = math.inf if spec["bound"] is None else spec["bound"]
    return cooperation(spec["ridge"], bound, tuple(map(parts.of_spec, spec["members"])))


def _solve(crew: Team, state: State, i: int, k: int, packed: Array) -> None:
    """Shared member i of node k from the node's copy of the sums; a finite memory then forgets as
    many rows as the network has learned since it last did. `packed` and the state are overwritten.
    """
    name, numbers, K = crew.names[i], crew.numbers[i], state.K
    m, D = state.nodes[f"{name}.theta"].shape[1:]
    sums = shared.unpacked(packed, D, m, K)
    try:
        memory = solved(sums, numbers.rho)
    except NotDefinite:  # rounded on their way
        memory = shared.learned(sums, numbers.rho)
    if numbers.lam < 1.0:
        total = K * float(packed[ROWS])
        new = max(0.0, total - float(state.seen[k, crew.shared.index(i)]))
        left = shared.forgotten(numbers, sums, memory, new)
        packed[ROWS + 1 :] = shared.packed(left)[ROWS + 1 :] / K
    nodes = state.nodes
    nodes[f"{name}.theta"][k], nodes[f"{name}.P"][k] = memory.theta, memory.P.T
    nodes[f"{name}.num"][k], nodes[f"{name}.den"][k] = memory.num, memory.den
    nodes[f"{name}.a"][k], nodes[f"{name}.b"][k], nodes[f"{name}.n"][k] = 1.0, 0.0, 0


def _check(exchange: Exchange) -> None:
    """Refuse weights and rules under which sums get lost."""
    if exchange.mixing != MEAN:
        raise BadInput(
            "cooperation sends sums, which are mixed by the weighted mean alone: leave mixing= as "
            "it is. Own experts guard a node against neighbours that mislead it"
        )
    if not exchange.doubly:
        raise BadInput(
            "cooperation needs weights whose columns sum to one, as its rows do (Metropolis "
            "weights, say): over others sums would get lost, or count twice"
        )
