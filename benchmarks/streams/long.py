"""A million rows: memory stays flat, and what is known stays what the direct solution is."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Section
from dokl import AutoRegressor
from dokl.learning.experts.maps import nested_map
from dokl.learning.scales import isotropic
from dokl.learning.squares import blocks, sums
from dokl.learning.squares.memory import Numbers, start

RIDGE, PART = 0.01, 10_000


def measure(quick: bool) -> Section:
    """Infinite memory after 10^6 rows beside a Cholesky solve of their sums; bytes in use."""
    rows = 100_000 if quick else 1_000_000
    found = Section("long", f"{rows:,} rows")
    _direct(found, rows)
    _flat(found, rows)
    return found


def _rows(number: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    X = rng.normal(size=(PART, d))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=PART))[:, None]


def _direct(found: Section, rows: int) -> None:
    """Blocks of `squares`, one after the other, and theta from Z'Z and Z'y."""
    map = nested_map("gaussian", isotropic(1.5, 3), _rows(0, 3)[0][:2000], 200)
    known, total = start(map.D, 1, RIDGE), sums.no_rows(map.D, 1)
    with threadpool_limits(1, "blas"):
        for number in range(rows // PART):
            X, Y = _rows(number, 3)
            Z = map.transform(X)
            known, _ = blocks.learn(Numbers(RIDGE), known, Z, Y)
            total = sums.add(total, Z, Y)
    direct = sums.solve(total, RIDGE)
    Z = map.transform(_rows(rows, 3)[0])
    apart = np.abs(Z @ (known.theta - direct.theta).T).max() / np.abs(Z @ direct.theta.T).max()
    off = np.abs(known.theta - direct.theta).max() / np.abs(direct.theta).max()
    text = f"theta {off:.1e}, predictions {apart:.1e}"
    found.add("squares beside the direct solution", text, None, "<= 1e-6", max(off, apart) <= 1e-6)


def _flat(found: Section, rows: int) -> None:
    """Resident memory of this process while sixteen experts learn, from row 200,000 on."""
    model, seen = AutoRegressor(50, random_state=0), []
    for number in range(rows // PART):
        X, Y = _rows(number, 3)
        model.partial_fit(X, Y[:, 0])
        seen.append(resident())
    early, late = max(seen[: max(1, len(seen) // 5)]), max(seen)
    text = f"{early / 1e6:.0f} MB, then {late / 1e6:.0f} MB"
    found.add("memory of the experts", text, late / early, "<= 1.05", late <= 1.05 * early)


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
