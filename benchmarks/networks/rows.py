"""Rows of a file dealt out to nodes, and nodes that learn them."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np

from benchmarks.streams.data import FOLDER
from dokl import Exchange, Problem, State
from dokl.base.arrays import Block
from dokl.simulation.diffusion import init
from dokl.simulation.engines import choose

HOW = ("dealt", "sorted")


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All of a stream: X (n, d) and y (n, 1)."""
    path = FOLDER / "streams" / f"{name}.csv.gz"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: set DOKL_DATA to the folder above streams/")
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1:]


def block(X: np.ndarray, y: np.ndarray, K: int, how: str) -> Block:
    """Rows given to K nodes, as many each: in turn, or sorted by the first input that varies, so
    that every node sees inputs of its own; in the order of the file at each node.
    """
    n = len(X) // K
    order = np.arange(n * K).reshape(n, K)
    if how == "sorted":
        key = X[: n * K, np.flatnonzero(X.std(axis=0) > 0)[0]]
        order = np.sort(np.argsort(key, kind="stable").reshape(K, n), axis=1).T
    return Block(X, y, None, order)


def in_one_place(rows: Block) -> Block:
    """The same rows, all at one node."""
    return Block(rows.X, rows.Y, None, rows.index.reshape(-1, 1))


def learned(features: Any, method: Any, exchange: Exchange, rows: Block) -> State:
    """What nodes know after their rows."""
    problem = Problem(features, method)
    _, engine, plan = choose("numba", problem, exchange, np.float64)
    state: State = engine.advance(plan, init(problem, exchange, rows.index.shape[1]), rows)[0]
    return state


def errors(state: State, Z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean square error (K,) of the nodes on rows with features Z: (n, D)."""
    return np.asarray(((y - Z @ state.theta[:, 0].T) ** 2).mean(axis=0))
