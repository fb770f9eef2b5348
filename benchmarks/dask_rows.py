"""Rows a second and memory of least squares by Dask's workers, against one process.

    python -m benchmarks.dask_rows [--rows 400000] [--workers 2] [--components 500]

Each worker is a process with one thread. Rows are made where they are learned, so nothing but the
map and the sums travels.
"""

import argparse
import os
import resource
import time

import numpy as np

PART = 20_000


def rows(number):
    import pandas as pd

    rng = np.random.default_rng(number)
    X = rng.normal(size=(PART, 8)).astype(np.float32)
    y = np.sin(3 * X[:, 0]) * X[:, 1] + np.sin(4 * X[:, 2] + X[:, 3])  # rough: all centres count
    return pd.DataFrame({**{f"x{i + 1}": X[:, i] for i in range(8)}, "y": y})


def seconds(how, rows_wanted, components):
    """(seconds of the pilot, seconds in all): the pilot is the same for any number of workers."""
    import dask.dataframe as dd

    from dokl.tables import dask as adapter

    began, pilot = time.perf_counter(), []
    before = adapter._total

    def total(*given):
        pilot.append(time.perf_counter() - began)
        return before(*given)

    adapter._total = total
    try:
        data = dd.from_map(rows, range(rows_wanted // PART))
        model = adapter.fit_squares(data, "y", n_components=components, pilot_rows=2000, **how)
    finally:
        adapter._total = before
    assert model.rows_read == rows_wanted // PART * PART
    return pilot[0], time.perf_counter() - began


def peak():
    """MiB that this process has had resident at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    import dask
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--components", type=int, default=500)
    asked = parser.parse_args()
    with dask.config.set(scheduler="synchronous"):
        pilot, whole = seconds({}, asked.rows, asked.components)
    alone = asked.rows / (whole - pilot)
    print(f"one process: {alone:,.0f} rows a second, after a pilot of {pilot:.1f} s; at most "
          f"{peak():,.0f} MiB", flush=True)  # fmt: skip
    here = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(n_workers=asked.workers, **here) as cluster, Client(cluster) as client:
        seconds({"client": client}, 2 * PART * asked.workers, asked.components)  # imports
        pilot, whole = seconds({"client": client}, asked.rows, asked.components)
        most = max(client.run(peak).values())
    speed = asked.rows / (whole - pilot)
    print(f"{asked.workers} workers: {speed:,.0f} rows a second, {speed / alone:.2f} times as "
          f"many; at most {most:,.0f} MiB each")  # fmt: skip


if __name__ == "__main__":
    main()
