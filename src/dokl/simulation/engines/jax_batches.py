"""Many realizations in step, by an engine that takes them together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dokl.base.arrays import Block, is_sparse
from dokl.base.progress import Bar
from dokl.base.random_numbers import spawn
from dokl.simulation.diffusion import slots_of
from dokl.simulation.driver import Executor, Job, Realization, drive
from dokl.simulation.engines.runs import ByEngine

# Bytes of samples and vectors of the realizations that are in memory at once.
BATCH = 1 << 32
# Predictions of all of them between two looks at the clock.
PIECE = 1 << 24


def in_step(job: Job, bar: Bar, pool: ThreadPoolExecutor) -> list[Realization]:
    """All realizations, a batch at a time; threads draw the next while the engine runs this one."""
    seeds, results = spawn(job.asked.seed, job.asked.runs), []
    ready = [ByEngine(job, seeds[0])]
    size = max(1, min(len(seeds), BATCH // (2 * _bytes(ready[0]))))
    ahead = [pool.submit(ByEngine, job, seed) for seed in seeds[1:size]]
    for start in range(0, len(seeds), size):
        ready += [future.result() for future in ahead]
        ahead = [pool.submit(ByEngine, job, s) for s in seeds[start + size : start + 2 * size]]
        one_kind = len({_kind(each) for each in ready}) == 1
        together = one_kind and hasattr(ready[0].module, "advance_many")
        for executor in [InStep(ready, pool)] if together else ready:
            results += drive(executor, job.asked, bar)
        ready = []
    return results


class InStep(Executor):
    """Realizations of one kind."""

    def __init__(self, each: Sequence[ByEngine], pool: ThreadPoolExecutor) -> None:
        self.each, self.pool, self.module = each, pool, each[0].module
        self.batch = self.module.together([one.plan for one in each])
        self.blocks, self.marks = zip(*(one.blocks for one in each), strict=True), each[0].marks

    def take(self, block: Sequence[Block]) -> tuple[int, int]:
        """On the device, where rows are used several times."""
        for one, own in zip(self.each, block, strict=True):
            one.fed = self.fed
            n, size = one.take(own, self.module.load(one.plan, own))
        self.nodes = one.nodes * len(self.each)
        return n, max(1, min(size, PIECE // (self.nodes * own.Y.shape[1])))

    def advance(self, start: int, stop: int) -> None:
        """All at once; they are recorded by threads."""
        pieces = [one.cast.steps(start - self.fed, stop - self.fed) for one in self.each]
        states = [one.state for one in self.each]
        found = self.module.advance_many(self.batch, states, pieces)
        list(self.pool.map(lambda one, new: one.learned(start, stop, *new), self.each, found))

    def snapshot(self, step: int) -> None:
        """Of each."""
        for one in self.each:
            one.snapshot(step)

    def results(self) -> list[Realization]:
        """Of each."""
        for one in self.each:
            one.fed = self.fed
        return [result for one in self.each for result in one.results()]


def _kind(one: ByEngine) -> tuple[Any, ...]:
    """What realizations must have in common to be run in step."""
    one.blocks = list(one.blocks)
    shapes = [(block.index.shape, block.Y.shape[1], block.X.shape[1]) for block in one.blocks]
    return one.engine, getattr(one.plan, "rule", None), *shapes


def _bytes(one: ByEngine) -> int:
    """About how much memory a realization takes."""
    one.blocks = list(one.blocks)
    total = 0
    for block in one.blocks:
        X = block.X.data if is_sparse(block.X) else block.X
        K, m = block.index.shape[1], block.Y.shape[1]
        slots = slots_of(one.problem, one.exchange, m)
        numbers = K * sum(math.prod(slot.shape) for slot in slots.values())
        total += 2 * X.nbytes + 2 * block.Y.nbytes + 2 * block.index.nbytes + 16 * numbers
    return max(1, total)
