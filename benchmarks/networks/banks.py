"""Nodes that are learners that also learn from others, beside single learners and one place that
knows the node.

Prequential squared error of each node from its row max(n/5, 50) on, divided by that of a lone
`AutoRegressor` on the node's rows: mean over nodes (worst node), bytes that a node sent, and
processor time over that of K single learners and one over all rows together.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np

from benchmarks.common import Section
from benchmarks.networks import rows
from benchmarks.streams.data import FOLDER
from dokl import AutoRegressor, NetworkRegressor

# Mean over nodes of the network's error over that of one place may be this, and any node over its
# single learner; cases with a target of their own, over single learners.
MEAN, WORST = 1.10, 1.10
OWN_TARGETS = {("many", "sums"): 0.25, ("Beijing", "rows"): 0.78, ("Beijing", "sums"): 0.82}
ROOT = Path(__file__).parents[2]

Case = tuple[np.ndarray, np.ndarray, np.ndarray, object]  # X, y, node, graph


def _same(X: np.ndarray) -> np.ndarray:
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def synthetic(name: str, K: int, n: int, seed: int) -> Case:
    """n rows of each of K nodes in turn, of 3 normal inputs with noise 0.1."""
    rng = np.random.default_rng(seed)
    X, k, phase = rng.normal(size=(K * n, 3)), np.arange(K * n) % K, rng.uniform(0, 2 * np.pi, K)
    functions: dict[str, Callable[[], np.ndarray]] = {
        "same": lambda: _same(X),
        "offset": lambda: _same(X) + k,
        "half": lambda: _same(X) + 0.5 * np.sin(1.5 * X[:, 2] + k),
        "two": lambda: np.where(k % 2 == 0, _same(X), X[:, 0] - _same(X)),
        "own": lambda: np.sin(2 * X[:, 0] + k) + X[:, 1] * X[:, 2] * np.cos(k),
        "many": lambda: _same(X) + 0.5 * np.sin(1.5 * X[:, 2] + phase[k]),
    }
    y = functions[name]() + 0.1 * rng.normal(size=K * n)
    graph = nx.cycle_graph(K) if K < 10 else nx.random_regular_graph(4, K, seed=0)
    return X, y, k, graph


def stream(name: str, how: str, K: int, seed: int) -> Case:
    """The first 10,000 rows of a stream, dealt out in turn or sorted by the first input."""
    X, y = rows.load(name)
    X, y = X[:10_000], y[:10_000, 0]
    order = np.arange(len(y) // K * K)
    if how == "sorted":
        parts = np.array_split(np.argsort(X[:, 0], kind="stable"), K)
        rng, n = np.random.default_rng(seed), min(map(len, parts))
        order = np.array([rng.permutation(part)[:n] for part in parts]).T.ravel()
    return X[order], y[order], np.arange(len(order)) % K, nx.random_regular_graph(4, K, seed=0)


def beijing(days: int) -> Case:
    """12 stations over the graph of examples/beijing, four rounds an hour."""
    sys.path.insert(0, str(ROOT / "examples" / "beijing"))
    from beijing_data import from_full, read_links, weights

    stations = from_full(str(FOLDER))
    X, y = stations.inputs()[: 24 * days].astype(float), stations.target[: 24 * days]
    at = np.flatnonzero(~np.isnan(y))
    graph = np.linalg.matrix_power(weights(read_links(), stations.names).toarray(), 4)
    return X.reshape(-1, X.shape[2])[at], y.ravel()[at], at % y.shape[1], graph


def _cases(quick: bool, seed: int) -> dict[str, Case]:
    n = 400 if quick else 2000
    found = {name: synthetic(name, 6, n, seed) for name in ("same", "offset", "half", "two", "own")}
    found["many"] = synthetic("many", 60, 100 if quick else 200, seed)
    found["Beijing"] = beijing(14 if quick else 92)
    for name, how in (("kin40k", "dealt"), ("kin40k", "sorted"), ("airfoil", "sorted")):
        found[f"{name} {how}"] = stream(name, how, 10, seed)
    return found


def _errors(f: np.ndarray, y: np.ndarray, node: np.ndarray) -> np.ndarray:
    """Mean squared error of each node from its row max(n/5, 50) on."""
    found = []
    for k in range(node.max() + 1):
        mine = np.flatnonzero(node == k)
        late = mine[max(len(mine) // 5, 50) :]
        found.append(np.mean((f[late] - y[late]) ** 2))
    return np.array(found)


def _timed(function: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    began = time.process_time()
    return function(), time.process_time() - began


def _alone(X: np.ndarray, y: np.ndarray, node: np.ndarray) -> np.ndarray:
    f = np.empty(len(y))
    for k in range(node.max() + 1):
        mine = node == k
        f[mine] = AutoRegressor(random_state=0).prequential(X[mine], y[mine])
    return f


def _knowing(X: np.ndarray, y: np.ndarray, node: np.ndarray) -> np.ndarray:
    known = np.hstack([X, np.eye(node.max() + 1)[node]])
    return np.asarray(AutoRegressor(random_state=0).prequential(known, y))


def _knowing_later(X: np.ndarray, y: np.ndarray, node: np.ndarray) -> np.ndarray:
    """One place that knows the node, and the targets of a step after all of its rows: what nodes
    that have their rows at the same time can know.
    """
    known, f = np.hstack([X, np.eye(node.max() + 1)[node]]), np.zeros(len(y))
    model, begins = AutoRegressor(random_state=0), np.flatnonzero(np.diff(node) <= 0) + 1
    for step in np.split(np.arange(len(y)), begins):
        if step[0]:
            f[step] = model.predict(known[step])
        model.partial_fit(known[step], y[step])
    return f


def measure(quick: bool) -> Section:
    """The cases, by rows and by sums; with --quick one seed and fewer rows."""
    section = Section("learners that also learn from others", __doc__ or "")
    seeds = range(1 if quick else 3)
    for name in _cases(True, 0):
        figures: dict[str, list[tuple[float, float, float, float]]] = {}
        for seed in seeds:
            X, y, node, graph = _cases(quick, seed)[name]
            alone, spent = _timed(lambda: _alone(X, y, node))  # noqa: B023
            knowing, more = _timed(lambda: _knowing(X, y, node))  # noqa: B023
            base, budget = _errors(alone, y, node), spent + more
            ratio = _errors(knowing, y, node) / base
            figures.setdefault("knows the node", []).append((ratio.mean(), ratio.max(), 0.0, 0.0))
            if name == "Beijing" and not seed:  # the one case in which the newest rows count
                later = _errors(_knowing_later(X, y, node), y, node) / base
                section.add(
                    f"{name}: knows the node, an hour late",
                    f"{later.mean():.3f} ({later.max():.3f})",
                )
            for way in ("rows", "sums"):
                model = NetworkRegressor(graph, share=way, random_state=0)
                f, cost = _timed(lambda: model.prequential(X, y, nodes=node))  # noqa: B023
                ratio = _errors(f, y, node) / base
                sent = float(model.sent_bytes_.mean()) / 1e6
                figures.setdefault(way, []).append((ratio.mean(), ratio.max(), sent, cost / budget))
        _add(section, name, figures)
    return section


def _add(
    section: Section, name: str, figures: dict[str, list[tuple[float, float, float, float]]]
) -> None:
    knowing = np.mean(figures["knows the node"], axis=0)
    section.add(f"{name}: knows the node", f"{knowing[0]:.3f} ({knowing[1]:.3f})")
    for way in ("rows", "sums"):
        mean, worst, sent, cost = np.mean(figures[way], axis=0)
        most = OWN_TARGETS.get((name, way), MEAN * knowing[0])
        section.add(
            f"{name}: {way}",
            f"{mean:.3f} ({worst:.3f})",
            mean / knowing[0],
            f"<= {most:.3f} ({WORST:.2f}), 2 x time",
            mean <= most and worst <= WORST and cost <= 2.0,
            f"{sent:.1f} MB a node, {cost:.2f} x time",
        )


def many(quick: bool) -> Section:
    """Thousands of nodes with few rows each."""
    K, n = (200, 20) if quick else (2000, 20)
    section = Section(f"{K:,} nodes of {n} rows", "Shared function plus an own part, by rows.")
    X, y, node, graph = synthetic("many", K, n, 0)
    model = NetworkRegressor(graph, share="rows", random_state=0)
    f, spent = _timed(lambda: model.prequential(X, y, nodes=node))
    late = np.arange(len(y)) >= len(y) // 2
    error = float(np.mean((f - y)[late] ** 2) / np.var(y))
    section.add("error / variance, second half", f"{error:.3f}")
    section.add("processor time", f"{spent:.0f} s for {len(y):,} rows")
    return section
