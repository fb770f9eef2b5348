"""Samples from an MQTT broker, and predictions back to it.

We subscribe with QoS 1 under a lasting session: what is published at QoS 1 while we are away waits
for us, and every message stays the broker's until we acknowledge it, which is done when it is
settled (`desk`). Packet numbers of MQTT are used again and again, so a message is known again by
its topic and body. That holds for retained messages, too, which come with every subscription.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dokl.base.errors import MissingExtra
from dokl.live.description import SensorSource, host_port, is_loopback
from dokl.live.sources.access import BrokerAccess
from dokl.live.sources.dead_letters import SensorMessage
from dokl.live.sources.messages import BATCH, MessageIntake

try:
    import aiomqtt
except ImportError:
    raise MissingExtra("a source of kind mqtt", "mqtt") from None

if TYPE_CHECKING:
    from dokl.live.agent.runtime import Agent

LOOK = 0.25  # seconds between two looks whether we are to stop
# Seconds before dialling again: most brokers that go away are restarted, and back within seconds.
PAUSES = (0.2, 0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 5.0, 10.0)
KEEPALIVE = 30  # seconds after which a silent connection is dead
ANSWER = 10.0  # seconds for a broker to confirm what we say
HELD_BYTES = 64_000_000  # of messages that wait for the journal
REFUSED = 128  # what a broker says of a subscription that it does not allow
# We log its events; its own lines are no JSON, and may come in floods.
_quiet = logging.getLogger("dokl.mqtt")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def message_key(topic: str, body: bytes) -> str:
    """By which a message is known again.

    >>> message_key("a", b"1") == message_key("a", b"1") != message_key("a", b"2")
    True
    """
    return f"mqtt:{sha256(topic.encode() + bytes(1) + body).hexdigest()}"


@dataclass
class MqttListener:
    """One node at its broker; `run` it in a thread of its own until `stop` is set."""

    agent: Agent
    source: SensorSource
    access: BrokerAccess
    intake: MessageIntake
    stop: threading.Event

    def run(self) -> None:
        """Listen, and dial again whenever the broker is not there."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        tries = 0
        while not self.stop.is_set():
            before = self.intake.facts["connects"]
            try:
                await self._session()
            except (aiomqtt.MqttError, OSError) as error:
                if self.stop.is_set():
                    return
                tries = 0 if self.intake.facts["connects"] > before else tries + 1
                self._gone(error)
                await self._pause(PAUSES[min(tries, len(PAUSES) - 1)])
            finally:
                self.intake.facts["connected"] = False

    def _gone(self, error: Exception) -> None:
        text = f"the broker at {self.source.where} is not there ({error}): it is dialled again"
        self.agent.problems["broker"] = text
        self.agent.log("broker lost", often=True, reason=str(error), broker=self.source.where)

    async def _pause(self, seconds: float) -> None:
        while seconds > 0 and not self.stop.is_set():
            await asyncio.sleep(min(LOOK, seconds))
            seconds -= LOOK

    # -- one connection ----------------------------------------------------------------------
    async def _session(self) -> None:
        host, port = host_port(self.source.brokers[0])
        client = aiomqtt.Client(
            host,
            port,
            username=self.access.username,
            password=self.access.password,
            identifier=self.source.client_of(self.agent.network.about.name, self.agent.name),
            clean_session=False,
            keepalive=KEEPALIVE,
            timeout=ANSWER,
            tls_context=self.access.context(),
            queue_type=_Bounded,
            logger=_quiet,
        )
        # Before connecting: what waited for us comes at once. aiomqtt has no word for it yet.
        client._client.manual_ack_set(True)
        client.pending_calls_threshold = 2 * BATCH
        async with client:
            granted = await client.subscribe([(topic, 1) for topic in self.source.topics])
            for topic, code in zip(self.source.topics, granted, strict=False):
                if (code if isinstance(code, int) else code.value) >= REFUSED:
                    raise aiomqtt.MqttError(f"it does not allow a subscription to {topic!r}")
            self._found()
            async with aclosing(self._batches(client)) as batches:
                async for batch in batches:
                    await self._settle(client, batch)

    def _found(self) -> None:
        self.intake.facts["connected"] = True
        self.intake.facts["connects"] += 1
        self.agent.problems.pop("broker", None)
        self.agent.log("broker found", broker=self.source.where, topics=list(self.source.topics))

    async def _batches(self, client: aiomqtt.Client) -> AsyncGenerator[list[Any], None]:
        """What is there at a time, until we are to stop; MqttError when the connection is lost."""
        coming = asyncio.ensure_future(anext(client.messages))
        try:
            while not self.stop.is_set():
                # Not cancelled while it waits: a message that has just come would be lost.
                done, _ = await asyncio.wait({coming}, timeout=LOOK)
                if not done:
                    continue
                batch = [coming.result()]
                while len(client.messages) and len(batch) < BATCH:
                    batch.append(await anext(client.messages))
                yield batch
                queue = client._queue
                if isinstance(queue, _Bounded) and queue.overflowed:
                    raise aiomqtt.MqttError("too many messages: the rest is requested again")
                coming = asyncio.ensure_future(anext(client.messages))
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, aiomqtt.MqttError):
                await coming

    async def _settle(self, client: aiomqtt.Client, batch: list[Any]) -> None:
        again = self.source.repeats == "learn"
        messages = [
            SensorMessage(topic, body, None if again else message_key(topic, body))
            for topic, body in ((str(each.topic), bytes(each.payload or b"")) for each in batch)
        ]
        answers = await asyncio.to_thread(self.intake.take, messages)
        if answers is None:
            return
        for each in batch:
            if each.qos:
                client._client.ack(each.mid, each.qos)
        if answers and self.source.predictions is not None:
            await self._publish(client, self.source.predictions, answers)

    async def _publish(self, client: aiomqtt.Client, topic: str, answers: list[bytes]) -> None:
        """Until all are confirmed, or the connection is lost: aiomqtt itself would still wait."""
        under_way = [asyncio.ensure_future(client.publish(topic, body, qos=1)) for body in answers]
        together = asyncio.gather(*under_way, return_exceptions=True)
        await asyncio.wait({together, client._disconnected}, return_when=asyncio.FIRST_COMPLETED)
        for each in under_way:
            each.cancel()
        await asyncio.wait(under_way)
        lost = [each for each in under_way if each.cancelled() or each.exception() is not None]
        self.intake.facts["published"] += len(answers) - len(lost)
        self.intake.facts["unpublished"] += len(lost)
        for each in lost[:1]:
            why = "the connection is lost" if each.cancelled() else str(each.exception())
            self.agent.log("not published", often=True, reason=why, topic=topic)


class _Bounded(asyncio.Queue[Any]):
    """Messages that wait, within bounds: a broker may send faster than a disk can write."""

    held = 0
    overflowed = False

    def put_nowait(self, item: Any) -> None:
        size = len(item.payload or b"") + 1000
        if self.held + size > HELD_BYTES:
            self.overflowed = True  # not acknowledged, so it comes again with the next connection
            raise asyncio.QueueFull
        self.held += size
        super().put_nowait(item)

    def get_nowait(self) -> Any:
        item = super().get_nowait()
        self.held -= len(item.payload or b"") + 1000
        return item


def listener(
    agent: Agent,
    source: SensorSource,
    access: BrokerAccess,
    intake: MessageIntake,
    stop: threading.Event,
) -> MqttListener:
    """What listens to a source of this kind."""
    if access.password is not None and not (access.tls or is_loopback(source.brokers[0])):
        agent.log("broker", text="the password travels without TLS")
    return MqttListener(agent, source, access, intake, stop)


__all__ = ["MqttListener", "listener", "message_key"]
