"""For all tests: no stale machine code, and no silent skips where everything is installed.

Numba files its cache under the file of the outer loop alone: edits of what it calls go unseen.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "dokl"
COMPILED_FROM = (
    "engines/sweeps.py",
    "engines/loops.py",
    "losses.py",
    "baselines/growing.py",
)


def pytest_configure(config):
    """Never test stale machine code; only the first process cleans, not xdist's workers."""
    # What tests compile with XLA runs for milliseconds; compiling it is what takes the time.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    if not hasattr(config, "workerinput"):
        drop_stale_machine_code(PACKAGE)


def drop_stale_machine_code(package):
    """Delete what was compiled before the last edit of its sources."""
    edited = max((package / name).stat().st_mtime_ns for name in COMPILED_FROM)
    for cached in package.glob("*/__pycache__/*.nb[ci]"):
        if cached.stat().st_mtime_ns < edited:
            cached.unlink(missing_ok=True)


# --- nothing may be skipped where everything is installed (set by .ci/run) ---------------------

ALLOWED_SKIPS = (
    "SCIPY_ARRAY_API is not set",  # scikit-learn's own switch, for other kinds of arrays
    "needs an NVIDIA GPU and nvcc",  # hardware, not a package
    "a small file system cannot be mounted",  # a right of the user, not a package
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
