"""Stations that share: four stations with few rows each, of which one is unlike the others.

Every node learns from its own rows and from those of the others, and mixes both by what they gain
on its own rows.
"""

import sys

import numpy as np
from figure import BLUE, RED, frame, save

from dokl import AutoRegressor, NetworkRegressor

NAMES = ("harbour", "park", "school", "tunnel")
ROWS = 60


def readings(seed=0):
    """Rows of all stations in turn: four inputs, and what each station measures."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS * len(NAMES), 4))
    where = np.tile(NAMES, ROWS)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    y = np.where(where == "tunnel", 2 * np.abs(X[:, 3]), y) + 0.1 * rng.normal(size=len(y))
    return X, y, where


def main(picture="stations.png"):
    """Run it, draw it, and return what was found."""
    X, y, where = readings()
    network = NetworkRegressor(
        "complete", share="rows", n_nodes=4, n_components=100, random_state=0
    )
    numbers = np.array([NAMES.index(name) for name in where])
    together = network.prequential(X, y, nodes=numbers)
    found = {}
    for k, name in enumerate(NAMES):
        its = np.flatnonzero(numbers == k)
        alone = AutoRegressor(n_components=100, random_state=0).prequential(X[its], y[its])
        late = slice(ROWS // 2, None)
        errors = (alone - y[its])[late], (together[its] - y[its])[late]
        found[name] = tuple(float(np.sqrt(np.mean(each**2))) for each in errors)
    figure, axes = frame(
        "four stations with 60 rows each, the second half", "", "root mean square error"
    )
    for shift, i, colour, label in ((-0.2, 0, RED, "alone"), (0.2, 1, BLUE, "together")):
        heights = [found[name][i] for name in NAMES]
        axes.bar(np.arange(4) + shift, heights, 0.38, color=colour, label=label)
    axes.set_xticks(range(4), NAMES)
    save(figure, picture)
    for name, (alone, together) in found.items():
        print(f"{name}: {alone:.2f} alone, {together:.2f} together")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
