"""How long until something happens: `import dokl`, and the first prediction of a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.common import Section, in_turns

FIRST_PREDICTION = """
import numpy as np
from dokl import KernelRegressor
X = np.random.default_rng(0).uniform(-3, 3, (2000, 1))
y = np.sin(2 * X[:, 0])
model = KernelRegressor(sigma=0.5, random_state=0).partial_fit(X, y)
print(abs(model.predict([[0.5]])[0] - np.sin(1.0)))
"""
ROUNDS, UNCACHED_ROUNDS = 9, 2


def python(code: str, cache: str | None = None) -> str:
    """Run code in a new process; bytecode is cached as for any user."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    if cache is not None:
        env["NUMBA_CACHE_DIR"] = cache
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a new process failed:\n{done.stderr}")
    return done.stdout


def measure() -> Section:
    how = (
        f"New processes, in turns, medians of {ROUNDS} ({UNCACHED_ROUNDS} without a cache); the "
        "interpreter's own start is taken off the imports\nand left in the first prediction. "
        "Accuracy: error of that prediction, of sin(1) after 2,000 samples."
    )
    section = Section("startup: a new process", how)
    _imports(section)
    _first_prediction(section)
    return section


def _imports(section: Section) -> None:
    codes = {
        "bare": "pass",
        "dokl": "import dokl",
        "numpy": "import numpy",
        "estimator": "from dokl import KernelRegressor",
        "sklearn": "from sklearn.linear_model import SGDRegressor",
    }
    for code in codes.values():
        python(code)
    jobs = {name: lambda r, code=code: len(python(code)) + 1 for name, code in codes.items()}
    times = in_turns(jobs, ROUNDS, perf_counter)
    taken = {name: float(np.median(times[name] - times["bare"])) for name in codes}
    section.add("import dokl", f"{taken['dokl']:.3f} s", None, "< 0.3 s", taken["dokl"] < 0.3)
    section.add(codes["estimator"], f"{taken['estimator']:.3f} s")
    section.add(codes["sklearn"], f"{taken['sklearn']:.3f} s")
    section.add("import numpy", f"{taken['numpy']:.3f} s")


def _files(folder: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()}


def _first_prediction(section: Section) -> None:
    errors: list[str] = []

    def job(cache: str | None) -> int:
        if cache is not None:
            errors.append(python(FIRST_PREDICTION, cache))
            return 1
        with tempfile.TemporaryDirectory() as empty:
            errors.append(python(FIRST_PREDICTION, empty))
        return 1

    with tempfile.TemporaryDirectory() as kept:
        job(kept)
        before = _files(kept)
        cold = in_turns({"cold": lambda r: job(None)}, UNCACHED_ROUNDS, perf_counter)["cold"]
        warm = in_turns({"warm": lambda r: job(kept)}, ROUNDS, perf_counter)["warm"]
        untouched = _files(kept) == before
    accuracy = f"error {float(errors[-1]):.4f}"
    a, b = float(np.median(cold)), float(np.median(warm))
    section.add("first prediction, nothing cached", f"{a:.2f} s", accuracy=accuracy)
    section.add("first prediction, compiled code cached", f"{b:.2f} s", a / b, accuracy=accuracy)
    section.add(
        "  a second process compiles nothing", f"{len(before)} files in the cache", None,
        "cache unchanged", untouched and len(before) > 0,
    )  # fmt: skip
