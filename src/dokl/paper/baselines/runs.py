"""Run a baseline over a stream, many times, on the data of `dokl.run` with the same seed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, Diverged
from dokl.base.progress import progress
from dokl.base.random_numbers import draw_recipe, spawn
from dokl.simulation import driver
from dokl.simulation.diffusion import Trace
from dokl.simulation.recording import OF_PREDICTIONS, Asked, Recorder, check_asked

# From predictions f and targets y: (n, K, 1), the learner, and the steps -> (n, ...).
PER_STEP = OF_PREDICTIONS | {
    "errors": lambda f, y, *_: (y - f)[..., 0],
    "size": lambda f, y, learner, steps: learner.size[steps].mean(axis=1),
    "message": lambda f, y, learner, steps: (
        learner.message[steps] @ learner.links / max(1, learner.links.sum())
    ),
    "bytes": lambda f, y, learner, steps: learner.message[steps] @ learner.links,
}
SECONDS = {"seconds": float}  # per step, after every piece
RECORDABLE = (*PER_STEP, *SECONDS, "state")
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


class BaselineLearner:
    """One realization under way: what it predicted, how large it became, what it sent.

    f: (n, K) a-priori predictions; size: (n, K) centres, or numbers, held after each step;
    message: (n, K) bytes of one message of each node at each step; links: (K,) how many it sends.
    """

    def __init__(self, samples: Samples, dtype: DTypeLike) -> None:
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


class Baseline(Protocol):
    """A baseline: its parameters, and how it begins. It may be a recipe (have `draw`)."""

    @property
    def name(self) -> str:
        """How it is called in results."""

    def learner(self, samples: Samples, dtype: DTypeLike) -> BaselineLearner:
        """Ready for the first step."""


@dataclass
class BaselineTrace(Trace):
    """A Trace whose `models` are those of each run's nodes, where `record` has "state"."""

    models: list[list[Any]]


def samples_of(stream: Any, seed: int) -> Samples:
    """Draw the stream and lay its rows out step by step; one output only."""
    if not (hasattr(stream, "block") or hasattr(stream, "draw")):
        raise BadInput(f"a stream is a Stream or a recipe of one; got {stream!r}")
    (block,) = driver.blocks_of(stream, seed)
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


def _drawn(features: Any, seed: int) -> Any:
    """Maps drawn as `dokl.run` draws them; of several, each from the same seed."""
    if isinstance(features, list | tuple):
        return tuple(draw_recipe(each, seed) for each in features)
    return draw_recipe(features, seed)


class ByLearner(driver.Executor):
    """One realization by a baseline's own learner, which has all samples from the beginning."""

    def __init__(
        self, method: Any, stream: Any, wanted: Asked, dtype: DTypeLike, seed: int
    ) -> None:
        feature_seed, graph_seed, data_seed = spawn(seed, 3)  # as `dokl.run`: all the same
        if hasattr(method, "features"):
            method = replace(method, features=_drawn(method.features, feature_seed))
        samples = samples_of(stream, data_seed)
        self.method, self.dtype, self.engine = draw_recipe(method, graph_seed), dtype, method.name
        self.learner = self.method.learner(samples, dtype)
        self.blocks, self.nodes, self.keep = [samples], samples.K, wanted.keep
        self.size = wanted.snapshot or max(1, PIECE // samples.K)
        self.recorder = Recorder(wanted.record, PER_STEP, SECONDS)

    def take(self, block: Samples) -> tuple[int, int]:
        """Seconds are means of n steps."""
        return block.n, self.size

    def advance(self, start: int, stop: int) -> None:
        """The learner's own loop, timed; raises Diverged if predictions left all bounds."""
        learner, steps, began = self.learner, slice(start, stop), time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):
            learner.advance(start, stop)
        seconds = (time.perf_counter() - began) / (stop - start)
        f, samples = learner.f[steps], learner.samples
        y, weight = (a.reshape(samples.n, -1)[steps] for a in (samples.y, samples.weight))
        wild = (weight > 0) & ~(np.abs(f) <= learner.limit)
        if wild.any():
            at = start + int(np.flatnonzero(wild.any(axis=1))[0]) + 1
            what = f"{self.engine} diverged at step {at}: {self.method!r}"
            raise Diverged(f"{what}; use a smaller step mu")
        y = np.where(weight > 0, y, np.nan)
        self.recorder.take(f[..., None].astype(np.float64), y[..., None], learner, steps)
        self.recorder.snapshot(stop, seconds)

    def kept(self) -> list[Any] | None:
        """The nodes' models, if they are wanted."""
        return self.learner.models() if self.keep else None


def run(
    method: Baseline,
    stream: Any,
    *,
    runs: int = 1,
    seed: int = 0,
    record: Sequence[str] = ("mse", "size"),
    snapshot: int | None = None,
    dtype: DTypeLike = np.float32,
    workers: int | None = None,
    show_progress: bool | None = None,
) -> BaselineTrace:
    """Run a baseline over a stream `runs` times; returns a Trace of what was recorded.

    Stream, combination weights and features are drawn from the seeds that `dokl.run` spawns, so
    the same seed compares on the same data, networks and maps. Runs are shared among threads.

    record: any of mse, node_mse, mistakes, predictions, errors, size (centres held, mean over
    nodes), message (bytes of one message), bytes (sent by all so far), seconds (per step of all
    nodes, without drawing the data; a mean of every `snapshot` steps), state (keeps `models`).

    >>> from dokl.paper.baselines import QKLMS
    >>> from dokl.learning.kernels import Gaussian
    >>> from dokl.simulation.streams import Example4
    >>> result = run(QKLMS(Gaussian(0.05), mu=1.0, q=0.01), Example4(K=1, n=300), runs=2, seed=1)
    >>> result["mse"].shape, bool(10 < result["size"][-1] < 40)
    ((300,), True)
    """
    wanted = check_asked(record, snapshot, runs, seed, RECORDABLE, ())
    kind, began = np.dtype(dtype).type, time.perf_counter()
    bar = progress(driver.samples_in(stream, runs), method.name, show_progress)
    with bar as shown, ThreadPoolExecutor(min(workers or os.cpu_count() or 1, runs)) as pool:
        draw = partial(ByLearner, method, stream, wanted, kind)
        results = driver.drive_all(draw, replace(wanted, snapshot=None), shown, pool)
    trace = driver.trace_of(results, wanted, time.perf_counter() - began, now_and_then=SECONDS)
    models = [each.kept for each in results if each.kept is not None]
    return BaselineTrace(**vars(trace) | {"states": []}, models=models)
