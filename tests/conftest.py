"""For all tests: quick compilation with XLA, Ctrl-C, the same random numbers each time, short
searches, little to collect for the garbage collector, and no silent skips where everything is
installed.
"""

import gc
import os
import signal
import sys
from contextlib import contextmanager, nullcontext

import pytest


def pytest_configure(config):
    # More threads of BLAS than cores wait for each other: on a busy machine an inverse of 40 rows
    # took 0.2 s. Read when NumPy is loaded, here and in the processes that tests start.
    for library in ("OPENBLAS", "OMP"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # LightGBM asks joblib how many threads to take. Two of them wait for each other in a loop: on a
    # busy machine fits of 300 rows took five times as long.
    os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")
    # What tests compile with XLA runs for milliseconds; compiling it is what takes the time. With
    # neither optimisation nor fusion emitters, and in one piece, it takes a third of it.
    quick = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    whole = "--xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", f"{quick} {whole}")
    # Journals, models and certificates are synced thousands of times, 10 ms each on a disk.
    # Agents as processes stay on the disk, as their users' do.
    if not any("processes" in str(each) for each in config.args) and memory_disk():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    # A shell lets what it runs in the background ignore Ctrl-C, which tests send to processes.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    # Models without a `random_state` draw their seed here, as scikit-learn's do: what a test sees
    # does not depend on the tests before it, nor on the run.
    import numpy as np  # not before pytest_configure

    np.random.seed(0)  # noqa: NPY002
    _collect_garbage(item)


MEMORY, ROOM = "/dev/shm", 2e9  # bytes; a run of all tests takes a tenth


def memory_disk():
    """Whether there is one for folders of tests, some of which run programs there."""
    if not os.access(MEMORY, os.W_OK):
        return False
    disk = os.statvfs(MEMORY)
    return disk.f_bavail * disk.f_frsize > ROOM and not disk.f_flag & os.ST_NOEXEC


# --- short searches -----------------------------------------------------------------------------
# Most of the time of a small model is the search for its length scales, whose end few tests look
# at. Those that need a model, but not a good one, take this; in a file where all do, those that
# look are marked `full_searches`.


@contextmanager
def searches_cut_short():
    """Let searches for length scales and for places of groups end after 5 evaluations."""
    from scipy import optimize

    search = optimize.minimize

    def short(*given, options=None, **how):
        bounds = {"maxfun": 5, "maxiter": 5}
        return search(*given, options={**(options or {}), **bounds}, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimize, "minimize", short)
        yield


@pytest.fixture
def short_searches(request):
    """For a test, or for a file: `pytestmark = pytest.mark.usefixtures("short_searches")`."""
    full = request.node.get_closest_marker("full_searches")
    with nullcontext() if full else searches_cut_short():
        yield


@pytest.fixture(scope="module")
def short_searches_of_module():
    """For fixtures of a module, which are made before those of a test."""
    return searches_cut_short


@pytest.fixture
def learns_whole(monkeypatch):
    """Agents learn every arrival in one piece. Otherwise its slices depend on how fast the machine
    is, and with them what is sealed, and what a snapshot holds.
    """
    from dokl.live.agent import backlog, service

    for module in (backlog, service):
        monkeypatch.setattr(module, "SLICE", 3600.0)


# --- garbage ------------------------------------------------------------------------------------
# All test files and what they import are 800,000 objects, and every full collection looked at each
# of them: more than half of the time of some files. Frozen, they are not looked at again.

_files = []


def pytest_collection(session):
    gc.disable()


def pytest_collection_finish(session):
    gc.enable()
    gc.freeze()


def _collect_garbage(item):
    if item.path not in _files[-1:]:
        _files.append(item.path)
        gc.collect()  # what the last file has left, with warnings of what it did not close
        gc.freeze()  # what it has imported
        # Pilots of its models, in the background: tests that measure memory or processor time
        # would measure them as well.
        if (background := sys.modules.get("dokl.base.background")) is not None:
            background.wait_until_idle()


# --- nothing may be skipped where everything is installed (set by .ci/run) ---------------------

ALLOWED_SKIPS = (
    "SCIPY_ARRAY_API is not set",  # scikit-learn's own switch, for other kinds of arrays
    "needs an NVIDIA GPU and nvcc",  # hardware, not a package
    "a small file system cannot be mounted",  # a right of the user, not a package
    "Lags is non deterministic",  # checks that its output is the same, whatever rows came before
)
_skipped = []


def pytest_runtest_logreport(report):
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in ALLOWED_SKIPS):
            _skipped.append(f"{report.nodeid}: {reason}")


def pytest_collectreport(report):
    if report.skipped:
        _skipped.append(f"{report.nodeid}: {report.longrepr[2]}")


def pytest_sessionfinish(session, exitstatus):
    if os.environ.get("DOKL_NO_SKIPS") and _skipped and not hasattr(session.config, "workerinput"):
        print("\nskipped, though DOKL_NO_SKIPS is set:", *sorted(set(_skipped)), sep="\n  ")
        session.exitstatus = 1
