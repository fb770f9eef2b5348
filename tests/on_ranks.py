"""What test_mpi_engine.py runs on every rank: `python on_ranks.py TASK,TASK... [argument]`."""

import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import engine_cases as engines
from dokl import losses, schedules
from dokl.base.errors import BadInput, Diverged
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.network.exchange import Exchange
from dokl.network.graphs import GraphRecipe
from dokl.simulation.diffusion import Problem
from dokl.simulation.engines import (
    mpi_checkpoints,
    mpi_cluster,
    mpi_engine,
    mpi_halo,
    mpi_ranks,
    numba_engine,
    reference,
    run,
)
from dokl.simulation.methods import gradient
from dokl.simulation.streams import Example2, Missing

OVERLAP = mpi_engine.OVERLAP
NAMES = (
    "plain", "alone", "complete graph, outputs", "odd D", "hinge", "logistic", "huber",
    "normalised", "structured", "csr", "csr pairs", "sequence", "sequence, atc", "every third",
    "every third, atc", "regularised",
)  # fmt: skip
PROBLEM = Problem(
    Features(Gaussian(3.0), 5, 40), gradient(losses.squared(), schedules.constant(0.5))
)
STREAM = Missing(Example2(K=9, n=240), 0.1)
EXCHANGE = Exchange(GraphRecipe("random", 9), "atc", 2, 0.5, "weighted")
RECORD = ("mse", "node_mse", "predictions", "theta", "disagreement", "bytes", "state")
SETTINGS = {"runs": 2, "seed": 4, "record": RECORD, "snapshot": 40, "dtype": np.float64}


def cases_on(P):
    """The engines' own cases, with nodes enough for every rank, and not all as many."""
    by_name = {case.name: case for case in engines.CASES}
    return [replace(by_name[name], K=9 if P > 1 else 4, n=40) for name in NAMES]


def advanced(case):
    plan = mpi_engine.plan(case.problem, case.exchange, np.float64)
    found = mpi_engine.advance(plan, engines.fresh(case), case.block)
    plan.close()
    return found


def same_as_the_other_engines():
    """With vectors travelling before the loops, and meanwhile; both give the same bits."""
    comm = mpi_ranks.world()
    for case in cases_on(comm.size):
        ours, predictions = engines.run(numba_engine, case)
        for least in (OVERLAP, 0):
            mpi_engine.OVERLAP = least
            state, f = advanced(case)
            np.testing.assert_array_equal(f, predictions, err_msg=case.name)
            engines.assert_same(state, ours)
        if comm.rank == 0:
            true, predictions = engines.run(reference, case)
            np.testing.assert_allclose(f, predictions, atol=1e-9, rtol=1e-9, err_msg=case.name)
            engines.assert_same(state, true, atol=1e-9)
            assert state.peak == true.peak
    if comm.size in (1, 2):
        follows_the_slow_truth(cases_on(comm.size)[::5])


def follows_the_slow_truth(cases):
    for case in cases:
        state, f = advanced(case)
        close = {"rtol": 1e-9, "atol": 1e-9}
        np.testing.assert_allclose(f, case.truth[0], **close)
        np.testing.assert_allclose(state.theta, case.truth[1], **close)


def one_node_per_rank():
    """Neighbor_allgather, straight from the vector; and without persistent requests."""
    comm = mpi_ranks.world()
    for case in cases_on(comm.size)[:4]:
        case = replace(case, K=comm.size)
        plan = mpi_engine.plan(case.problem, case.exchange, np.float64)
        assert plan.share is None or plan.share.halo.single == (len(case.exchange.graphs) == 1)
        for _ in range(2):
            state, f = mpi_engine.advance(plan, engines.fresh(case), case.block)
            ours, predictions = engines.run(numba_engine, case)
            np.testing.assert_array_equal(f, predictions)
            engines.assert_same(state, ours)
            mpi_halo.HaloExchange._request = lambda self, buffer, which: None  # as MPI 3 libraries


def records_the_same():
    """Curves as in one process; meanwhile one rank tells how far it is."""
    mpi_cluster.TELL_SECONDS, told = 0.0, []
    mpi_ranks.log.info = told.append
    trace = run(PROBLEM, EXCHANGE, STREAM, engine="mpi", **SETTINGS)
    if mpi_ranks.world().rank > 0:
        assert (trace.curves, trace.states, trace.steps) == ({}, [], 240)
        assert not [line for line in told if "learning" in line]
        return
    assert mpi_ranks.world().size == 1 or "learning: 4,320 samples" in told[-1]
    numba = run(PROBLEM, EXCHANGE, STREAM, engine="numba", **SETTINGS)
    assert trace.engine == "mpi"
    for name, curves in numba.curves.items():
        np.testing.assert_allclose(trace.curves[name], curves, atol=1e-12, err_msg=name)
        np.testing.assert_array_equal(trace.at[name], numba.at[name])
    engines.assert_same(trace.states[1], numba.states[1], atol=1e-12)


class Parts:
    """Streams in turn; the one of number `last` kills the last rank, as a crash does."""

    def __init__(self, last):
        self.last, self.K, self.n = last, 9, 240

    def __iter__(self):
        whole, comm = STREAM.draw(1), mpi_ranks.world()
        for i in range(6):
            if i == self.last and comm.rank == comm.size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield whole.rows(40 * i, 40 * i + 40)


def kept(folder, last, resume=False, stream=None, **changes):
    how = mpi_checkpoints.Checkpoint(Path(folder), every_steps=50, resume=resume)
    stream = Parts(last) if stream is None else stream
    settings = {**SETTINGS, "checkpoint": how} | changes
    return run(PROBLEM, EXCHANGE, stream, engine="mpi", **settings)


def crash(folder):
    kept(folder, 4)


def resume(folder):
    """The rest of the crashed run gives the bits of an uninterrupted one; others are refused."""
    comm = mpi_ranks.world()
    refused(lambda: kept(folder, None), "holds a checkpoint already")
    refused(lambda: kept(folder, None, resume=True, seed=5), "seed = 4, this run has 5")
    refused(lambda: kept(folder, None, resume=True, stream=STREAM), "the data, the features or")
    for _ in range(2):  # the second time it is finished already
        found = kept(folder, None, resume=True)
        whole = kept(folder + "-whole", None, resume=True)
        if comm.rank == 0:
            assert found.steps == whole.steps == 240
            for name, curves in whole.curves.items():
                np.testing.assert_array_equal(found.curves[name], curves, err_msg=name)
            engines.assert_same(found.states[0], whole.states[0])
            engines.assert_same(found.states[1], whole.states[1])
    assert len(os.listdir(folder)) == 2  # the manifest and the last set


def resume_on_fewer(folder):
    refused(lambda: kept(folder, None, resume=True), "made with ranks = 2, this run has 1")


def refused(action, message, kind=BadInput):
    with pytest.raises(kind, match=re.escape(message)):
        action()


def all_hear_of_one():
    """Targets grow without bounds on one node: every rank raises the same."""
    stream = Example2(K=9, n=240).draw(0)
    wild = replace(PROBLEM, method=gradient(losses.squared(), schedules.constant(50.0)))
    alone = Exchange(None)
    quiet = np.where(np.arange(9) == 8, 1.0, 0.0) * np.ones((240, 1))
    one = replace(stream, weight=quiet)  # only the last rank's node learns, and diverges
    refused(lambda: run(wild, alone, one, engine="mpi"), "the iterates diverged", Diverged)
    refused(lambda: run(wild, alone, Broken(), engine="mpi"), "no such sensor")
    mpi_ranks.world().Barrier()


class Broken:
    """A stream that one rank cannot read."""

    K, n = 9, 100

    def draw_nodes(self, seed, nodes):
        if mpi_ranks.world().rank == 1:
            raise BadInput("no such sensor")
        return Example2(K=9, n=100).draw(seed).nodes(nodes)


def fail_between():
    """A rank fails while the others wait for its vectors."""

    def start(self, buffer, clock):
        if mpi_ranks.world().rank == 1 and clock > 20:
            raise MemoryError("no room for rank 1")
        return send(self, buffer, clock)

    send, mpi_halo.HaloExchange.start = mpi_halo.HaloExchange.start, start
    run(PROBLEM, EXCHANGE, STREAM, engine="mpi")


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        globals()[name](*sys.argv[2:])
    print("ok", flush=True)
