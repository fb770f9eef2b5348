"""Clients that send rows with idempotency keys until each is acknowledged, and keep the account."""

from __future__ import annotations

import ssl
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import httpx
import numpy as np
from lab import Lab, body, samples

BATCH = 20  # rows
KNOWN = 3  # batches in a row that a node knows, before which it has lost none
TIMEOUT = 3.0  # seconds; an agent that hangs longer is asked again, with the same key


@lru_cache(maxsize=1)
def _any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Face:
    """The HTTP of one agent, for one thread; None where it does not answer."""

    def __init__(self, lab: Lab, name: str, timeout: float = TIMEOUT) -> None:
        self.client = httpx.Client(timeout=timeout, verify=_any_certificate(), **lab.face(name))

    def status(self) -> dict[str, Any] | None:
        """GET /status."""
        try:
            answer = self.client.get("/status")
            return dict(answer.json()) if answer.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return None

    def error(self, X: Any, y: Any) -> float | None:
        """Mean square error on rows that nobody has seen."""
        asked = {"columns": [f"x{i + 1}" for i in range(X.shape[1])], "data": X.tolist()}
        try:
            answer = self.client.post("/predict", json=asked)
            if answer.status_code != 200:
                return None
            return float(np.mean((np.array(answer.json()["predictions"]) - y) ** 2))
        except (httpx.HTTPError, ValueError):
            return None

    def close(self) -> None:
        """End its connections."""
        self.client.close()

    def __enter__(self) -> Face:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Account:
    """What one client knows. acknowledged: keys in order, of BATCH rows each; waits: seconds until
    each was; refused: other answers than 200, by status; silent: requests without an answer.
    """

    acknowledged: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    silent: int = 0
    again: int = 0  # batches that were sent once more after a journal had lost rows


class Feeder(threading.Thread):
    """One client: n rows a second, in batches; the next when the last was acknowledged."""

    def __init__(self, lab: Lab, name: str, seed: int, rate: float) -> None:
        super().__init__(daemon=True, name=f"feeder {name}")
        self.node, self.seed, self.rate = name, seed, rate
        self.account = Account()
        self._face = Face(lab, name)
        self._lost = threading.Event()  # the node has reported lost rows
        self._taken: list[int] = []  # batches in the order in which it took them
        self._ending, self._hurry = threading.Event(), threading.Event()
        self.progress = 0  # answers of any kind that acknowledge

    def rows(self, number: int) -> tuple[Any, Any]:
        """The rows of a batch, X: (BATCH, 2) and y."""
        return samples(BATCH, 1_000_003 * self.seed + number)

    def run(self) -> None:
        """Send until the end, and then what is still missing."""
        number, began = 0, time.monotonic()
        while not self._ending.is_set():
            self._send(number)
            number += 1
            self._send_lost_ones()
            pause = began + number * BATCH / self.rate - time.monotonic()
            if pause < -5.0:  # it was down: no use in catching up with all of it
                began -= pause
            self._ending.wait(max(0.0, pause))
        self._send_lost_ones()
        self._face.close()

    def lost(self) -> None:
        """The node goes on without rows that it had acknowledged: send the last again."""
        self._lost.set()

    def _send_lost_ones(self) -> None:
        """From the last that it took backwards, until it knows several. It may lose them again
        meanwhile: then all over.
        """
        while self._lost.is_set() and not self._hurry.is_set():
            self._lost.clear()
            known = 0
            for number in dict.fromkeys(reversed(self._taken)):
                if known == KNOWN or self._lost.is_set():
                    break
                taken = self._send(number, known=True)
                known = 0 if taken else known + 1
                self.account.again += taken

    def _send(self, number: int, known: bool = False) -> bool:
        """Until it is acknowledged; whether the node took it now, as far as that is known."""
        content, key = body(*self.rows(number)), f"{self.node}-{number}"
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        began, silent = time.monotonic(), False
        while not self._hurry.is_set():
            try:
                answer = self._face.client.post("/samples", content=content, headers=headers)
            except httpx.HTTPError:
                self.account.silent, silent = self.account.silent + 1, True
                time.sleep(0.1)
                continue
            if answer.status_code != 200:
                self.account.refused[f"{answer.status_code} {_reason(answer)}"] += 1
                time.sleep(0.1)
                continue
            self.progress += 1
            repeated = bool(answer.json()["repeated"])
            self.account.repeated += repeated
            if not known:
                self.account.acknowledged.append(key)
                self.account.waits.append(time.monotonic() - began)
            if silent or not repeated:
                self._taken.append(number)
            return silent or not repeated
        return False

    def finish(self, seconds: float) -> bool:
        """Let it send the last; whether it could."""
        self._ending.set()
        self.join(seconds)
        done = not self.is_alive()
        self._hurry.set()
        self.join(2 * TIMEOUT)
        return done


def _reason(answer: httpx.Response) -> str:
    """The beginning of its answer, without numbers, so that equal reasons are equal."""
    try:
        body = answer.json()
        text = str(body.get("error", body) if isinstance(body, dict) else body)
    except ValueError:
        text = answer.text
    return "".join(c for c in text if not c.isdigit())[:60]
