"""`dokl serve --learn` as a process: what was acknowledged outlives kill -9."""

import os
import signal
import subprocess
import sys

import httpx
import numpy as np
import pytest
from lab import samples, wait_for
from peer import free_addresses

import dokl
from dokl.learning.columns import Preprocessor
from dokl.tables.models import TableModel

BATCH = 20


class Served:
    """A process that serves a model; use it as a context manager."""

    def __init__(self, folder, *more):
        address = free_addresses(1)[0]
        command = [sys.executable, "-m", "dokl", "serve", str(folder / "m.dokl"), "--learn"]
        with open(folder / "log", "a") as log:
            self.process = subprocess.Popen([*command, "--http", address, *more], stderr=log)
        self.client = httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=30)
        wait_for(self._healthy, "the model answers")

    def _healthy(self):
        assert self.process.poll() is None, "it ended"
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)


def rows(X, y=None):
    names = ["x1", "x2"] if y is None else ["x1", "x2", "y"]
    data = X if y is None else np.column_stack([X, y])
    return {"columns": names, "data": data.tolist()}


@pytest.mark.parametrize("kind", [dokl.AutoRegressor, dokl.KernelRegressor])
def test_acknowledged_rows_outlive_kill_9(tmp_path, kind):
    X, y = samples(600, seed=1)
    first = {"x1": X[:200, 0], "x2": X[:200, 1]}
    prepared = Preprocessor.plan(first)
    model = TableModel(kind(60, random_state=0) if kind is dokl.AutoRegressor else
                       kind(n_components=60, random_state=0), prepared, "y")  # fmt: skip
    model.partial_fit(first, y[:200])
    model.save(tmp_path / "m.dokl")
    sent, killed = 200, 0
    while sent < 600:
        with Served(tmp_path) as served:
            status = served.client.get("/status").json()
            assert status["learned"] == status["samples"] == sent - 200
            for _ in range(7):
                if sent == 600:
                    break
                batch = slice(sent, sent + BATCH)
                answer = served.client.post("/samples", json=rows(X[batch], y[batch]))
                assert answer.status_code == 200, answer.text
                sent += BATCH
                model.partial_fit({"x1": X[batch, 0], "x2": X[batch, 1]}, y[batch])
            os.kill(served.process.pid, signal.SIGKILL)
            killed += 1
    assert killed > 1
    with Served(tmp_path, "--save", str(tmp_path / "learned.dokl")) as served:
        told = served.client.post("/predict", json=rows(X[:50])).json()["predictions"]
        columns = {"x1": X[:50, 0], "x2": X[:50, 1]}
        np.testing.assert_allclose(told, model.predict(columns), rtol=1e-6, atol=1e-8)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0
    np.testing.assert_allclose(dokl.load(tmp_path / "learned.dokl").predict(columns), told)
