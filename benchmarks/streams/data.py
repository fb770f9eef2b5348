"""The streams, and how they are scored: every row is predicted before it is learned.

Files `NAME.csv.gz` with columns x0, x1, ..., y, in the order of the file. Regression: mean square
error after the first fifth over the variance of the target there. Classification: share of errors
in the last fifth.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("DOKL_DATA", Path(__file__).parents[3] / "shared" / "data"))

# Rows taken (None: all), and what a prototype of sixteen experts reached without settings.
REGRESSION = {
    "air": (None, 0.0377),
    "energy": (12_000, 0.458),
    "tom": (None, 0.0257),
    "twitter": (12_000, 0.0745),
    "airfoil": (None, 0.110),
    "concrete": (None, 0.128),
    "elevators": (12_000, 0.144),
    "kin40k": (12_000, 0.123),
}
CLASSIFICATION = {"letter": (15_000, 0.060), "phoneme": (None, 0.118), "satimage": (None, 0.090)}
QUICK = ("airfoil", "concrete", "phoneme")

# Where the function changes, and for how many rows it does: River's FriedmanDrift.
DRIFTS = {"lea": (3000, 6000, 9000), "gra": (4000, 8000), "gsg": (4000, 8000)}


ONLY: set[str] = set()  # streams that were asked for; empty: all


def wanted(name: str, quick: bool) -> bool:
    """Whether to run this stream."""
    return name in ONLY if ONLY else not quick or name in QUICK


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X: (n, d) and y: (n,), numbers or words."""
    path = FOLDER / "streams" / f"{name}.csv.gz"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: set DOKL_DATA to the folder above streams/")
    most, _ = (REGRESSION | CLASSIFICATION)[name]
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, str, delimiter=",", skiprows=1, max_rows=most)
    y = table[:, -1]
    return table[:, :-1].astype(float), y.astype(float) if name in REGRESSION else y


def friedman(kind: str, n: int = 12_000) -> tuple[np.ndarray, np.ndarray]:
    """River's FriedmanDrift: five inputs that matter, five that do not, and changes."""
    from river.datasets import synth

    more = {"transition_window": 1000} if kind == "gsg" else {}
    stream = synth.FriedmanDrift(drift_type=kind, position=DRIFTS[kind], seed=42, **more)
    rows = [([x[k] for k in sorted(x)], y) for x, y in stream.take(n)]
    return np.array([x for x, _ in rows]), np.array([y for _, y in rows])


def running_scale(X: np.ndarray) -> np.ndarray:
    """Inputs by mean and standard deviation of the rows before, at least the first 100; up to 5."""
    n = np.arange(1, len(X) + 1)[:, None]
    mean = np.cumsum(X, axis=0) / n
    size = np.sqrt(np.maximum(np.cumsum(X**2, axis=0) / n - mean**2, 0.0))
    before = np.maximum(np.arange(len(X)) - 1, min(99, len(X) - 1))
    size = np.where(size[before] > 1e-12, size[before], 1.0)
    return np.clip((X - mean[before]) / size, -5.0, 5.0)


def error_over_variance(f: np.ndarray, y: np.ndarray) -> float:
    first = len(y) // 5
    return float(np.mean((f - y)[first:] ** 2) / np.var(y[first:]))


def last_fifth_errors(f: np.ndarray, y: np.ndarray) -> float:
    last = len(y) - len(y) // 5
    return float(np.mean(f[last:] != y[last:]))


def score(name: str) -> Callable[[np.ndarray, np.ndarray], float]:
    return last_fifth_errors if name in CLASSIFICATION else error_over_variance
