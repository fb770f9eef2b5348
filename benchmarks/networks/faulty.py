"""Nodes that share rows, some of them faulty: what their rows cost the others.

Eight nodes of one function, linked in a random 4-regular graph. Some fail, at the start or after
5,000 rows of the network: their targets are negated, constant, noise, or drift by a tenth of their
noise a row. Squared error of the honest nodes over that of a lone `AutoRegressor` on their rows,
prequential, in the rows from the hundredth after the failure on: mean (worst node); and in the
hundred rows before that.
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from benchmarks.common import Section
from dokl import NetworkRegressor
from dokl.estimators.nodes import in_order
from dokl.learning.experts.kinds import Settings
from dokl.network import banks

K, ROWS, LATER, WAIT, WORST = 8, 900, 625, 100, 1.10
FAULTS = {
    "negated": lambda y, t, rng: -y,
    "constant": lambda y, t, rng: np.full(len(y), 3.0),
    "noise": lambda y, t, rng: 3.0 * rng.normal(size=len(y)),
    "drift": lambda y, t, rng: y + 0.01 * t,
}


def measure(quick: bool) -> Section:
    """Every fault at one and at three nodes; with --quick at one, after 5,000 rows."""
    section = Section("faulty nodes that share rows", __doc__ or "")
    for fault in FAULTS:
        for faulty in (1,) if quick else (1, 3):
            for after in (LATER,) if quick else (0, LATER):
                first, later = _ratios(fault, faulty, after)
                section.add(
                    f"{fault}, {faulty} of {K}, {'at the start' if not after else 'later'}",
                    f"{later.mean():.3f} ({later.max():.3f})",
                    float(later.max()),
                    f"<= {WORST:.2f}",
                    bool(later.max() <= WORST),
                    f"first {WAIT} rows {first.mean():.2f} ({first.max():.2f})",
                )
    return section


def _ratios(fault: str, faulty: int, after: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of the honest nodes, in the first rows after the failure and in those from then on."""
    rng = np.random.default_rng(seed)
    X, k, t = rng.normal(size=(K * ROWS, 3)), np.arange(K * ROWS) % K, np.arange(K * ROWS) // K
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=K * ROWS)
    wrong = (k < faulty) & (t >= after)
    y[wrong] = FAULTS[fault](y[wrong], t[wrong] - after, rng)
    graph = nx.random_regular_graph(4, K, seed=0)
    model = NetworkRegressor(graph, share="rows", random_state=0)
    f = model.prequential(X, y, nodes=k)
    alone = _alone(X, y, k)
    spans = (after, after + WAIT), (after + WAIT, ROWS)
    ratios = []
    for i, j in spans:
        some = [np.flatnonzero(k == node)[i:j] for node in range(faulty, K)]
        pairs = (((each[rows] - y[rows]) ** 2).mean() for rows in some for each in (f, alone))
        error, lone = np.array(list(pairs)).reshape(-1, 2).T
        ratios.append(error / lone)
    return ratios[0], ratios[1]


def _alone(X: np.ndarray, y: np.ndarray, k: np.ndarray) -> np.ndarray:
    """What single learners at each node predict: a network without links."""
    rule = banks.SharingRule("rows", 1, np.zeros(K))
    network = banks.start(X.shape[1], 1, Settings(), rule)
    found = banks.learn(network, X, y[:, None], np.ones(len(y)), in_order(K, k))[1]
    return np.asarray(found.mean[:, 0])
