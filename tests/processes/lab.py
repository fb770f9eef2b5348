"""A live network for tests: a description on free ports, agents as processes, and their HTTP."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from peer import free_addresses

from dokl.live.certificates import Authority, node_files
from dokl.live.certificates.files import new_folder
from dokl.live.description import (
    About,
    AgreedInputs,
    Durability,
    ExchangePolicy,
    Limits,
    Model,
    Network,
    Node,
    host_port,
    is_loopback,
    read,
)
from dokl.live.description.text import text

PATIENCE = 30.0  # seconds; a loaded machine is slow
MODEL = Model(sigma=1.0, D=100, seed=3, schedule="normalised", mu=0.5)


def free_ports(n: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    return [host_port(address)[1] for address in free_addresses(n)]


def ring(*names: str) -> list[tuple[str, str]]:
    """Links in a circle; of two nodes, one link."""
    pairs = list(zip(names, (*names[1:], names[0]), strict=True))
    return pairs[:1] if len(names) == 2 else pairs


def samples(n: int, seed: int, d: int = 2, noise: float = 0.05) -> tuple[Any, Any]:
    """X (n, d) and y = sin(2 x1) x2 + noise: (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + noise * rng.normal(size=n)


def body(X: Any, y: Any) -> bytes:
    """Rows as JSON: columns x1 ... xd and y."""
    columns = [*(f"x{i + 1}" for i in range(X.shape[1])), "y"]
    return json.dumps({"columns": columns, "data": np.column_stack([X, y]).tolist()}).encode()


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """What the condition returns once it is true; an AssertionError if that takes too long."""
    limit = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > limit:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        time.sleep(0.05)


class Lab:
    """A description and its agents; use it as a context manager, so that none is left over."""

    def __init__(
        self,
        folder: Path,
        links: Iterable[tuple[str, str]],
        *,
        secure: bool = True,
        model: Model = MODEL,
        exchange: ExchangePolicy | None = None,
        durability: Durability | None = None,
        limits: Limits | None = None,
        inputs: AgreedInputs | None = None,
        routes: dict[str, str] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.folder, self.path = folder, folder / "lab.toml"
        pairs = tuple(links)
        every = list(names) or list(dict.fromkeys(end for pair in pairs for end in pair))
        ports = free_ports(2 * len(every))
        nodes = {
            name: Node(f"127.0.0.1:{ports[2 * i]}", http=f"127.0.0.1:{ports[2 * i + 1]}")
            for i, name in enumerate(every)
        }
        security = "mtls" if secure else "insecure-loopback"
        self.write(
            Network(
                About("lab", pairs, security, "lab.certs"),
                model,
                inputs or AgreedInputs.plain(2),
                exchange or ExchangePolicy(),
                durability or Durability(),
                limits or Limits(),
                nodes,
                routes or {},
                self.path,
            )
        )
        if secure:
            authority = Authority.new("lab")
            content = authority.files()
            for name in nodes:
                content |= node_files(self.network, name, authority, 30)
            with new_folder(self.network.folder, content):
                pass
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.clients: dict[str, httpx.Client] = {}

    def write(self, network: Network) -> None:
        """Write the description, and read it back."""
        network = replace(network, inputs=replace(network.inputs, fingerprint=None))
        self.path.write_text(text(network))
        self.network = read(self.path)

    # -- processes ---------------------------------------------------------------------------
    def start(self, *names: str, options: Sequence[str] = (), env: dict[str, str] | None = None,
              wait: bool = True, files: int | None = None) -> None:  # fmt: skip
        """Start agents, all without names, and wait until they answer.

        files: how many each may have open.
        """
        bound = files and partial(resource.setrlimit, resource.RLIMIT_NOFILE, (files, files))
        for name in names or self.network.names:
            command = [sys.executable, "-m", "dokl", "agent", str(self.path), "--name", name]
            with self.log(name).open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [*command, *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **(env or {})},
                    start_new_session=True,
                    preexec_fn=bound or None,
                )
        if wait:
            for name in names or self.network.names:
                self.answers(name)

    def log(self, name: str) -> Path:
        """The file of an agent's log lines."""
        return self.folder / f"{name}.log"

    def lines(self, name: str, event: str | None = None) -> list[dict[str, Any]]:
        """An agent's log lines, of one event or of all."""
        found = []
        for line in self.log(name).read_text().splitlines():
            if line.startswith("{"):
                found.append(json.loads(line))
        return [line for line in found if event is None or line["event"] == event]

    def answers(self, name: str) -> None:
        """Wait until an agent answers."""

        def ready() -> bool:
            process = self.processes[name]
            if process.poll() is not None:
                raise AssertionError(f"{name} ended with {process.returncode}: {self.tail(name)}")
            try:
                return self.get(name, "/readyz").status_code == 200
            except httpx.TransportError:
                return False

        wait_for(ready, f"{name} answers")

    def tail(self, name: str) -> str:
        """The end of an agent's log, for messages."""
        return self.log(name).read_text()[-2000:]

    def signal(self, name: str, number: int) -> None:
        """Send a signal to an agent."""
        os.kill(self.processes[name].pid, number)

    def kill(self, name: str) -> None:
        """kill -9."""
        self.signal(name, signal.SIGKILL)
        self.processes[name].wait(PATIENCE)

    def stop(self, name: str) -> int:
        """Ask an agent to end; its exit code."""
        self.signal(name, signal.SIGTERM)
        return self.processes[name].wait(PATIENCE)

    # -- HTTP --------------------------------------------------------------------------------
    def client(self, name: str) -> httpx.Client:
        """A connection that is kept."""
        if name not in self.clients:
            self.clients[name] = httpx.Client(timeout=PATIENCE, verify=False, **self.face(name))
        return self.clients[name]

    def face(self, name: str) -> dict[str, Any]:
        """Where an agent's HTTP is, and what it wants to hear: one for others speaks https."""
        address = str(self.network.node(name).http)
        if is_loopback(address):
            return {"base_url": f"http://{address}"}
        headers = {"authorization": f"Bearer {self.network.token(name)}"}
        return {"base_url": f"https://127.0.0.1:{host_port(address)[1]}", "headers": headers}

    def get(self, name: str, path: str) -> httpx.Response:
        """GET."""
        return self.client(name).get(path)

    def status(self, name: str) -> dict[str, Any]:
        """GET /status."""
        found: dict[str, Any] = self.get(name, "/status").json()
        return found

    def sharing(self, name: str) -> dict[str, Any]:
        """What a node that shares sums or rows reports of that."""
        found: dict[str, Any] = self.status(name)["sharing"]
        return found

    def metric(self, name: str, metric: str, **labels: str) -> float:
        """One number of /metrics; 0 where it is absent."""
        from prometheus_client.parser import text_string_to_metric_families

        for family in text_string_to_metric_families(self.get(name, "/metrics").text):
            for sample in family.samples:
                if sample.name == metric and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return 0.0

    def post(self, name: str, X: Any, y: Any, key: str | None = None) -> dict[str, Any]:
        """POST /samples; the answer of one that was accepted."""
        answer = self.post_raw(name, body(X, y), key)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def post_raw(self, name: str, content: bytes, key: str | None = None) -> httpx.Response:
        """POST /samples, whatever the answer."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.client(name).post("/samples", content=content, headers=headers)

    def predict(self, name: str, X: Any) -> Any:
        """POST /predict: (n,)."""
        columns = [f"x{i + 1}" for i in range(X.shape[1])]
        answer = self.client(name).post("/predict", json={"columns": columns, "data": X.tolist()})
        assert answer.status_code == 200, answer.text
        return np.array(answer.json()["predictions"])

    def error(self, name: str, seed: int = 99) -> float:
        """Mean squared error on rows that nobody has seen."""
        X, y = samples(500, seed, noise=0.0)
        return float(np.mean((self.predict(name, X) - y) ** 2))

    def neighbours_up(self, name: str, *peers: str) -> None:
        """Wait until an agent sees its neighbours."""

        def up() -> bool:
            seen = self.status(name)["neighbours"]
            return all(seen[peer]["up"] for peer in peers or seen)

        wait_for(up, f"{name} sees {peers or 'all its neighbours'}")

    def has_learned(self, name: str) -> None:
        """Wait until an agent has learned all that it acknowledged: a newcomer begins late."""

        def all_learned() -> bool:
            status = self.status(name)
            return bool(status["learned"] == status["samples"])

        wait_for(all_learned, f"{name} has learned all its samples")

    # -- the end -----------------------------------------------------------------------------
    def close(self) -> None:
        """End whatever is left, also what hangs."""
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
        for client in self.clients.values():
            client.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
