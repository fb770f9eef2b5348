"""For all tests: quick compilation with XLA, and no silent skips where everything is installed."""

import os


def pytest_configure(config):
    # What tests compile with XLA runs for milliseconds; compiling it is what takes the time.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


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
