"""Live agents under steady traffic for minutes: does memory grow, do files?

    python -m benchmarks.soak --minutes 10
    python -m benchmarks.soak --minutes 5 --rate 2000 --nodes 5

Every agent gets batches of 50 rows at a fixed rate, with idempotency keys, a prediction now and
then, and inputs whose labels come later; memory and files are looked at every few seconds. The
slope is that of a straight line through the second half.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np

from benchmarks.live import new_network, resident, statuses, wait_until_up
from dokl.live.description import read

COLUMNS = ["x1", "x2", "x3", "x4", "x5"]


class Traffic(threading.Thread):
    """What one agent is sent."""

    def __init__(self, address: str, rate: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.address, self.rate, self.seed = address, rate, seed
        self.sent = self.errors = 0
        self.ending = threading.Event()

    def run(self) -> None:
        rng, began, number = np.random.default_rng(self.seed), time.monotonic(), 0
        with httpx.Client(base_url=f"http://{self.address}", timeout=60) as client:
            while not self.ending.is_set():
                self._batch(client, rng, number)
                number += 1
                self.ending.wait(max(0.0, began + self.sent / self.rate - time.monotonic()))

    def _batch(self, client: httpx.Client, rng: np.random.Generator, number: int) -> None:
        X = rng.normal(size=(50, 5)).round(6)
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
        table = {"columns": [*COLUMNS, "y"], "data": np.column_stack([X, y]).tolist()}
        self._post(client, "/samples", table, {"Idempotency-Key": f"{self.seed}-{number}"})
        self.sent += 50
        if number % 10 == 0:
            self._post(client, "/predict", {"columns": COLUMNS, "data": X.tolist()})
            ids = [f"{number}-{i}" for i in range(5)]
            inputs = [[name, *row] for name, row in zip(ids, X[:5].tolist(), strict=True)]
            self._post(client, "/samples", {"columns": ["id", *COLUMNS], "data": inputs})
            labels = [[name, value] for name, value in zip(ids, y[:5].tolist(), strict=True)]
            self._post(client, "/samples", {"columns": ["id", "y"], "data": labels})
            self.sent += 5

    def _post(self, client: httpx.Client, path: str, body: object, headers: object = None) -> None:
        kind = {"Content-Type": "application/json", **(headers or {})}  # type: ignore[dict-item]
        answer = client.post(path, content=json.dumps(body), headers=kind)
        self.errors += answer.status_code != 200


def watch(
    addresses: list[str], traffic: list[Traffic], minutes: float
) -> tuple[list[float], list[list[float]], list[float]]:
    """Seconds, MiB of each agent, and MB of journals in all, every five seconds."""
    pids = [each["pid"] for each in statuses(addresses)]
    began = time.monotonic()
    seconds: list[float] = []
    memory: list[list[float]] = []
    journals: list[float] = []
    while (now := time.monotonic() - began) < 60 * minutes:
        seconds.append(now)
        memory.append([resident(pid) for pid in pids])
        found = statuses(addresses)
        journals.append(sum(each["journal"]["bytes"] for each in found) / 1e6)
        if len(seconds) % 12 == 0:
            sent = sum(each.sent for each in traffic)
            print(f"  {now:5.0f} s: {np.mean(memory[-1]):.1f} MiB, journals {journals[-1]:.1f} MB, "
                  f"{sent:,} samples", flush=True)  # fmt: skip
        time.sleep(5)
    return seconds, memory, journals


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--nodes", type=int, default=5)
    ask.add_argument("--D", type=int, default=2500)
    ask.add_argument("--rate", type=float, default=1000.0, help="samples a second for each agent")
    ask.add_argument("--minutes", type=float, default=10.0)
    args = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = new_network(Path(folder), args.nodes, args.D, "process", "push")
        network = read(path)
        addresses = [str(network.node(name).http) for name in network.names]
        print(f"{args.nodes} agents, D = {args.D}, {args.rate:g} samples/s each, "
              f"{args.minutes:g} minutes; load {os.getloadavg()[0]:.1f}")  # fmt: skip
        up = subprocess.Popen([sys.executable, "-m", "dokl", "up", str(path), "--quiet"])
        traffic = [Traffic(address, args.rate, seed) for seed, address in enumerate(addresses)]
        try:
            wait_until_up(addresses)
            for each in traffic:
                each.start()
            seconds, memory, journals = watch(addresses, traffic, args.minutes)
            for each in traffic:
                each.ending.set()
            for each in traffic:
                each.join(60)
            report(seconds, memory, journals, traffic, statuses(addresses))
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)


def report(
    seconds: list[float],
    memory: list[list[float]],
    journals: list[float],
    traffic: list[Traffic],
    found: list[dict[str, object]],
) -> None:
    half = len(seconds) // 2
    hours = np.array(seconds[half:]) / 3600
    slopes = [np.polyfit(hours, column, 1)[0] for column in np.array(memory[half:]).T]
    sent, stored = sum(each.sent for each in traffic), sum(int(str(s["samples"])) for s in found)
    growth = journals[-1] - journals[half]
    print(f"samples  {sent:,} sent, {stored:,} in the stores; other answers than 200:"
          f" {sum(each.errors for each in traffic)}")  # fmt: skip
    print(f"memory   {np.mean(memory[half]):.1f} MiB at half time, {np.mean(memory[-1]):.1f} at the"
          f" end; slope {np.mean(slopes):+.1f} MiB an hour (worst {max(slopes):+.1f})")  # fmt: skip
    print(f"journals {journals[-1]:.1f} MB in all at the end, {growth:+.2f} since half time")


if __name__ == "__main__":
    main()
