"""What sharing is worth to the nodes of a network, and from whom: a table, words, a picture.

Errors are those of predictions made before each of the last 1000 rows or so was learned, the first
30 left out; alone is what the node's own experts, mixed without the others, would have said. How
well another node's rows would have served a node is exact, too: the mean squared error on all the
node's rows of the vector that the other learned alone, from sums. It says who is alike, not who
sent what: sums mix on their way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import MissingExtra
from dokl.exchange import Exchange
from dokl.intervals import LEVELS
from dokl.methods.cooperation import node
from dokl.methods.cooperation.node import Team
from dokl.methods.squares.blocks import NotDefinite
from dokl.methods.squares.sums import told_by
from dokl.state import State

ROLES = ("own", "shared", "corrected")


@dataclass(frozen=True, eq=False)
class SharingWorth:
    """names: of the K nodes; rows: (K,); alone and together: (K,) mean squared errors; weights:
    (K, 3) of own, shared and corrected experts; covered: (K, L) share of rows inside their
    intervals; lessons: (K, K) error on a node's rows of what another learned alone; links: (K, K)
    bool, who is linked with whom.
    """

    names: list[Any]
    rows: Array
    alone: Array
    together: Array
    weights: Array
    covered: Array
    lessons: Array
    links: Array

    @property
    def worth(self) -> Array:
        """The share of its error that sharing has saved each node: (K,); below 0 it has cost."""
        known = self.alone > 0
        return np.where(known, 1.0 - self.together / np.where(known, self.alone, 1.0), 0.0)

    @property
    def teachers(self) -> list[Any]:
        """The node whose rows would serve each best; None where there is no other."""
        others = np.where(np.eye(len(self.names), dtype=bool), np.inf, self.lessons)
        best = others.argmin(axis=1)
        finite = np.isfinite(others.min(axis=1))
        return [self.names[j] if ok else None for j, ok in zip(best, finite, strict=True)]

    def table(self) -> list[dict[str, Any]]:
        """A row for each node, the one that gains most first."""
        at = LEVELS.index(0.9)
        rows = [
            {
                "node": self.names[k],
                "rows": int(self.rows[k]),
                "alone": float(self.alone[k]),
                "together": float(self.together[k]),
                "worth": float(self.worth[k]),
                **dict(zip(ROLES, self.weights[k].tolist(), strict=True)),
                "most like": self.teachers[k],
                "covered 90 %": float(self.covered[k, at]),
            }
            for k in range(len(self.names))
        ]
        return sorted(rows, key=lambda row: -row["worth"])

    @property
    def text(self) -> str:
        """In plain words."""
        total = float(self.rows.sum())
        if not self.links.any() or not total:
            return "every node works alone: nothing is shared"
        alone, both = (float(self.rows @ e) / total for e in (self.alone, self.together))
        if not alone:
            return "there was no error to save"
        saved, rows = 1.0 - both / alone, self.table()
        first, last = rows[0], rows[-1]
        how = f"saved {saved:.0%} of" if saved >= 0.005 else "made next to no difference to"
        return (
            f"sharing has {how} the error over all nodes: {_words(first)}, {_words(last)}. "
            f"{first['node']} is most like {first['most like']}"
        )

    def __str__(self) -> str:
        lines = [f"{'node':16} {'rows':>7} {'alone':>9} {'together':>9} {'worth':>6}  most like"]
        lines += [
            f"{row['node']!s:16} {row['rows']:7,} {row['alone']:9.4g} {row['together']:9.4g} "
            f"{row['worth']:6.1%}  {row['most like']}"
            for row in self.table()
        ]
        return "\n".join([*lines, self.text])

    def plot(self, ax: Any = None) -> Any:
        """The graph: nodes coloured by what sharing is worth to them, an arrow from the node that
        each is most like. Returns the axes.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise MissingExtra("a picture", "plot") from None
        import networkx as nx

        ax = plt.subplots()[1] if ax is None else ax
        graph = nx.from_numpy_array(self.links)
        places = nx.spring_layout(graph, seed=0)
        nx.draw_networkx_edges(graph, places, ax=ax, edge_color="0.8")
        arrows = nx.DiGraph()
        arrows.add_nodes_from(graph)
        number = {name: k for k, name in enumerate(self.names)}
        arrows.add_edges_from(
            (number[name], k) for k, name in enumerate(self.teachers) if name is not None
        )
        nx.draw_networkx_edges(arrows, places, ax=ax, edge_color="0.4", arrows=True)
        most = max(float(np.abs(self.worth).max()), 0.01)
        drawn = nx.draw_networkx_nodes(
            graph, places, ax=ax, node_color=100 * self.worth, cmap="RdYlGn", vmin=-100 * most,
            vmax=100 * most,
        )  # fmt: skip
        nx.draw_networkx_labels(
            graph, places, dict(enumerate(map(str, self.names))), ax=ax, font_size=8
        )
        ax.figure.colorbar(drawn, ax=ax, label="error saved by sharing, %")
        ax.set_axis_off()
        return ax


def _words(row: dict[str, Any]) -> str:
    what = "saves" if row["worth"] >= 0 else "costs"
    return f"it {what} {row['node']} {abs(row['worth']):.0%}"


def sharing_worth(
    crew: Team, state: State, exchange: Exchange, names: list[Any], size: float, offsets: Array
) -> SharingWorth:
    """What the state of a network tells; size: the squared unit that targets were learned in;
    offsets: (K, m), what was taken from each node's targets before.
    """
    K = state.K
    weight = np.maximum(state.learned, 1e-300)[:, None]
    each = np.array([node.weights_of(crew, state, k) for k in range(K)])
    roles = np.array([[member.role == role for member in crew.members] for role in ROLES])
    links = sum((A.toarray() != 0 for A in exchange.graphs), np.zeros((K, K), bool))
    np.fill_diagonal(links, False)
    together, alone, counted = state.error.T  # the last one is of errors of size 1
    counted = np.maximum(counted, 1e-300) / size
    return SharingWorth(
        names,
        state.count.copy(),
        alone / counted,
        together / counted,
        each @ roles.T.astype(float),
        state.covered / weight,
        size * lessons(crew, state, offsets),
        links,
    )


def lessons(crew: Team, state: State, offsets: Array) -> Array:
    """(K, K): mean squared error on the rows of node k of what node l has learned alone, by the
    sums that k's own memory of all rows stands for; infinite where there are no rows. What they
    differ by, offsets (K, m), counts: the first feature is a constant.
    """
    first = next(i for i in crew.own if crew.numbers[i].lam == 1.0)
    name, rho = crew.names[first], crew.numbers[first].rho
    learned = state.nodes[f"{name}.theta"]
    found = np.full((state.K, state.K), np.inf)
    for k in range(state.K):
        try:
            sums = told_by(node.memory_of(state, k, name), rho, int(state.count[k]))
        except NotDefinite:
            continue
        if sums.weight <= 0:
            continue
        theta = learned.copy()
        theta[:, :, 0] += offsets - offsets[k]
        zz = np.tril(sums.zz) + np.tril(sums.zz, -1).T
        fit = np.einsum("kmd,de,kme->km", theta, zz, theta) - 2 * np.einsum(
            "kmd,md->km", theta, sums.zy
        )
        found[k] = np.maximum((sums.yy + fit).mean(axis=1) / sums.weight, 0.0)
    found[:, state.count == 0] = np.inf
    return found
