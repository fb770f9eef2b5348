"""A sensor at the broker: what the node has not answered is published again."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import aiomqtt
from brokers import PASSWORD, USER
from lab import samples

from dokl.live.sources.mqtt import message_key

SURE = 3
AGAIN = 2.0  # seconds after which a reading that was not answered is published once more
SECRETS = {"DOKL_MQTT_USERNAME": USER, "DOKL_MQTT_PASSWORD": PASSWORD}


class Sensor(threading.Thread):
    """N readings a second, each on a topic of its own by which its answer names it.

    A node answers after its journal has a reading, once: `confirmed` are those that must be there.
    Where an answer was lost, the same reading again gets none, since it is known. At the end, when
    nothing breaks any more, such readings are published SURE times; this broker may still lose them
    on their way, so whether they were delivered is asked of the journal.
    """

    def __init__(self, name: str, port: int, seed: int, rate: float) -> None:
        super().__init__(daemon=True, name=f"sensor {name}")
        self.node, self.port, self.seed, self.rate = name, port, seed, rate
        self.confirmed: dict[int, None] = {}  # in order
        self.published: dict[int, float] = {}  # readings without an answer, and when they went out
        self.sent = self.made = self.answers = 0
        self._lost = 0
        self._last: Counter[int] = Counter()  # how often each was published at the end
        self._ending, self._hurry = threading.Event(), threading.Event()

    def lost(self, rows: int) -> None:
        """The node goes on without n rows: the last ones are unconfirmed again."""
        self._lost += rows

    def reading(self, number: int) -> bytes:
        """Reading number so and so."""
        X, y = samples(1, 7_000_003 * (self.seed + 1) + number)
        x1, x2 = X[0].tolist()
        return json.dumps({"x1": x1, "x2": x2, "y": float(y[0])}).encode()

    def run(self) -> None:
        """Until all is confirmed after the end."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        while not self._done():
            with suppress(aiomqtt.MqttError, OSError, TimeoutError):
                who = {"username": USER, "password": PASSWORD, "identifier": "a-sensor"}
                async with aiomqtt.Client("127.0.0.1", self.port, timeout=3, **who) as client:
                    await client.subscribe(f"predicted/{self.node}", qos=1)
                    listening = asyncio.ensure_future(self._listen(client))
                    try:
                        await self._publish(client, listening)
                    finally:
                        listening.cancel()
                        with suppress(asyncio.CancelledError, aiomqtt.MqttError):
                            await listening
            await asyncio.sleep(0.2)

    def _done(self) -> bool:
        if self._hurry.is_set():
            return True
        open_ones = any(self._last[number] < SURE for number in self.published)
        return self._ending.is_set() and not open_ones and not self._lost

    def keys(self, numbers: Iterable[int]) -> set[str]:
        """The keys under which the node's journal knows readings."""
        return {message_key(self._topic(n), self.reading(n)) for n in numbers}

    def _topic(self, number: int) -> str:
        return f"stations/{self.node}/{number}"

    async def _listen(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            number = int(json.loads(bytes(message.payload))["from"].rpartition("/")[2])
            self.answers += 1
            self.published.pop(number, None)
            self.confirmed[number] = None

    async def _publish(self, client: aiomqtt.Client, listening: asyncio.Future[Any]) -> None:
        began, first = time.monotonic(), self.made
        while not self._done() and not listening.done():
            self._unconfirm()
            now = time.monotonic()
            if not self._ending.is_set() and self.made - first < (now - began) * self.rate:
                await self._send(client, self.made, listening)
                self.made += 1
                continue
            late = [n for n, at in self.published.items() if now > at + AGAIN][:50]
            for number in late:
                await self._send(client, number, listening)
                self._last[number] += self._ending.is_set()
            await asyncio.sleep(0.05)

    async def _send(
        self, client: aiomqtt.Client, number: int, listening: asyncio.Future[Any]
    ) -> None:
        """Until the broker has it, or the connection is lost: aiomqtt itself would still wait."""
        self.published[number] = time.monotonic()
        self.sent += 1
        work = client.publish(self._topic(number), self.reading(number), qos=1)
        sending = asyncio.ensure_future(work)
        await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            sending.cancel()
            return
        await sending

    def _unconfirm(self) -> None:
        lost, self._lost = self._lost, 0
        for number in list(self.confirmed)[-lost - 50 :] if lost else ():
            del self.confirmed[number]
            self.published[number] = 0.0

    def finish(self, seconds: float) -> bool:
        """Let it publish what is missing; whether all is confirmed."""
        self._ending.set()
        self.join(seconds)
        done = not self.is_alive()
        self._hurry.set()
        self.join(10)
        return done
