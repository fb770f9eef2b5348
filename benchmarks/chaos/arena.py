"""The network under test: agents, a proxy on every link, a broker, and who sends to whom."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import brokers
import networkx as nx
from lab import Lab, free_ports, samples
from proxy import Proxy

from benchmarks.chaos.attacks import FAULTY
from benchmarks.chaos.feeding import Face, Feeder
from benchmarks.chaos.sensors import SECRETS, Sensor
from dokl.live.description import AgreedInputs, ExchangePolicy, Model, SensorSource

MODELS = {
    "gradient": Model(sigma=1.0, D=100, seed=3, mu=0.5),
    "squares": Model(sigma=1.0, D=100, seed=3, method="squares", own_components=100),
    "rows": Model(seed=3, method="squares", share="rows", own_components=100),
}
FILES = 1024  # descriptors of each agent, as many systems have it
LONG_CALM = 5.0  # seconds after which a node should see every other such node
TRIAL = samples(300, 99, noise=0.0)  # rows that nobody has seen


def links_of(names: list[str]) -> list[tuple[str, str]]:
    """Everybody with the two next on either side of a circle, and with the faulty node."""
    near = nx.circulant_graph(len(names), [1, 2])
    return [(names[a], names[b]) for a, b in near.edges] + [(name, FAULTY) for name in names]


class Arena:
    """A context manager; after `begin` everybody learns, until `close`."""

    def __init__(self, folder: Path, method: str, nodes: int, seed: int, rate: float) -> None:
        self.names = [f"n{i}" for i in range(nodes)]
        self.secure, self.sensing = self.names[0], self.names[1]
        self.method, self.folder, self.broker_port = method, folder, free_ports(1)[0]
        self._stack = ExitStack()
        self.lab = self._stack.enter_context(self._described())
        self.network = self.lab.network
        self.feeders = {
            name: Feeder(self.lab, name, 1000 * seed + k, rate) for k, name in enumerate(self.names)
        }
        self.sensor = Sensor(self.sensing, self.broker_port, seed, min(rate, 20.0))
        self.broker: subprocess.Popen[bytes] | None = None
        self._busy = dict.fromkeys(self.names, 0)  # faults at each node
        self._calm = dict.fromkeys(self.names, time.monotonic())
        self._lock = threading.Lock()

    def _described(self) -> Lab:
        inputs = replace(AgreedInputs.plain(2), target_range=(-20.0, 20.0))
        policy = ExchangePolicy(every_seconds=0.1, fewest_rows=20, rows_per_second=5000.0)
        policy = replace(policy, seal_seconds=1.0) if self.method == "rows" else policy
        lab = Lab(
            self.folder, links_of(self.names), model=MODELS[self.method], exchange=policy,
            inputs=inputs, names=[*self.names, FAULTY],
        )  # fmt: skip
        nodes = dict(lab.network.nodes)
        port = str(nodes[self.secure].http).rpartition(":")[2]
        nodes[self.secure] = replace(nodes[self.secure], http=f"0.0.0.0:{port}")
        self.proxies: dict[frozenset[str], Proxy] = {}
        routes = {}
        for a, b in sorted(lab.network.links):
            if FAULTY in (a, b):
                continue
            near, far = sorted((a, b), key=self.names.index)
            proxy = self._stack.enter_context(Proxy(nodes[near].address))
            self.proxies[frozenset((a, b))] = proxy
            routes[f"{far}->{near}"] = proxy.address
        source = SensorSource(
            "mqtt", (f"127.0.0.1:{self.broker_port}",), (f"stations/{self.sensing}/#",),
            predictions=f"predicted/{self.sensing}",
        )  # fmt: skip
        sources = {self.sensing: source}
        lab.write(replace(lab.network, nodes=nodes, routes=routes, sources=sources))
        return lab

    def begin(self) -> None:
        """Start the broker, all agents, and the senders."""
        self.network.learner().prepare()  # once, and not by every agent at the same time
        self.start_broker()
        for name in self.names:
            self.start(name, wait=False)
        for name in self.names:
            self.lab.answers(name)
        for feeder in self.feeders.values():
            feeder.start()
        self.sensor.start()

    def start(self, name: str, wait: bool = True) -> None:
        """Start an agent."""
        self.lab.start(name, env=SECRETS, wait=wait, files=FILES)

    def start_broker(self) -> None:
        """Let the broker come, empty as a broker without a disk is."""
        words = [sys.executable, str(brokers.__file__), str(self.broker_port), str(self.folder)]
        self.broker = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert self.broker.stdout is not None
        if self.broker.stdout.readline().strip() != b"there":
            raise RuntimeError(f"the broker did not start on port {self.broker_port}")

    def stop_broker(self) -> None:
        """kill -9."""
        broker, self.broker = self.broker, None
        if broker is not None:
            broker.kill()
            broker.communicate()

    # -- how nodes are -----------------------------------------------------------------------
    def harming(self, name: str, begins: bool) -> None:
        """A fault begins or ends at a node."""
        with self._lock:
            self._busy[name] += 1 if begins else -1
            self._calm[name] = time.monotonic()

    def calm_since(self, name: str) -> float | None:
        """When the last fault at a node ended; None while there is one."""
        with self._lock:
            return None if self._busy[name] else self._calm[name]

    def calm(self, seconds: float = 0.0) -> list[str]:
        """Nodes at which there was no fault for so long."""
        limit, since = time.monotonic() - seconds, self.calm_since
        return [name for name in self.names if (at := since(name)) is not None and at <= limit]

    def unwell(self, name: str, faces: dict[str, Face]) -> str:
        """What is wrong with a node: it should answer, and see and be seen by all that were left in
        peace for long; empty if it does.
        """
        status = faces[name].status()
        if status is None:
            return f"{name} does not answer"
        for other in self.calm(LONG_CALM):
            if other == name or other not in status["neighbours"]:
                continue
            seen = faces[other].status()
            if seen is None or not seen["neighbours"][name]["up"]:
                return f"{other} does not see {name}"
            if not status["neighbours"][other]["up"]:
                return f"{name} does not see {other}"
        return ""

    def faces(self) -> dict[str, Face]:
        """Connections to all, for one thread."""
        return {name: Face(self.lab, name) for name in self.names}

    def errors(self, faces: dict[str, Face], names: list[str]) -> dict[str, float]:
        """The error of each that answers, on rows that nobody has seen."""
        found = {name: faces[name].error(*TRIAL) for name in names}
        return {name: error for name, error in found.items() if error is not None}

    # -- the end -----------------------------------------------------------------------------
    def close(self) -> None:
        """End everything that is left."""
        for feeder in self.feeders.values():
            feeder._ending.set()
            feeder._hurry.set()
        self.sensor._ending.set()
        self.sensor._hurry.set()
        try:
            self._stack.close()
        finally:
            self.stop_broker()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
