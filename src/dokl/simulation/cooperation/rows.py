"""One node's rows, compiled: what `node.learn` does, one row after the other, to the same bits
however rows are cut into calls.

A live node needs that: after a crash its journal's rows, cut as they may be, must give what they
gave before. Matrix products of whole blocks would be faster still, and round other shapes
otherwise. Equations as in `squares.blocks`, for rows of weight one; sums of many products are
reassociated by the compiler, always in the same way.
"""

from __future__ import annotations

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.intervals import LEVELS
from dokl.learning.squares import memory as memories
from dokl.learning.squares.memory import LIST, Memory, Numbers, folded
from dokl.network.state import State
from dokl.simulation.cooperation import loops
from dokl.simulation.cooperation.node import Said, Team, memory_of, narrowed
from dokl.simulation.squares import NAMES

_MIXTURE = ("gain", "square", "largest")


def learn(crew: Team, state: State, Z: Array, Y: Array) -> Said:
    """Rows Z: (n, D), Y: (n, m) into node 0 of a state that may be overwritten, but for the
    matrices, which are replaced.
    """
    (n, D), m, nodes = Z.shape, Y.shape[1], state.nodes
    Y = np.ascontiguousarray(Y)
    places = crew.sums(D, m)
    F, V = np.empty((n, len(crew.members), m)), np.empty((n, len(crew.members), m))
    for i in (*crew.shared, *(i for i in range(len(crew.members)) if i not in crew.shared)):
        base, z = crew.base(i), np.ascontiguousarray(narrowed(crew.members[i], Z))
        target = Y if base is None else Y - F[:, base]
        F[:, i], V[:, i], held = _member(crew.numbers[i], state, crew.names[i], z, target)
        if base is not None:
            F[:, i] += F[:, base]
        if i in places:
            loops.add_sums(nodes["sums"][0, places[i]], z, Y, held)
    return Said(*_mix(crew, F, V, Y, nodes))


def _mix(
    crew: Team, F: Array, V: Array, Y: Array, nodes: dict[str, Array]
) -> tuple[Array, Array, Array]:
    """Means and variances (n, m) of the mixture of all, and widths (n, m, levels)."""
    n, m = Y.shape
    mean, variance, used = np.empty((n, m)), np.empty((n, m)), np.empty((n, m, len(LEVELS)))
    alone, every = ([nodes[f"{name}.{part}"] for part in _MIXTURE] for name in ("alone", "all"))
    reach, own_reach, energy = (nodes[part][0] for part in ("reach", "own_reach", "energy"))
    loops.mixed_rows(
        F, V, Y, np.array(crew.own), np.array(crew.others), crew.bound, alone[0][0], alone[1][0],
        alone[2], every[0][0], every[1][0], every[2], nodes["error"][0], nodes["learned"],
        nodes["covered"][0], int(nodes["count"][0]), reach, own_reach, energy, mean, variance, used,
    )  # fmt: skip
    return mean, variance, used


def _member(
    numbers: Numbers, state: State, name: str, Z: Array, Y: Array
) -> tuple[Array, Array, Array]:
    """What a member said of rows that it has learned now, (n, m), how sure it was, (n, m), and
    their weights as bounded: (n,).
    """
    # Arrays in C's order, however few rows: another order would be compiled for anew.
    nodes, done, begun = state.nodes, 0, -1
    F, V, held = np.empty(Y.shape), np.empty(Y.shape), np.empty(len(Z))
    while done < len(Z):
        some = slice(done, min(len(Z), done + LIST - int(nodes[f"{name}.n"][0])))
        theta, P, W, c = (nodes[f"{name}.{part}"][0] for part in ("theta", "P", "W", "c"))
        a, b, n, den = (nodes[f"{name}.{part}"] for part in ("a", "b", "n", "den"))
        given = numbers.rho, numbers.lam, numbers.bound, numbers.calm
        done += loops.member_rows(
            theta, P, a, b, W, c, n, nodes[f"{name}.num"][0], den, *given, Z[some], Y[some],
            F[some], V[some], held[some],
        )  # fmt: skip
        if done < some.stop:  # spoiled by rounding: it starts again, and the others carry on
            if begun == done:  # it is the row: features that are not finite
                F[done:], V[done:], held[done:] = np.nan, np.nan, np.nan
                break
            begun = done
            begin(state, name, memories.start(Z.shape[1], Y.shape[1], numbers.rho))
        elif n[0] == LIST:
            memory = folded(memory_of(state, 0, name))
            nodes[f"{name}.P"] = memory.P.T[None]
            nodes[f"{name}.W"] = memory.W[None]
            c[:], n[0], a[0], b[0] = 0.0, 0, 1.0, 0.0
    return F, V, held


def begin(state: State, name: str, memory: Memory) -> None:
    """Let a member of node 0 know this and nothing else, in new arrays of the same kind."""
    for part in NAMES:
        value, kind = getattr(memory, part), state.nodes[f"{name}.{part}"].dtype
        state.nodes[f"{name}.{part}"] = np.array([value.T if part == "P" else value], kind)
