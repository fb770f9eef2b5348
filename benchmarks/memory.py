"""Ten million samples: resident memory stays where it is."""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks.common import Section
from dokl import KernelRegressor

TOTAL, CHUNK, d, D = 10_000_000, 100_000, 5, 100
MARKS = (500_000, 1_000_000, 2_500_000, 5_000_000, 7_500_000, 10_000_000)
SETTLED, FLAT = 1_000_000, 1.0  # samples, MiB


def resident() -> float:
    """Resident memory in MiB; where the system does not report it, the most there ever was."""
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def target(X: np.ndarray) -> np.ndarray:
    return np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]


def feed() -> tuple[list[tuple[int, float, float]], float]:
    """(samples, MiB, MSE on fresh rows) along the way, and seconds spent in partial_fit."""
    rng = np.random.default_rng(0)
    X_test = rng.standard_normal((2000, d))
    model = KernelRegressor(sigma=2.0, n_components=D, step=0.05, random_state=0)
    along, seconds = [(0, resident(), float(np.mean(target(X_test) ** 2)))], 0.0
    for seen in range(CHUNK, TOTAL + 1, CHUNK):
        X = rng.standard_normal((CHUNK, d))
        y = target(X) + 0.1 * rng.standard_normal(CHUNK)
        began = time.perf_counter()
        model.partial_fit(X, y)
        seconds += time.perf_counter() - began
        if seen in MARKS:
            error = float(np.mean((model.predict(X_test) - target(X_test)) ** 2))
            along.append((seen, resident(), error))
    return along, seconds


def measure() -> Section:
    how = (
        f"{TOTAL:,} samples through partial_fit, {CHUNK:,} at a time, in a process of its own; "
        f"d = {d}, D = {D}.\nAccuracy: mean squared error against the noiseless target on 2,000 "
        "other rows."
    )
    section = Section("memory: ten million samples", how)
    # A process of its own: memory that earlier sections left behind could hide a leak.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        along, seconds = pool.submit(feed).result()
    for seen, mib, error in along:
        section.add(f"after {seen:,}", f"{mib:.1f} MiB", accuracy=f"MSE {error:.5f}")
    # In the beginning code is compiled or loaded and the allocator finds its size; one byte for
    # each of the nine million samples after that would be nine times the limit.
    first, settled = next((seen, mib) for seen, mib, _ in along if seen >= SETTLED)
    growth = along[-1][1] - settled
    verdict = f"<= {FLAT:g} MiB", growth <= FLAT
    section.add(f"growth after the first {first:,}", f"{growth:+.2f} MiB", None, *verdict)
    section.notes.append(
        f"{seconds:.1f} s in partial_fit (one compilation or cache load included), "
        f"{seconds / TOTAL * 1e9:.0f} ns/sample"
    )
    return section
