"""Live agents on loopback: samples learned and acknowledged per second, and where the time goes.

20 agents, D = 2500, mutual TLS and access control, exchanging 10 times a second; one connection to
each sends batches of 50 rows (then single rows), the next as soon as the last is acknowledged.

    python -m benchmarks.live
    python -m benchmarks.live --nodes 20 --seconds 20 --durability full
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dokl.agents.description import host_port, read

CLOCK = os.sysconf("SC_CLK_TCK")


def new_network(folder: Path, nodes: int, D: int, durability: str, exchange: str) -> Path:
    path = folder / "lab.toml"
    options = ["--graph", "random", "--nodes", str(nodes), "--inputs", "5", "--components", str(D)]
    options += ["--sigma", "3", "--exchange", exchange, "--every-seconds", "0.1"]
    command = [sys.executable, "-m", "dokl", "network", "new", str(path), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    text = path.read_text().replace('mode = "process"', f'mode = "{durability}"')
    path.write_text(text)
    return path


def requests(host: str, rows: int, seed: int, how_many: int = 20) -> list[bytes]:
    """POST requests, ready to be written to a socket."""
    made = []
    rng = np.random.default_rng(seed)
    for _ in range(how_many):
        X = rng.normal(size=(rows, 5))
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
        table = np.column_stack([X, y]).round(6).tolist()
        columns = ["x1", "x2", "x3", "x4", "x5", "y"]
        body = json.dumps({"columns": columns, "data": table}).encode()
        head = f"POST /samples HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return made


class Sender:
    """One connection that sends the next batch when the last one is acknowledged."""

    def __init__(self, address: str, rows: int, seed: int) -> None:
        self.rows, self.acknowledged, self.busy = rows, 0, 0
        self._requests = requests(address, rows, seed)
        self._next, self._heard = 0, b""
        self.socket = socket.create_connection(host_port(address))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> None:
        self.socket.sendall(self._requests[self._next % len(self._requests)])
        self._next += 1

    def hear(self) -> None:
        self._heard += self.socket.recv(65536)
        head, end, body = self._heard.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._heard = body[length:]
        if head.startswith(b"HTTP/1.1 200"):
            self.acknowledged += self.rows
        elif head.startswith(b"HTTP/1.1 429"):
            self.busy += 1
        else:
            raise SystemExit(f"unexpected answer: {head[:60]!r} {body[:300]!r}")
        self.send()


def load(addresses: list[str], rows: int, seconds: float) -> tuple[list[int], int]:
    """Rows acknowledged by each agent in that time, and how often one said that it was busy."""
    senders = [Sender(address, rows, seed) for seed, address in enumerate(addresses)]
    selector = selectors.DefaultSelector()
    for sender in senders:
        selector.register(sender.socket, selectors.EVENT_READ, sender)
        sender.send()
    limit = time.monotonic() + seconds
    while (left := limit - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            key.data.hear()
    for sender in senders:
        sender.socket.close()
    return [sender.acknowledged for sender in senders], sum(sender.busy for sender in senders)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK


def resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


def statuses(addresses: list[str]) -> list[dict[str, Any]]:
    return [httpx.get(f"http://{address}/status", timeout=60).json() for address in addresses]


def wait_until_up(addresses: list[str], seconds: float = 180.0) -> None:
    limit = time.monotonic() + seconds
    for address in addresses:
        while True:
            try:
                found = httpx.get(f"http://{address}/status", timeout=10).json()
                if all(each["up"] for each in found["neighbours"].values()):
                    break
            except httpx.TransportError:
                pass
            if time.monotonic() > limit:
                raise SystemExit(f"{address} does not answer, or misses neighbours")
            time.sleep(0.2)


def measure(what: str, addresses: list[str], rows: int, seconds: float) -> None:
    before, mine = statuses(addresses), time.process_time()
    used = [processor_seconds(each["pid"]) for each in before]
    began = time.monotonic()
    acknowledged, busy = load(addresses, rows, seconds)
    took, mine = time.monotonic() - began, time.process_time() - mine
    after = statuses(addresses)
    cpu = [processor_seconds(each["pid"]) - u for each, u in zip(after, used, strict=True)]
    learned = sum(b["learned"] - a["learned"] for a, b in zip(before, after, strict=True))
    combines = sum(b["exchange"]["combines"] - a["exchange"]["combines"]
                   for a, b in zip(before, after, strict=True))  # fmt: skip
    sent = sum(b["bytes_out"] - a["bytes_out"] for a, b in zip(before, after, strict=True))
    n, total = len(addresses), sum(acknowledged)
    rate = [each / took for each in acknowledged]
    per_request = 1e3 * sum(cpu) / max(total / rows, 1)
    print(what)
    print(f"  acknowledged  {np.mean(rate):8.0f} samples/s per agent", end="")
    print(f" (least {min(rate):.0f}, most {max(rate):.0f}); busy answers: {busy}")
    print(f"  learned       {learned / took / n:8.0f} samples/s per agent")
    print(f"  exchange      {combines / took / n:8.1f} combines/s per agent", end="")
    print(f", {sent / took / n / 1e3:.0f} kB/s sent")
    print(f"  processor     {sum(cpu) / took:8.2f} cores by agents", end="")
    print(f", {mine / took:.2f} by the sender; {per_request:.2f} ms of an agent per request")


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--nodes", type=int, default=20)
    ask.add_argument("--D", type=int, default=2500)
    ask.add_argument("--seconds", type=float, default=20.0)
    ask.add_argument("--durability", default="process", choices=["process", "full"])
    ask.add_argument("--exchange", default="push", choices=["push", "pull", "off"])
    ask.add_argument("--idle", type=float, default=15.0, help="seconds to watch idle agents")
    args = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = new_network(Path(folder), args.nodes, args.D, args.durability, args.exchange)
        network = read(path)
        addresses = [str(network.node(name).http) for name in network.names]
        print(f"{args.nodes} agents, D = {args.D}, {len(network.links)} links, mTLS, "
              f"{args.exchange}, durability {args.durability}; "
              f"load of this machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")  # fmt: skip
        began = time.monotonic()
        up = subprocess.Popen([sys.executable, "-m", "dokl", "up", str(path), "--quiet"])
        try:
            wait_until_up(addresses)
            print(f"all up and linked after {time.monotonic() - began:.1f} s")
            load(addresses, 50, 3.0)  # warm
            measure("batches of 50", addresses, 50, args.seconds)
            measure("single rows", addresses, 1, args.seconds)
            time.sleep(15.0)  # until they agree and fall silent
            idle(addresses, args.idle)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)


def idle(addresses: list[str], seconds: float) -> None:
    pids = [each["pid"] for each in statuses(addresses)]
    used = [processor_seconds(pid) for pid in pids]
    time.sleep(seconds)
    spent = [processor_seconds(pid) - u for pid, u in zip(pids, used, strict=True)]
    print("idle")
    print(f"  processor     {100 * sum(spent) / len(pids) / seconds:8.2f} % of a core per agent")
    print(f"  memory        {np.mean([resident(pid) for pid in pids]):8.0f} MiB resident per agent"
          " (shared pages counted in each)")  # fmt: skip


if __name__ == "__main__":
    main()
