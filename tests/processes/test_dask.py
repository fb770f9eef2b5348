"""Least squares by a cluster of processes: exact, and a lost worker costs its own partitions."""

import os
import signal
import threading
import time
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from lab import wait_for

from dokl.tables import dask as adapter
from dokl.tables.dask import fit_squares

PARTS, ROWS = 12, 400


def rows(number, folder=None, slow=0.0):
    """A partition; folder: where it is noted who made it."""
    if folder is not None:
        with open(f"{folder}/{number}", "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(slow)
    rng = np.random.default_rng(number)
    a, b = rng.normal(size=(2, ROWS))
    return pd.DataFrame({"a": a, "b": b, "y": np.sin(2 * a) * b + 0.1 * rng.normal(size=ROWS)})


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    here = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**here) as cluster, Client(cluster) as client:
        yield client


def frame(*more):
    import dask.dataframe as dd

    meta = {"a": float, "b": float, "y": float}
    return dd.from_map(rows, range(PARTS), *([value] * PARTS for value in more), meta=meta)


def alone():
    """The same by one process."""
    import dask

    with dask.config.set(scheduler="synchronous"):
        leaves = [dask.delayed(rows)(i) for i in range(PARTS)]
        parts = type("Parts", (), {"to_delayed": lambda self: leaves})()
        found = adapter._active
        adapter._active = lambda: None
        try:
            return fit_squares(parts, "y", n_components=60, pilot_rows=300)
        finally:
            adapter._active = found


def theta(model):
    return model.estimator.bank_.memories[0].theta


def test_a_cluster_gives_the_model_of_one_process(client, monkeypatch, capsys):
    monkeypatch.setattr(adapter, "GROUP", 5)  # three groups
    model = fit_squares(frame(), "y", n_components=60, pilot_rows=300, client=client, progress=True)
    assert model.rows_read == PARTS * ROWS
    np.testing.assert_allclose(theta(model), theta(alone()), rtol=0, atol=1e-9)
    assert "Completed" in capsys.readouterr().out


def test_a_lost_worker_costs_its_partitions_and_nothing_else(client, tmp_path):
    data = frame(str(tmp_path), 0.3)
    killed = []

    def kill():
        wait_for(lambda: len(made(tmp_path)) > PARTS // 2 + 1, "half of the partitions were read")
        time.sleep(0.5)
        # Only the sums are read after the pilot, so whoever is busy now is at them.
        killed.append(next(iter(client.run(os.getpid).values())))
        os.kill(killed[0], signal.SIGKILL)

    monkey = pytest.MonkeyPatch()
    monkey.setattr(adapter, "PILOT_PARTS", 1)  # the pilot reads one, and the sums all of them
    thread = threading.Thread(target=kill)
    thread.start()
    try:
        model = fit_squares(data, "y", n_components=60, pilot_rows=300, client=client)
    finally:
        thread.join(60)
    whole = fit_squares(frame(), "y", n_components=60, pilot_rows=300, client=client)
    monkey.undo()
    np.testing.assert_allclose(theta(model), theta(whole), rtol=0, atol=1e-9)
    again = {number: pids for number, pids in made(tmp_path).items() if len(pids) > 1}
    del again[0]  # which the pilot has read
    assert killed
    assert again, "nothing was lost: the worker was killed too late"
    assert all(pids[:-1] == killed for pids in again.values()), again


def made(folder):
    """{partition: who read it}."""
    found = defaultdict(list)
    for path in folder.iterdir():
        found[int(path.name)] = [int(line) for line in path.read_text().split()]
    return found
