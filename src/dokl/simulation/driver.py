"""The driver: feeds realizations piece by piece, has them recorded, and makes the Trace.

How pieces are run is an executor's business: an engine's `advance`, many realizations in step on
a device, nodes spread over ranks, or a baseline's own learner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block
from dokl.base.errors import BadInput
from dokl.base.progress import Bar
from dokl.base.random_numbers import draw_recipe, spawn
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem, Trace
from dokl.simulation.recording import NOW_AND_THEN, Asked, Recorder

# Predictions held at once; also how often a progress bar moves.
BLOCK = 1 << 19
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """What all realizations of a network share. work: numbers of theta to update, if known."""

    problem: Problem
    exchange: Exchange
    stream: Any
    asked: Asked
    engine: str
    dtype: DTypeLike | None
    workers: int
    work: float

    def draw(self, seed: int) -> tuple[Problem, Exchange, int]:
        """Features and weights of a realization, and the seed of its data."""
        feature_seed, graph_seed, data_seed = spawn(seed, 3)
        problem = replace(self.problem, features=draw_recipe(self.problem.features, feature_seed))
        exchange = replace(self.exchange, weights=draw_recipe(self.exchange.weights, graph_seed))
        return problem, exchange, data_seed


@dataclass
class Realization:
    """What a realization gave: curves by name, the steps of snapshots, and what is kept of it: the
    final state, or models.
    """

    curves: dict[str, Array]
    points: list[int]
    kept: Any = None
    steps: int = 0
    engine: str = ""
    dtype: str = ""


class Executor:
    """Runs the pieces of one realization, or of several in step; it is made again for each."""

    blocks: Iterable[Any]
    block: Any  # the present one
    cast: Any  # the same as it is learned from
    recorder: Recorder
    state: Any
    engine: str
    dtype: DTypeLike | None
    nodes = 0  # of all realizations that are run in step
    fed = 0  # steps of the blocks before the present one
    done = 0  # steps that an earlier run has done: they are only counted
    sent = 0  # bytes, in the last piece, where rules decide on them
    marks: Sequence[int | None] = ()  # at whose multiples to cut, besides snapshots

    def take(self, block: Any) -> tuple[int, int]:
        """Get ready for a block: how many steps it has, and how many to run at once at most."""
        raise NotImplementedError

    def advance(self, start: int, stop: int) -> None:
        """Run and record steps start to stop of the run, all in the present block."""
        raise NotImplementedError

    def snapshot(self, step: int) -> None:
        """Record what is recorded now and then."""
        self.recorder.snapshot(step, self.state)

    def after(self, step: int) -> None:
        """N steps are run and recorded."""

    def kept(self) -> Any:
        """What is kept in the end; None: nothing but curves."""

    def attempt(self, action: Callable[[], T]) -> T:
        """The value of what may fail; where others take part, all receive it."""
        return action()

    def results(self) -> list[Realization]:
        """One, or that of each."""
        about = self.kept(), self.fed, self.engine, str(np.dtype(self.dtype))
        return [Realization(self.recorder.curves(), self.recorder.points, *about)]


def drive(executor: Executor, asked: Asked, bar: Bar) -> list[Realization]:
    """Run an executor over its blocks, from snapshot to snapshot."""
    snapshot = asked.snapshot
    for block in executor.blocks:
        n, size = executor.take(block)
        begin, end = executor.fed, executor.fed + n
        ahead = min(max(begin, executor.done), end)
        bar.advance((ahead - begin) * executor.nodes)
        found = cuts(begin, end, size, snapshot, *executor.marks)
        for start, stop in pairwise([ahead, *(cut for cut in found if cut > ahead)]):
            executor.advance(start, stop)
            if snapshot is not None and stop % snapshot == 0:
                executor.snapshot(stop)
            bar.advance((stop - start) * executor.nodes)
            executor.after(stop)
        executor.fed = end
        block = executor.block = executor.cast = None  # room for the next
    executor.attempt(lambda: _check_end(executor.fed, snapshot))
    return executor.results()


def drive_all(
    draw: Callable[[int], Executor], asked: Asked, bar: Bar, pool: ThreadPoolExecutor
) -> list[Realization]:
    """All realizations, each drawn from its seed and run by one thread."""
    apart = map if asked.runs == 1 else pool.map
    found = apart(lambda seed: drive(draw(seed), asked, bar), spawn(asked.seed, asked.runs))
    return [result for results in found for result in results]


def _check_end(steps: int, snapshot: int | None) -> None:
    if steps == 0:
        raise BadInput("the stream is empty")
    if snapshot is not None and snapshot > steps:
        raise BadInput(f"snapshot={snapshot} is beyond the stream's {steps} steps")


def cuts(start: int, stop: int, size: int, *every: int | None) -> list[int]:
    """Where to cut steps start..stop: no piece longer than `size`, and at multiples of `every`.

    >>> cuts(5, 20, 10, 4, None)
    [5, 8, 12, 15, 16, 20]
    """
    found = {*range(start, stop, size), stop}
    for each in every:
        if each is not None:
            found |= set(range(start - start % each + each, stop, each))
    return sorted(found)


def longest(nodes: int, m: int) -> int:
    """Steps of nodes with m outputs whose predictions may be held at once."""
    return max(1, BLOCK // (nodes * m))


def blocks_of(stream: object, seed: int) -> Iterable[Block]:
    """A stream's samples as blocks: a recipe, a Stream, or an iterable of Streams."""
    if hasattr(stream, "block"):
        return [stream.block(seed) if hasattr(stream, "draw") else stream.block()]
    if hasattr(stream, "draw"):
        return [stream.draw(seed).block()]
    if isinstance(stream, Iterable):
        return (part.block() for part in stream)
    raise BadInput(f"a stream is a Stream, a recipe of one, or Streams in turn; got {stream!r}")


def targets(block: Block, start: int, stop: int) -> Array:
    """The targets (n, K, m) of some steps of a block; NaN where a node has no sample."""
    index = block.index[start:stop]
    return np.where((index >= 0)[..., None], block.Y[np.maximum(index, 0)], np.nan)


def samples_in(stream: object, runs: int) -> int | None:
    """Samples of all realizations, for a progress bar; None: nobody knows beforehand."""
    n, K = getattr(stream, "n", None), getattr(stream, "K", None)
    return n * K * runs if n is not None and K is not None else None


def trace_of(
    results: Sequence[Realization], asked: Asked, seconds: float, like: Realization | None = None,
    now_and_then: Collection[str] = NOW_AND_THEN,
) -> Trace:  # fmt: skip
    """All realizations; steps, engine and precision are those of the first, or of `like`."""
    like = results[0] if like is None else like
    names = results[0].curves if results else {}
    curves = {name: np.stack([each.curves[name] for each in results]) for name in names}
    every = np.arange(1, like.steps + 1)
    at = {n: np.array(results[0].points) if n in now_and_then else every for n in names}
    states = [each.kept for each in results if each.kept is not None]
    about = asked.runs, like.steps, asked.seed, like.engine, like.dtype, seconds
    return Trace(curves, at, states, *about)
