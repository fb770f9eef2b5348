"""Live agents on loopback: samples learned and acknowledged per second, and where the time goes.

20 agents, D = 2500, mutual TLS and access control, exchanging 10 times a second; one connection to
each sends batches of 50 rows (then single rows), the next as soon as the last is acknowledged.
Cores that other processes take are not available here: so what a row takes of a processor is given
beside what it takes on the clock, and what the sender takes itself.

    python -m benchmarks.live
    python -m benchmarks.live --nodes 20 --seconds 20 --durability full
    python -m benchmarks.live --nodes 8 --D 300 --method squares
    python -m benchmarks.live --nodes 12 --share rows --pause 0.6 --seconds 60
    python -m benchmarks.live --overload           single rows beside six senders of large batches
    python -m benchmarks.live --journal            what the store alone takes, marks and checksums
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dokl.live.description import Limits, host_port, read
from dokl.live.store import Store

CLOCK = os.sysconf("SC_CLK_TCK")


def new_network(
    folder: Path, nodes: int, D: int, durability: str, exchange: str, method: str = "gradient"
) -> Path:
    path = folder / "lab.toml"
    options = ["--graph", "random", "--nodes", str(nodes), "--exchange", exchange]
    if method == "rows":
        options += ["--share", "rows", "--columns", "x1,x2,x3,x4,x5", "--target", "y"]
    else:
        options += ["--inputs", "5", "--components", str(D), "--sigma", "3", "--method", method]
        options += ["--every-seconds", "0.1"]
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
    """One connection that sends the next batch when the last one is acknowledged, but not sooner
    than `pause` seconds after it.
    """

    def __init__(self, address: str, rows: int, seed: int, pause: float = 0.0) -> None:
        self._pause, self.due = pause, 0.0  # when to send; 0: an answer is awaited
        self.rows, self.acknowledged, self.busy, self.late = rows, 0, 0, 0
        self.waits: list[float] = []  # seconds until each was acknowledged
        self._sent = 0.0
        self._requests = requests(address, rows, seed)
        self._next, self._received = 0, b""
        self.socket = socket.create_connection(host_port(address))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> None:
        self._sent, self.due = time.monotonic(), 0.0
        self.socket.sendall(self._requests[self._next % len(self._requests)])
        self._next += 1

    def read(self) -> None:
        self._received += self.socket.recv(65536)
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._received = body[length:]
        if head.startswith(b"HTTP/1.1 200"):
            self.acknowledged += self.rows
            self.waits.append(time.monotonic() - self._sent)
        elif head.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503")):
            self.busy += head.startswith(b"HTTP/1.1 429")
            self.late += head.startswith(b"HTTP/1.1 503")
            after = head.lower().partition(b"retry-after:")[2].split(b"\r\n")[0]
            self.due = time.monotonic() + float(after)
            return
        else:
            raise SystemExit(f"unexpected answer: {head[:60]!r} {body[:300]!r}")
        if self._pause:
            self.due = self._sent + self._pause
        else:
            self.send()


def load(
    addresses: list[str], rows: int, seconds: float, pause: float = 0.0
) -> tuple[list[int], int, list[float]]:
    """Rows acknowledged by each agent in that time, how often one reported that it was busy, and
    how long each request took.
    """
    senders = [Sender(address, rows, seed, pause) for seed, address in enumerate(addresses)]
    began = time.monotonic()
    for i, sender in enumerate(senders):
        sender.due = began + pause * i / len(senders)  # sensors do not speak all at once
    run(senders, began + seconds)
    waits = [wait for sender in senders for wait in sender.waits]
    return [each.acknowledged for each in senders], sum(each.busy for each in senders), waits


def run(senders: list[Sender], limit: float) -> None:
    """Let them send until that time."""
    selector = selectors.DefaultSelector()
    for sender in senders:
        selector.register(sender.socket, selectors.EVENT_READ, sender)
    while (left := limit - time.monotonic()) > 0:
        due = [each.due for each in senders if each.due]
        wait = min([left, *(at - time.monotonic() for at in due)])
        for key, _ in selector.select(max(0.0, wait)):
            key.data.read()
        for each in senders:
            if each.due and time.monotonic() >= each.due:
                each.send()
    for sender in senders:
        sender.socket.close()


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
                answer = httpx.get(f"http://{address}/status", timeout=10)
                near = answer.json()["neighbours"] if answer.is_success else {"": {"up": False}}
                if all(each["up"] for each in near.values()):
                    break
            except httpx.TransportError:
                pass
            if time.monotonic() > limit:
                raise SystemExit(f"{address} does not answer, or misses neighbours")
            time.sleep(0.2)


def wait_until_answers(address: str, seconds: float = 180.0) -> None:
    limit = time.monotonic() + seconds
    while True:
        try:
            if httpx.get(f"http://{address}/readyz", timeout=10).status_code == 200:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > limit:
            raise SystemExit(f"{address} does not answer")
        time.sleep(0.2)


def measure(what: str, addresses: list[str], rows: int, seconds: float, pause: float = 0.0) -> None:
    before, mine = statuses(addresses), time.process_time()
    used = [processor_seconds(each["pid"]) for each in before]
    began = time.monotonic()
    acknowledged, busy, waits = load(addresses, rows, seconds, pause)
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
    middle, late = (1e3 * float(np.quantile(waits or [np.nan], q)) for q in (0.5, 0.99))
    print(f"{what}; load {os.getloadavg()[0]:.1f}")
    print(f"  in all        {total / took:8.0f} samples/s; a request takes {middle:.1f} ms,"
          f" 99 % at most {late:.1f} ms")  # fmt: skip
    print(f"  acknowledged  {np.mean(rate):8.0f} samples/s per agent", end="")
    print(f" (least {min(rate):.0f}, most {max(rate):.0f}); busy answers: {busy}")
    print(f"  learned       {learned / took / n:8.0f} samples/s per agent")
    print(f"  exchange      {combines / took / n:8.1f} combines/s per agent", end="")
    print(f", {sent / took / n / 1e3:.0f} kB/s sent")
    print(f"  processor     {sum(cpu) / took:8.2f} cores by agents", end="")
    print(f", {mine / took:.2f} by the sender; {per_request:.2f} ms of an agent per request")
    print(f"  of a row      {per_request / rows:8.3f} ms of an agent", end="")
    print(f", {1e3 * mine / max(total, 1):.3f} of the sender", end="")
    ways = sum(len(each["neighbours"]) for each in after)
    print(f", {sent / ways / max(total, 1):.0f} bytes over each direction of a link")


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--nodes", type=int, help="20, or 8 by squares")
    ask.add_argument("--D", type=int, help="2500, or 300 by squares")
    ask.add_argument("--seconds", type=float, default=20.0)
    ask.add_argument("--durability", default="process", choices=["process", "full"])
    ask.add_argument("--exchange", default="push", choices=["push", "pull", "off"])
    ask.add_argument("--idle", type=float, default=15.0, help="seconds to watch idle agents")
    ask.add_argument("--method", default="gradient", choices=["gradient", "squares"])
    ask.add_argument("--share", default="sums", choices=["sums", "rows"], help="rows: by squares")
    ask.add_argument("--pause", type=float, default=0.0,
                     help="seconds between rows to an agent; that alone is measured")  # fmt: skip
    ask.add_argument("--overload", action="store_true", help="one node that gets too much")
    ask.add_argument("--journal", action="store_true", help="the store alone, and nothing else")
    args = ask.parse_args()
    args.method = "rows" if args.share == "rows" else args.method
    usual = (20, 2500) if args.method == "gradient" else (8, 300)
    args.nodes, args.D = args.nodes or usual[0], args.D or usual[1]
    if args.journal:
        journal()
        return
    if args.overload:
        overload(args.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        given = args.nodes, args.D, args.durability, args.exchange, args.method
        path = new_network(Path(folder), *given)
        network = read(path)
        addresses = [str(network.node(name).http) for name in network.names]
        print(f"{args.nodes} agents, D = {args.D}, {args.method}, {len(network.links)} links, "
              f"mTLS, {args.exchange}, durability {args.durability}; "
              f"load of this machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")  # fmt: skip
        began = time.monotonic()
        up = subprocess.Popen([sys.executable, "-m", "dokl", "up", str(path), "--quiet"])
        try:
            wait_until_up(addresses)
            print(f"all up and linked after {time.monotonic() - began:.1f} s")
            if args.pause:
                what = f"single rows, one in {args.pause:g} s to each"
                measure(what, addresses, 1, args.seconds, args.pause)
            else:
                load(addresses, 50, 3.0)  # warm
                measure("batches of 50", addresses, 50, args.seconds)
                measure("single rows", addresses, 1, args.seconds)
                measure("single rows, ten a second to each", addresses, 1, args.seconds, 0.1)
            if args.idle:
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


# -- too much -------------------------------------------------------------------------------------
def overload(seconds: float, senders: int = 6, rows: int = 1500, D: int = 500) -> None:
    """One squares node: large batches by several senders, and how long single rows take then."""
    with tempfile.TemporaryDirectory() as folder:
        path = new_network(Path(folder), 2, D, "process", "push", "squares")
        network = read(path)
        name = network.names[0]
        address = str(network.node(name).http)
        command = [sys.executable, "-m", "dokl", "agent", str(path), "--name", name]
        with Path(folder, "log").open("wb") as log:
            agent = subprocess.Popen(command, stderr=log)
        try:
            wait_until_answers(address)
            many = [Sender(address, rows, seed) for seed in range(senders)]
            one = Sender(address, 1, 99, pause=0.05)
            asks = Asker(address)
            for sender in (*many, one):
                sender.due = time.monotonic()
            asks.start()
            run([*many, one], time.monotonic() + seconds)
            asks.stop()
        finally:
            agent.send_signal(signal.SIGINT)
            agent.wait(60)
    waits = [wait for sender in many for wait in sender.waits]
    print(
        f"{senders} senders of {rows} rows, D = {D}, {seconds:g} s; load {os.getloadavg()[0]:.1f}"
    )
    print(f"  batches       {_spread(waits)}; {sum(s.acknowledged for s in many) / seconds:.0f}"
          f" rows/s, {sum(s.busy for s in many)} times 429,"
          f" {sum(s.late for s in many)} times 503")  # fmt: skip
    print(f"  single rows   {_spread(one.waits)}; {one.busy} times 429, {one.late} times 503")
    print(f"  /healthz      {_spread(asks.waits['/healthz'])}")
    print(f"  /status       {_spread(asks.waits['/status'])}")


class Asker(threading.Thread):
    """Asks how an agent is, ten times a second."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._url, self._over = f"http://{address}", threading.Event()
        self.waits: dict[str, list[float]] = {"/healthz": [], "/status": []}

    def run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._over.wait(0.1):
                for path, waits in self.waits.items():
                    began = time.monotonic()
                    client.get(self._url + path)
                    waits.append(time.monotonic() - began)

    def stop(self) -> None:
        self._over.set()
        self.join(60)


def _spread(waits: list[float]) -> str:
    middle, late = (1e3 * float(np.quantile(waits or [np.nan], q)) for q in (0.5, 0.99))
    longest = 1e3 * max(waits, default=np.nan)
    return f"{len(waits):5} took {middle:.1f} ms, 99 % at most {late:.1f} ms, one {longest:.1f} ms"


# -- the journal ------------------------------------------------------------------------------
def journal(commits: int = 2000) -> None:
    """What a commit of the store takes, beside the same rows by SQLite alone."""
    print(f"the store, {commits} commits of each; load {os.getloadavg()[0]:.1f}")
    for rows in (1, 50):
        X, Y = np.random.default_rng(0).normal(size=(rows, 5)), np.ones((rows, 1))
        for mode in ("process", "full"):
            mine = _timed(_store(mode), X, Y, commits if mode == "process" else commits // 10)
            bare = _timed(_bare(mode), X, Y, commits if mode == "process" else commits // 10)
            print(f"  {rows:3} rows, {mode:8} {1e3 * mine[0]:.3f} ms of a processor, "
                  f"{1e3 * mine[1]:.3f} ms in all; SQLite alone {1e3 * bare[0]:.3f}, "
                  f"{1e3 * bare[1]:.3f}")  # fmt: skip


def _timed(writer: Any, X: Any, Y: Any, commits: int) -> tuple[float, float]:
    """Seconds of a processor and on the clock, for each commit."""
    with tempfile.TemporaryDirectory() as folder:
        write, close = writer(Path(folder))
        write(0, X, Y)
        cpu, clock = time.process_time(), time.perf_counter()
        for i in range(1, commits + 1):
            write(i, X, Y)
        took = (time.process_time() - cpu) / commits, (time.perf_counter() - clock) / commits
        close()
    return took


def _store(mode: str) -> Any:
    """Ours: numbered commits, checksums, and the mark beside the file."""

    def opened(folder: Path) -> Any:
        about = {"name": "a", "fingerprint": "0" * 16, "m": 1, "D": 300, "d": 5}
        store = Store.open(folder / "a.db", about, mode, Limits(), time.time_ns())

        def write(i: int, X: Any, Y: Any) -> None:
            with store.transaction() as transaction:
                transaction.samples(X, Y)
                transaction.key(f"key-{i}", "0" * 64, "{}")

        return write, store.close

    return opened


def _bare(mode: str) -> Any:
    """The same rows and keys, and nothing that would notice a loss."""

    def opened(folder: Path) -> Any:
        db = sqlite3.connect(folder / "bare.db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={'FULL' if mode == 'full' else 'NORMAL'}")
        db.execute("CREATE TABLE samples (first INTEGER PRIMARY KEY, n INTEGER, rows BLOB)")
        db.execute("CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT UNIQUE, answer TEXT)")

        def write(i: int, X: Any, Y: Any) -> None:
            db.execute("BEGIN IMMEDIATE")
            rows = X.tobytes() + Y.tobytes()
            db.execute("INSERT INTO samples VALUES (?, ?, ?)", (i * len(X), len(X), rows))
            db.execute("INSERT INTO keys VALUES (?, ?, ?)", (i, f"key-{i}", "{}"))
            db.execute("COMMIT")

        return write, db.close

    return opened


if __name__ == "__main__":
    main()
