"""Run a baseline over a stream, many times, on the data of `engines.run` with the same seed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from dokl import metrics
from dokl.arrays import Array, Block
from dokl.diffusion import Trace
from dokl.draws import check_seed, drawn, spawn
from dokl.errors import BadInput, Diverged, UnknownName
from dokl.progress import Bar, progress

# From predictions f and targets y: (n, K, 1), and the learner -> (n, ...).
PER_STEP: dict[str, Callable[..., Array]] = {
    "mse": lambda f, y, learner: metrics.squared_error(f, y),
    "node_mse": lambda f, y, learner: metrics.node_squared_error(f, y),
    "mistakes": lambda f, y, learner: metrics.mistakes(f, y),
    "predictions": lambda f, y, learner: f,
    "errors": lambda f, y, learner: (y - f)[..., 0],
    "size": lambda f, y, learner: learner.size.mean(axis=1),
    "message": lambda f, y, learner: learner.message @ learner.links / max(1, learner.links.sum()),
    "bytes": lambda f, y, learner: np.cumsum(learner.message @ learner.links),
}
RECORDABLE = (*PER_STEP, "seconds", "state")
PIECE = 1 << 16  # samples after which a progress bar moves, at the latest


@dataclass(frozen=True)
class Samples:
    """What K nodes see in n steps, row t * K + k being step t of node k.

    X: (n * K, d), y: (n * K,), weight: (n * K,), 0 where a node has no sample.
    """

    X: Any
    y: Array
    weight: Array
    n: int
    K: int

    @property
    def d(self) -> int:
        """Number of inputs."""
        return int(self.X.shape[1])

    @property
    def present(self) -> Array:
        """(n, K), whether a node has a sample."""
        return np.asarray(self.weight.reshape(self.n, self.K) > 0)


class Learner:
    """One realization under way: what it predicted, how large it became, what it sent.

    f: (n, K) a-priori predictions; size: (n, K) centres, or numbers, held after each step;
    message: (n, K) bytes of one message of each node at each step; links: (K,) how many it sends.
    """

    def __init__(self, samples: Samples, dtype: Any) -> None:
        n, K = samples.n, samples.K
        self.samples, self.dtype = samples, dtype
        self.y, self.weight = (a.astype(dtype) for a in (samples.y, samples.weight))
        self.f, self.size = np.full((n, K), np.nan, dtype), np.zeros((n, K), np.int64)
        self.message, self.links = np.zeros((n, K), np.int64), np.zeros(K, np.int64)
        # Predictions beyond this have diverged.
        self.limit = 1e6 * (1.0 + float(np.abs(samples.y[samples.weight > 0]).max(initial=0.0)))

    def advance(self, start: int, stop: int) -> None:
        """Learn from steps start to stop, in turn."""
        raise NotImplementedError

    def models(self) -> list[Any]:
        """What each node learned; each has `predict`."""
        raise NotImplementedError


class Method(Protocol):
    """A baseline: its parameters, and how it begins. It may be a recipe (have `draw`)."""

    @property
    def name(self) -> str:
        """How it is called in results."""

    def learner(self, samples: Samples, dtype: Any) -> Learner:
        """Ready for the first step."""


@dataclass
class Result(Trace):
    """A Trace whose `models` are those of each run's nodes, where `record` has "state"."""

    models: list[list[Any]]


def _block(stream: Any, seed: int) -> Block:
    recipe = hasattr(stream, "draw")
    if hasattr(stream, "block"):
        block = stream.block(seed) if recipe else stream.block()
    elif recipe:
        block = stream.draw(seed).block()
    else:
        raise BadInput(f"a stream is a Stream or a recipe of one; got {stream!r}")
    assert isinstance(block, Block)
    return block


def samples_of(stream: Any, seed: int) -> Samples:
    """Draw the stream and lay its rows out step by step; one output only."""
    block = _block(stream, seed)
    if block.Y.shape[1] != 1:
        raise BadInput(f"the baselines learn one output, the stream has {block.Y.shape[1]}")
    rows = block.index.reshape(-1)
    at = np.maximum(rows, 0)
    weight = np.ones(len(rows)) if block.weight is None else block.weight[at]
    weight = np.where(rows >= 0, weight, 0.0)
    whole = np.array_equal(rows, np.arange(block.X.shape[0]))
    X, y = (block.X, block.Y) if whole else (block.X[at], block.Y[at])
    return Samples(X, y[:, 0], weight, *block.index.shape)


def positive(name: str, value: Any) -> float:
    """The value as a float, refused unless finite and above 0."""
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise BadInput(f"{name} must be a finite number above 0, got {value!r}")
    return number


def check_finite(method: Any, learner: Learner, start: int, stop: int) -> None:
    """Raise Diverged if predictions of steps start to stop left all bounds."""
    f, present = learner.f[start:stop], learner.samples.present[start:stop]
    wild = present & ~(np.abs(f) <= learner.limit)
    if wild.any():
        at = start + int(np.flatnonzero(wild.any(axis=1))[0]) + 1
        raise Diverged(f"{method.name} diverged at step {at}: {method!r}; use a smaller step mu")


@dataclass(frozen=True)
class _Job:
    """One realization to run, drawn from its own seed."""

    method: Any
    stream: Any
    dtype: Any
    record: Sequence[str]
    snapshot: int | None
    keep: bool
    bar: Bar

    def realize(self, seed: int) -> tuple[dict[str, Array], Array, int, list[Any]]:
        _, graph_seed, data_seed = spawn(seed, 3)  # as engines.run: the same data and graph
        samples = samples_of(self.stream, data_seed)
        method = drawn(self.method, graph_seed)
        learner = method.learner(samples, self.dtype)
        every = self.snapshot or max(1, PIECE // samples.K)
        cuts = [*range(0, samples.n, every), samples.n]
        seconds = [self._piece(method, learner, start, stop) for start, stop in pairwise(cuts)]
        curves = self._curves(learner, np.array(seconds))
        return curves, np.array(cuts[1:]), samples.n, learner.models() if self.keep else []

    def _piece(self, method: Any, learner: Learner, start: int, stop: int) -> float:
        began = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):
            learner.advance(start, stop)
        seconds = time.perf_counter() - began
        check_finite(method, learner, start, stop)
        self.bar.advance((stop - start) * learner.samples.K)
        return seconds / (stop - start)

    def _curves(self, learner: Learner, seconds: Array) -> dict[str, Array]:
        f = learner.f[..., None].astype(np.float64)
        y = np.where(learner.samples.present, learner.samples.y.reshape(learner.f.shape), np.nan)
        names = [name for name in self.record if name in PER_STEP]
        curves = {name: PER_STEP[name](f, y[..., None], learner) for name in names}
        return curves | ({"seconds": seconds} if "seconds" in self.record else {})


def run(
    method: Method,
    stream: Any,
    *,
    runs: int = 1,
    seed: int = 0,
    record: Sequence[str] = ("mse", "size"),
    snapshot: int | None = None,
    dtype: Any = np.float32,
    workers: int | None = None,
    show_progress: bool | None = None,
) -> Result:
    """Run a baseline over a stream `runs` times; returns a Trace of what was recorded.

    Stream and combination weights are drawn from the seeds that `dokl.run` spawns, so the same
    seed compares on the same data and networks. Runs are shared among threads.

    record: any of mse, node_mse, mistakes, predictions, errors, size (centres held, mean over
    nodes), message (bytes of one message), bytes (sent by all so far), seconds (per step of all
    nodes, without drawing the data; a mean of every `snapshot` steps), state (keeps `models`).

    >>> from dokl.baselines import QKLMS
    >>> from dokl.kernels import Gaussian
    >>> from dokl.streams import Example4
    >>> result = run(QKLMS(Gaussian(0.05), mu=1.0, q=0.01), Example4(K=1, n=300), runs=2, seed=1)
    >>> result["mse"].shape, bool(10 < result["size"][-1] < 40)
    ((300,), True)
    """
    record, seed = _checked(record, snapshot, runs), check_seed(seed)
    n, K = getattr(stream, "n", None), getattr(stream, "K", None)
    total = n * K * runs if n is not None and K is not None else None
    began = time.perf_counter()
    with progress(total, method.name, show_progress) as bar:
        keep = "state" in record or runs == 1
        job = _Job(method, stream, np.dtype(dtype).type, record, snapshot, keep, bar)
        with ThreadPoolExecutor(min(workers or os.cpu_count() or 1, runs)) as pool:
            results = list(pool.map(job.realize, spawn(seed, runs)))
    seconds = time.perf_counter() - began
    curves = {name: np.stack([r[0][name] for r in results]) for name in results[0][0]}
    _, points, steps, _ = results[0]
    at = {name: points if name == "seconds" else np.arange(1, steps + 1) for name in curves}
    told = runs, steps, seed, method.name, str(np.dtype(dtype)), seconds
    return Result(curves, at, [], *told, [r[3] for r in results if r[3]])


def _checked(record: Sequence[str], snapshot: int | None, runs: int) -> Sequence[str]:
    record = (record,) if isinstance(record, str) else tuple(record)
    for name in record:
        if name not in RECORDABLE:
            raise UnknownName("quantity to record", name, RECORDABLE)
    if not (isinstance(runs, int | np.integer) and runs >= 1):
        raise BadInput(f"runs must be a whole number, at least 1, got {runs!r}")
    if snapshot is not None and not (isinstance(snapshot, int | np.integer) and snapshot >= 1):
        raise BadInput(f"snapshot must be a whole number of steps, at least 1, got {snapshot!r}")
    return record
