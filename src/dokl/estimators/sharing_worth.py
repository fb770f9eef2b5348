"""What sharing is worth to the nodes of a network, and who is alike: a table, words, pictures.

Errors are those of predictions made before each of the last 1000 rows or so was learned, the first
50 left out; "alone" is what a single learner predicted on that node's rows. Who is alike is read
off the learned places (`dokl.learning.experts.places`): the less two nodes are apart, the more
their functions agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import MissingExtra
from dokl.network.banks import BankNetwork
from dokl.network.node import BEGINNING, MEMBERS

# With fewer rows that count, errors are chance.
FEW_ROWS = 30
# Nodes this far apart share next to nothing: exp(-4/2) is .14.
FAR = 4.0


@dataclass(frozen=True, eq=False)
class SharingWorth:
    """names: of the K nodes; rows: (K,) learned; alone, network and together: (K,) mean squared
    errors, NaN where too few rows were counted; weights: (K, 3) of MEMBERS; covered: (K,) share of
    rows inside their 90 % intervals; places: (K, 2), and apart: (K, K) how far nodes are from each
    other, both None before the network has a map; links: (K, K) bool, who is linked with whom.
    """

    names: list[Any]
    rows: Array
    alone: Array
    network: Array
    together: Array
    weights: Array
    covered: Array
    places: Array | None
    apart: Array | None
    links: Array

    @property
    def worth(self) -> Array:
        """The share of its error that sharing has saved each node: (K,); below 0 it has cost. NaN
        where too few rows were counted.
        """
        return np.asarray(1.0 - self.together / np.where(self.alone > 0, self.alone, np.nan))

    @property
    def most_like(self) -> list[Any]:
        """The node that each is most like; None where nobody is near, or nothing is known."""
        if self.apart is None or len(self.names) < 2:
            return [None] * len(self.names)
        others = self.apart + np.where(np.eye(len(self.names)), np.inf, 0.0)
        best = others.argmin(axis=1)
        near = others.min(axis=1) < FAR
        return [self.names[j] if ok else None for j, ok in zip(best, near, strict=True)]

    @property
    def different(self) -> list[Any]:
        """Nodes that are far from everybody."""
        pairs = zip(self.names, self.most_like, strict=True)
        return [] if self.apart is None else [name for name, like in pairs if like is None]

    def table(self) -> list[dict[str, Any]]:
        """A row for each node, the one that gains most first, those with too few rows last."""
        rows = [
            {
                "node": name,
                "rows": int(self.rows[k]),
                "alone": float(self.alone[k]),
                "together": float(self.together[k]),
                "worth": float(self.worth[k]),
                **dict(zip(MEMBERS, self.weights[k].tolist(), strict=True)),
                "most like": like,
                "covered 90 %": float(self.covered[k]),
            }
            for k, (name, like) in enumerate(zip(self.names, self.most_like, strict=True))
        ]
        return sorted(rows, key=lambda row: (np.isnan(row["worth"]), -row["worth"]))

    @property
    def text(self) -> str:
        """In plain words."""
        known = np.isfinite(self.worth)
        if not self.links.any():
            return "every node works alone: nothing is shared"
        if not known.any():
            return (
                f"too few rows: a node's errors count from its row {BEGINNING} on, and "
                f"{FEW_ROWS} of them are needed"
            )
        total = float(self.rows[known].sum())
        alone, both = (
            float(self.rows[known] @ e[known]) / total for e in (self.alone, self.together)
        )
        saved, rows = 1.0 - both / alone, [row for row in self.table() if np.isfinite(row["worth"])]
        how = f"saved {saved:.0%} of" if saved >= 0.005 else "made next to no difference to"
        if saved <= -0.005:
            how = f"added {-saved:.0%} to"
        found = f"sharing has {how} the error over all nodes"
        found += f": {_words(rows[0])}, {_words(rows[-1])}" if len(rows) > 1 else ""
        apart = self.different
        if apart:
            names = ", ".join(map(str, apart[:5])) + (" and others" if len(apart) > 5 else "")
            found += f". Unlike all others: {names}"
        return found

    def __str__(self) -> str:
        lines = [f"{'node':16} {'rows':>7} {'alone':>9} {'together':>9} {'worth':>12}  most like"]
        for row in self.table():
            few = np.isnan(row["worth"])
            errors = f"{'':>9} {'':>9} {'too few rows':>12}" if few else (
                f"{row['alone']:9.4g} {row['together']:9.4g} {row['worth']:12.1%}")  # fmt: skip
            like = "nobody" if row["most like"] is None else row["most like"]
            lines.append(f"{row['node']!s:16} {row['rows']:7,} {errors}  {like}")
        return "\n".join([*lines, self.text])

    def plot(self, ax: Any = None) -> Any:
        """The map of nodes: near means alike. Colours say what sharing is worth to each, grey that
        too few rows were counted, thin lines who is linked, circles how far a node is from
        everybody. Returns the axes.
        """
        ax = _axes(ax)
        if self.places is None or self.apart is None:
            ax.text(0.5, 0.5, "no map of the nodes yet", ha="center", transform=ax.transAxes)
            return ax
        x, y = self.places.T
        for i, j in zip(*np.nonzero(np.triu(self.links)), strict=True):
            ax.plot(x[[i, j]], y[[i, j]], color="0.85", linewidth=0.7, zorder=1)
        import matplotlib

        worth = 100 * self.worth
        most = max(float(np.nan_to_num(np.abs(worth)).max()), 1.0)
        colours = matplotlib.colormaps["RdYlGn"].with_extremes(bad="0.8")  # too few rows to decide
        alone = 0.5 * (self.apart - _square(self.places)).min(
            axis=1, initial=np.inf, where=~np.eye(len(x), dtype=bool)
        )
        size = 60.0 + 240.0 * np.minimum(np.where(np.isfinite(alone), alone, 0.0), 2.0)
        about = {
            "cmap": colours,
            "plotnonfinite": True,
            "vmin": -most,
            "vmax": most,
            "edgecolors": "0.3",
            "zorder": 2,
        }
        drawn = ax.scatter(x, y, c=worth, s=size, **about)
        if len(self.names) <= 60:
            for names, at in _together(self.names, self.places):
                ax.annotate("\n".join(names), at, (6, 0), textcoords="offset points", fontsize=8,
                            va="center")  # fmt: skip
        ax.figure.colorbar(drawn, ax=ax, label="error saved by sharing, %")
        ax.set_aspect("equal", adjustable="datalim")
        ax.margins(0.25)
        ax.locator_params(nbins=5)  # small distances have long numbers
        ax.set_title("nearby nodes share most; large circles learn alone", fontsize=9)
        return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtra("a picture", "plot") from None
    return plt.subplots()[1]


def _together(names: list[Any], places: Array) -> list[tuple[list[str], Array]]:
    """Names of nodes that lie at nearly the same place, and that place."""
    span = max(float(np.ptp(places, axis=0).max()), 1e-9)
    found: dict[tuple[int, ...], tuple[list[str], Array]] = {}
    for name, at in zip(names, places, strict=True):
        cell = tuple(np.rint(at / (0.05 * span)).astype(int).tolist())
        found.setdefault(cell, ([], at))[0].append(str(name))
    return list(found.values())


def _square(points: Array) -> Array:
    from dokl.learning.scales import squared_distances

    return squared_distances(points, points)


def _words(row: dict[str, Any]) -> str:
    what = "saves" if row["worth"] >= 0 else "costs"
    return f"it {what} {row['node']} {abs(row['worth']):.0%}"


def sharing_worth(network: BankNetwork, names: list[Any], links: Array) -> SharingWorth:
    """What a network reports of its nodes; links: (K, K) bool."""
    K, each = network.K, [node.errors for node in network.nodes]
    counted = np.array([errors.weight for errors in each])
    total = np.array([[*errors.total, errors.covered] for errors in each])
    enough = np.array([errors.rows - BEGINNING for errors in each]) >= FEW_ROWS
    means = np.where(enough[:, None], total / np.maximum(counted, 1e-300)[:, None], np.nan)
    bank, everybody, places, apart = network.bank, np.arange(K), None, None
    if bank is not None and bank.now is not None and bank.now.places is not None:
        learned = bank.now.places
        places, apart = learned.of(everybody)[0], learned.apart(everybody, everybody)
    weights = np.array([node.weights for node in network.nodes])
    if bank is None:
        weights = np.tile([1.0, 0.0, 0.0], (K, 1))
    alone, shared, together, covered = means.T
    rows = network.seen
    return SharingWorth(
        names, rows, alone, shared, together, weights, covered, places, apart, links
    )
