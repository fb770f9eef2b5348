"""Agents inside one process: a real store, a network in memory, and a clock."""

import io
import json
import time
from contextlib import contextmanager

import numpy as np

from dokl.live.agent.clock import Clock
from dokl.live.agent.logs import Log
from dokl.live.agent.runtime import Agent
from dokl.live.description import ExchangePolicy
from dokl.live.inputs import Arrival
from dokl.live.jobs.agents import earlier_identities, identity
from dokl.live.store import Store
from dokl.live.transports.memory import Hub, MemoryTransport
from live_networks import small

OFF = ExchangePolicy(mode="off")
WAIT = 120  # seconds, on a machine that does much else


class Lines(io.StringIO):
    """A log in memory."""

    def events(self):
        return [json.loads(line)["event"] for line in self.getvalue().splitlines()]


def made(folder, network, name="a", hub=None, **options):
    path, lines, agents = folder / f"{name}.db", Lines(), []
    how = network.durability.mode, network.limits
    earlier = earlier_identities(network, name)
    store = Store.open(path, identity(network, name), *how, earlier=earlier)
    wake = lambda: agents[0].wake() if agents else None  # noqa: E731
    lossless = network.model.rows
    transport = MemoryTransport(network, name, lossless, hub=hub or Hub(), wake=wake)
    try:
        agent = Agent(network, name, store, transport, log=Log(name, Clock(), lines), **options)
    except BaseException:
        store.close()
        raise
    agent.lines = lines
    agents.append(agent)
    return agent


@contextmanager
def starting(folder):
    """Starts agents that end with the test: a function of a network and a name."""
    running = []

    def started(network=None, name="a", **options):
        network = small(exchange=OFF) if network is None else network
        agent = made(folder, network, name, **options)
        running.append(agent)
        agent.start()
        return agent

    yield started
    for agent in running:
        agent.stop()


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, :1])


def arrival(n, seed=0, **more):
    return Arrival(*rows(n, seed), **more)


def nothing():
    return np.zeros((0, 3)), np.zeros((0, 1))


def killed(agent):
    """As kill -9 would leave it: no farewell."""
    agent.transport.close()
    with agent._lock:
        agent.store.close()


def wait(condition):
    limit = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)
