"""Doing what the schedule says, each fault in a thread of its own, and watching for recovery."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from flooder import flood

from benchmarks.chaos.arena import Arena
from benchmarks.chaos.attacks import attack
from benchmarks.chaos.feeding import Face
from benchmarks.chaos.schedule import Fault

RECOVERY = 60.0  # seconds that are waited for it
LONG = 5.0  # seconds after which the awaited event is reported
PROCESS = ("kill", "hang", "journal")  # one at a time at each node
COUNT = {"close": 600, "idle": 1100, "hello": 300, "fail": 300, "head": 300, "body": 300}


@dataclass
class Outcome:
    """What came of a fault; recovered: seconds after its end, None if it did not."""

    fault: Fault
    began: float
    recovered: float | None
    note: str = ""


class Trouble:
    """Faults under way, and what came of them."""

    def __init__(self, arena: Arena, began: float, say: Callable[[str], None]) -> None:
        self.arena, self.began, self.say = arena, began, say
        self.outcomes: list[Outcome] = []
        self.wrong: list[str] = []  # what should not have happened at all
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._threads: list[threading.Thread] = []
        self.over = threading.Event()

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def run(self, faults: list[Fault]) -> None:
        """Begin each when it is its time; returns when all have come to an end."""
        for fault in faults:
            if self.over.wait(max(0.0, fault.at - self.now())):
                break
            thread = threading.Thread(target=self._one, args=(fault,), daemon=True)
            thread.start()
            self._threads.append(thread)
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        """End all that is under way."""
        self.over.set()
        for thread in self._threads:
            thread.join(10)

    @property
    def under_way(self) -> int:
        """How many faults have not come to their end."""
        return sum(thread.is_alive() for thread in self._threads)

    # -- one fault ---------------------------------------------------------------------------
    def _one(self, fault: Fault) -> None:
        lock = "process " + fault.node if fault.kind in PROCESS else fault.kind + fault.node
        lock = fault.kind if fault.kind in ("lie", "broker") else lock
        faces = self.arena.faces()
        try:
            with self._locks[lock]:
                if self.over.is_set():
                    return
                began, before = self.now(), self._errors(fault, faces)
                self.say(f"{fault}")
                note = self._do(fault)
                recovered, waited = self._recovery(fault, faces, before)
                note = f"{note} {waited}".strip()
            self.outcomes.append(Outcome(fault, began, recovered, note))
            took = "NOT recovered" if recovered is None else f"recovered in {recovered:.1f} s"
            if not self.over.is_set():
                self.say(f"{self.now():7.1f} s  {fault.kind:8} {fault.node:6} {took} {note}")
        except Exception as error:
            if not self.over.is_set():
                self.wrong.append(f"{fault.kind} of {fault.node} at {fault.at:.1f} s: {error!r}")
                self.say(f"{self.now():7.1f} s  {self.wrong[-1]}")
        finally:
            for face in faces.values():
                face.close()

    def _do(self, fault: Fault) -> str:
        alone = fault.kind in ("lie", "broker")
        if not alone:
            self.arena.harming(fault.node, True)
        try:
            return str(getattr(self, f"_{fault.kind}")(fault) or "")
        finally:
            if not alone:
                self.arena.harming(fault.node, False)

    def _errors(self, fault: Fault, faces: dict[str, Face]) -> float:
        """The worst error before a lie."""
        if fault.kind != "lie":
            return 0.0
        return max(self.arena.errors(faces, self.arena.calm()).values(), default=0.0)

    def _recovery(
        self, fault: Fault, faces: dict[str, Face], before: float
    ) -> tuple[float | None, str]:
        """Seconds from the end of the fault, and of any other at that node, until all is well, and
        what it waited for in the end if that was long.
        """
        wrong = ""
        ended, feeder = time.monotonic(), self.arena.feeders[fault.node]
        progress, answers = feeder.progress, self.arena.sensor.answers
        limit = ended + RECOVERY
        while time.monotonic() < limit and not self.over.is_set():
            at = time.monotonic()
            if fault.kind == "lie":
                errors = self.arena.errors(faces, self.arena.calm(1.0))
                if errors and max(errors.values()) < 1.5 * before + 0.005:
                    return at - ended, ""
            elif fault.kind == "broker":
                if self.arena.sensor.answers > answers:
                    return at - ended, ""
            else:
                calm = self.arena.calm_since(fault.node)
                if calm is None:
                    limit = at + RECOVERY
                elif feeder.progress > progress:
                    before_this, wrong = wrong, self.arena.unwell(fault.node, faces)
                    if not wrong:
                        took = at - max(ended, calm)
                        return took, f"({before_this})" if took > LONG and before_this else ""
            time.sleep(0.1)
        return None, f"({wrong})" if wrong else ""

    # -- the kinds ---------------------------------------------------------------------------
    def _kill(self, fault: Fault) -> None:
        self.arena.lab.kill(fault.node)
        self.over.wait(fault.lasts)
        self.arena.start(fault.node, wait=False)

    def _hang(self, fault: Fault) -> None:
        self.arena.lab.signal(fault.node, signal.SIGSTOP)
        self.over.wait(fault.lasts)
        self.arena.lab.signal(fault.node, signal.SIGCONT)

    def _part(self, fault: Fault) -> None:
        way, _, every = fault.how.partition(" ")
        links = [link for link in sorted(map(sorted, self.arena.proxies)) if fault.node in link]
        links = links if every else [random.Random(fault.seed).choice(links)]
        proxies = [self.arena.proxies[frozenset(link)] for link in links]
        for proxy in proxies:
            getattr(proxy, way)()
        self.over.wait(fault.lasts)
        for proxy in proxies:
            proxy.heal()

    def _flood(self, fault: Fault) -> None:
        with flood(self.arena.network.node(fault.node).address, COUNT[fault.how], fault.how):
            self.over.wait(fault.lasts)

    def _face(self, fault: Fault) -> None:
        address = str(self.arena.network.node(fault.node).http)
        with flood(address, COUNT[fault.how], fault.how):
            self.over.wait(fault.lasts)

    def _lie(self, fault: Fault) -> str:
        sent = attack(self.arena.network, fault.how, fault.lasts, fault.seed, self.over.is_set)
        return f"({sent} lies)"

    def _broker(self, fault: Fault) -> None:
        self.arena.stop_broker()
        self.over.wait(fault.lasts)
        self.arena.start_broker()

    def _journal(self, fault: Fault) -> str:
        """Damage the log of a killed agent; refused, it goes on without, and is sent it again."""
        lab, name = self.arena.lab, fault.node
        lab.kill(name)
        damaged = damage(self.arena, fault)
        self.over.wait(fault.lasts)
        size = lab.log(name).stat().st_size
        self.arena.start(name, wait=False)
        while not self.over.is_set():
            if lab.processes[name].poll() is not None:
                break
            with Face(lab, name) as face:
                if face.status() is not None:
                    return f"({damaged}: harmless)"
            time.sleep(0.05)
        last = lab.log(name).read_bytes()[size:].decode().strip().splitlines()[-1:]
        if not last or "accept-loss" not in last[0]:
            self.wrong.append(f"{name} did not start after {damaged}: {last}")
        words = ["agent", "accept-loss", str(lab.path), "--name", name, "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "dokl", *words], capture_output=True, text=True, check=True
        )
        rows = int(json.loads(done.stdout)["rows"])
        self.arena.start(name, wait=False)
        self.arena.feeders[name].lost()
        if name == self.arena.sensing:
            self.arena.sensor.lost(rows)
        return f"({damaged}: refused, {rows:,} rows sent again)"


def damage(arena: Arena, fault: Fault) -> str:
    """Flip a bit of the write-ahead log, or cut it short; what was done, in words."""
    chance = random.Random(fault.seed)
    path = arena.folder / "lab.state" / f"{fault.node}.db-wal"
    data = bytearray(path.read_bytes()) if path.exists() else bytearray()
    if not data:
        return "no log to damage"
    if fault.how == "flip":
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        return f"bit {bit:,} of {8 * len(data):,}"
    keep = chance.randrange(len(data))
    path.write_bytes(data[:keep])
    return f"cut at {keep:,} of {len(data):,} bytes"
