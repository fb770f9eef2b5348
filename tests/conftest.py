"""Numba files its cache under the file of the outer loop alone: edits of what it calls go unseen."""

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
    if not hasattr(config, "workerinput"):
        drop_stale_machine_code(PACKAGE)


def drop_stale_machine_code(package):
    """Delete what was compiled before the last edit of its sources."""
    edited = max((package / name).stat().st_mtime_ns for name in COMPILED_FROM)
    for cached in package.glob("*/__pycache__/*.nb[ci]"):
        if cached.stat().st_mtime_ns < edited:
            cached.unlink(missing_ok=True)
