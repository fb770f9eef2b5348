"""Many realizations in step: what `driver.run` does with an engine that takes them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from typing import Any

from dokl.arrays import Array, Block, is_sparse
from dokl.diffusion import init
from dokl.engines import driver
from dokl.engines.driver import Result, Start, _Job, targets

# Bytes of samples and vectors of the realizations that are in memory at once.
BATCH = 1 << 32
# Predictions of all of them between two looks at the clock.
PIECE = 1 << 24


def realize_all(job: _Job, seeds: Sequence[int], pool: Executor) -> list[Result]:
    """All realizations, a batch at a time; threads draw the next while the engine runs this one."""
    first = job.prepare(seeds[0])
    size = max(1, min(len(seeds), BATCH // (2 * _bytes(first))))
    results: list[Result] = []
    ahead = [pool.submit(job.prepare, seed) for seed in seeds[1:size]]
    ready = [first]
    for start in range(0, len(seeds), size):
        ready += [future.result() for future in ahead]
        ahead = [pool.submit(job.prepare, s) for s in seeds[start + size : start + 2 * size]]
        results += _together(job, ready, pool)
        ready = []
    return results


def _bytes(start: Start) -> int:
    """About how much memory a realization takes."""
    start.blocks = list(start.blocks)
    D, total = start.problem.features.D, 0
    for block in start.blocks:
        X = block.X.data if is_sparse(block.X) else block.X
        K, m = block.index.shape[1], block.Y.shape[1]
        total += 2 * X.nbytes + 2 * block.Y.nbytes + 2 * block.index.nbytes + 16 * K * m * D
    return max(1, total)


def _together(job: _Job, starts: list[Start], pool: Executor) -> list[Result]:
    """Run realizations in step, if they are of one kind; one after another otherwise."""
    first, blocks = starts[0], [list(start.blocks) for start in starts]
    for start, each in zip(starts, blocks, strict=True):
        start.blocks = each
    kinds = {(start.name, getattr(start.plan, "rule", None), *map(_shape, start.blocks))
             for start in starts}  # fmt: skip
    if len(kinds) > 1 or not hasattr(first.engine, "advance_many"):
        return [job.go(start) for start in starts]
    batch = first.engine.together([start.plan for start in starts])
    for number, block in enumerate(blocks[0]):
        K, m = block.index.shape[1], block.Y.shape[1]
        for start in starts:
            if start.state is None:
                start.state = init(start.problem, start.exchange, K, m, start.plan.dtype)
        for steps in _feed(job, batch, starts, [each[number] for each in blocks], pool):
            job.bar.advance(steps * K * len(starts))
    return [job.finish(start) for start in starts]


def _shape(block: Block) -> tuple[Any, ...]:
    return block.n, block.index.shape, block.Y.shape[1], block.X.shape[1]


def _feed(
    job: _Job, batch: Any, starts: list[Start], blocks: list[Block], pool: Executor
) -> Iterator[int]:
    """One block of each, piece by piece; yields how many steps were taken."""
    engine, (n, K), m = starts[0].engine, blocks[0].index.shape, blocks[0].Y.shape[1]
    begin = starts[0].state.clock  # type: ignore[union-attr]
    size = min(driver.BLOCK // (K * m), PIECE // (K * m * len(starts)))
    loaded = [engine.load(start.plan, block) for start, block in zip(starts, blocks, strict=True)]

    def record(start: Start, at: int, f: Array, y: Array) -> None:
        assert start.state is not None
        start.recorder.after_block(at, start.state, f, y)

    for at, stop in pairwise(driver._cuts(begin, begin + n, max(1, size), job.snapshot)):
        pieces = [block.steps(at - begin, stop - begin) for block in loaded]
        found = engine.advance_many(batch, [start.state for start in starts], pieces)
        for start, (state, _) in zip(starts, found, strict=True):
            start.state = state
        f = [f for _, f in found]
        y = [targets(block.Y, piece.index) for block, piece in zip(blocks, pieces, strict=True)]
        list(pool.map(record, starts, [at] * len(starts), f, y))
        if job.snapshot is not None and stop % job.snapshot == 0:
            for start in starts:
                assert start.state is not None
                start.recorder.snapshot(start.state)
        yield stop - at
