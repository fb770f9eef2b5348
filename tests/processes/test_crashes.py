"""Agents that are killed, hang, and come back: nothing acknowledged is lost or learned twice."""

import signal
import threading
import time
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
from lab import Lab, body, ring, samples, wait_for

from dokl.live.description import Durability, ExchangePolicy
from dokl.live.jobs.export import learned_so_far

OFF = ExchangePolicy(mode="off")


def batches(seed, how_many, rows=20):
    return [samples(rows, 1000 * seed + i) for i in range(how_many)]


class Client(threading.Thread):
    """Sends batches in order, each with its key, until all are acknowledged, come what may."""

    def __init__(self, lab, name, given):
        super().__init__(daemon=True)
        self.lab, self.node, self.given = lab, name, given
        self.acknowledged = self.repeated = self.tries = 0
        self.stopped = threading.Event()

    def run(self):
        for number, (X, y) in enumerate(self.given):
            while not self.stopped.is_set():
                self.tries += 1
                try:
                    answer = self.lab.post_raw(self.node, body(X, y), key=f"{self.node}-{number}")
                except httpx.TransportError:
                    time.sleep(0.02)
                    continue
                if answer.status_code == 200:
                    self.acknowledged += 1
                    self.repeated += answer.json()["repeated"]
                    break
                time.sleep(0.02)

    def finish(self):
        self.join(60)
        self.stopped.set()
        assert self.acknowledged == len(self.given)


def kill_and_restart(lab, name, client, rng):
    """Let some batches through, kill, and bring it back."""
    before = client.acknowledged
    wait_for(lambda: client.acknowledged >= before + 3 or not client.is_alive(), "progress")
    time.sleep(float(rng.uniform(0, 0.05)))
    lab.kill(name)
    lab.start(name)


@contextmanager
def after_kills(folder, how_many, killed, seed, names=("a", "b", "c"), **parts):
    """A ring of nodes that were each sent so many batches, while some were killed."""
    rng = np.random.default_rng(seed)
    with Lab(folder, ring(*names), **parts) as lab:
        lab.start()
        clients = {name: Client(lab, name, batches(k, how_many)) for k, name in enumerate(names)}
        for client in clients.values():
            client.start()
        for name in killed:
            kill_and_restart(lab, name, clients[name], rng)
        for client in clients.values():
            client.finish()
        yield lab


def assert_predicts(lab, name):
    """It has learned the function of all nodes, and its intervals are some."""
    X, y = samples(50, 99, noise=0.0)
    asked = {"columns": ["x1", "x2"], "data": X.tolist()}
    answer = lab.client(name).post("/predict?intervals=true", json=asked).json()
    assert np.mean((np.array(answer["predictions"]) - y) ** 2) < 0.1
    assert all(low < high for low, high in zip(answer["lower"], answer["upper"], strict=True))
    assert min(answer["std"]) > 0


@pytest.mark.parametrize(
    "durability", [Durability(snapshot_rows=300), Durability("full", 170)], ids=["process", "full"]
)
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path, durability):
    given, rng = batches(1, 150), np.random.default_rng(5)
    with Lab(tmp_path, [], names=["a"], exchange=OFF, durability=durability) as lab:
        lab.start()
        client = Client(lab, "a", given)
        client.start()
        for _ in range(4):
            kill_and_restart(lab, "a", client, rng)
        client.finish()
        assert lab.status("a")["samples"] == 150 * 20
        assert lab.lines("a", "restored")
        lab.kill("a")
        state, learned = learned_so_far(lab.network, "a", tmp_path / "lab.state")
        lab.start("a")
        X, _ = samples(50, 7)
        predicted = lab.predict("a", X)
    assert learned == 150 * 20
    learner = lab.network.learner()
    undisturbed = learner.start()
    for X_batch, y in given:
        undisturbed, _ = learner.learn(undisturbed, X_batch, y[:, None])
    assert state.theta.tobytes() == undisturbed.theta.tobytes()
    assert int(state.count[0]) == int(undisturbed.count[0])
    assert predicted.astype(np.float32).tobytes() == learner.predict(undisturbed, X).tobytes()


def test_with_exchange_no_acknowledged_sample_is_missing_or_counted_twice(tmp_path):
    names = "a", "b", "c"
    with after_kills(tmp_path, 120, ("b", "a", "c", "b"), seed=6) as lab:
        for name in names:
            wait_for(lambda: lab.status(name)["learned"] == 2400, f"{name} has learned all")  # noqa: B023
            assert lab.status(name)["samples"] == 2400
            assert lab.metric(name, "dokl_samples_total") == 2400
            lab.neighbours_up(name)
        errors = [lab.error(name) for name in names]
    assert max(errors) < 0.15  # of a target whose variance is 0.5


def test_the_rest_goes_on_without_a_killed_node_and_greets_it_again(tmp_path):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start()
        lab.neighbours_up("a")
        lab.kill("c")
        wait_for(lambda: not lab.status("a")["neighbours"]["c"]["up"], "a misses c", 10)
        assert lab.metric("a", "dokl_neighbour_up", neighbour="c") == 0
        assert any("'c' is down" in text for text in lab.status("a")["assumptions"])
        for i in range(30):
            lab.post("a", *samples(50, i))
            lab.post("b", *samples(50, 100 + i))
        lab.has_learned("a")
        assert lab.error("a") < 0.2
        lab.start("c")
        lab.neighbours_up("a", "c")
        # It was never told anything, and knows what its neighbours know.
        wait_for(lambda: lab.error("c") < 0.2, "c has caught up")
        assert lab.status("c")["samples"] == 0


def test_a_hung_node_is_noticed_at_the_lease_and_comes_back(tmp_path):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start()
        lab.neighbours_up("a")
        lab.signal("b", signal.SIGSTOP)
        wait_for(lambda: not lab.status("a")["neighbours"]["b"]["up"], "a misses b", 15)
        before = lab.status("a")["samples"]
        for i in range(20):
            lab.post("a", *samples(20, i))
            lab.post("c", *samples(20, 50 + i))
        assert lab.status("a")["samples"] == before + 400
        lab.signal("b", signal.SIGCONT)
        lab.neighbours_up("a", "b")
        lab.post("b", *samples(20, 3))
        wait_for(lambda: lab.error("b") < 0.3, "b has caught up")
