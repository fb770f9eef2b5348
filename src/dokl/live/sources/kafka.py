"""Samples from Kafka, and predictions back to it.

The offsets of a consumer group are committed by hand, when all messages before them are settled
(`desk`). After a crash, a rebalance or a commit that failed Kafka delivers some messages again;
they are known by topic, partition, offset and time. The time is there because offsets start over
when a topic is deleted and made again.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dokl.base.errors import BadInput, MissingExtra
from dokl.live.description import SensorSource, is_loopback
from dokl.live.sources.access import BrokerAccess
from dokl.live.sources.dead_letters import SensorMessage
from dokl.live.sources.messages import BATCH, MessageIntake

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
except ImportError:
    raise MissingExtra("a source of kind kafka", "kafka") from None

if TYPE_CHECKING:
    from dokl.live.agent.runtime import Agent

LOOK = 0.25  # seconds between two looks whether we are to stop
PROBE = 1.0  # seconds between two looks whether brokers are back
SESSION = 10_000  # milliseconds that a group waits for one who died before another may go on
FLUSH = 2.0  # seconds for predictions that are under way when we stop
GONE = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
)
# We log its events; its own lines are no JSON.
_quiet = logging.getLogger("dokl.kafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def message_key(topic: str, partition: int, offset: int, milliseconds: int) -> str:
    """By which a message is known again.

    >>> message_key("readings", 0, 17, 1700000000000)
    'kafka:readings/0/17@1700000000000'
    """
    return f"kafka:{topic}/{partition}/{offset}@{milliseconds}"


def client_settings(source: SensorSource, access: BrokerAccess) -> dict[str, Any]:
    """What consumer and producer have in common, in librdkafka's words."""
    words: dict[str, Any] = {
        "bootstrap.servers": ",".join(source.brokers),
        "socket.timeout.ms": 10_000,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 5_000,
    }
    sasl = access.username is not None
    words["security.protocol"] = ("sasl_" if sasl else "") + ("ssl" if access.tls else "plaintext")
    given = {
        "ssl.ca.location": access.ca,
        "ssl.certificate.location": access.certificate,
        "ssl.key.location": access.key,
        "sasl.username": access.username,
        "sasl.password": access.password,
        "sasl.mechanism": access.mechanism if sasl else None,
    }
    return words | {key: value for key, value in given.items() if value is not None}


@dataclass
class KafkaListener:
    """One node in its consumer group; `run` it in a thread of its own until `stop` is set."""

    agent: Agent
    source: SensorSource
    access: BrokerAccess
    intake: MessageIntake
    stop: threading.Event
    _settled: dict[tuple[str, int], int] = field(default_factory=dict)  # offsets not committed yet
    _probed: float = 0.0

    def run(self) -> None:
        """Listen; librdkafka itself dials again whenever brokers are not there."""
        consumer, producer = self._consumer(), self._producer()
        try:
            consumer.subscribe(
                list(self.source.topics), on_revoke=self._revoked, on_lost=self._revoked
            )
            while not self.stop.is_set():
                self._turn(consumer, producer)
        finally:
            self.intake.facts["connected"] = False
            if producer is not None:
                producer.flush(FLUSH)
            consumer.close()

    def _consumer(self) -> Any:
        group = self.source.client_of(self.agent.network.about.name, self.agent.name)
        words = client_settings(self.source, self.access) | {
            "group.id": group,
            "client.id": group,
            "session.timeout.ms": SESSION,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 16_384,
            "error_cb": self._wrong,
        }
        try:
            return Consumer(words, logger=_quiet)
        except KafkaException as error:
            raise BadInput(f"Kafka rejects these settings ({error.args[0].str()})") from None

    def _producer(self) -> Any:
        if self.source.predictions is None:
            return None
        words = client_settings(self.source, self.access)
        return Producer({**words, "linger.ms": 5, "message.timeout.ms": 10_000}, logger=_quiet)

    # -- messages ----------------------------------------------------------------------------
    def _turn(self, consumer: Any, producer: Any) -> None:
        first = consumer.poll(LOOK)
        if producer is not None:
            producer.poll(0)
        if first is None:
            self._idle(consumer)
            return
        batch = [first, *consumer.consume(BATCH - 1, 0)]
        for each in batch:
            if each.error() is not None:
                self._wrong(each.error())
        good = [each for each in batch if each.error() is None]
        if good:
            self._found()
            self._settle(consumer, producer, good)

    def _settle(self, consumer: object, producer: object, batch: list[Any]) -> None:
        messages = []
        for each in batch:
            topic, partition, offset = each.topic(), each.partition(), each.offset()
            key = message_key(topic, partition, offset, each.timestamp()[1])
            where = f"{topic}/{partition}/{offset}"
            messages.append(SensorMessage(where, each.value() or b"", key))
        answers = self.intake.take(messages)
        if answers is None:
            return
        for each in batch:
            self._settled[each.topic(), each.partition()] = each.offset() + 1
        self._commit(consumer)
        for body in answers:
            self._publish(producer, body)

    def _commit(self, consumer: Any) -> None:
        """Commit how far we are; what this does not reach is delivered again and known."""
        if not self._settled:
            return
        offsets = [TopicPartition(*place, offset) for place, offset in self._settled.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            reason = error.args[0].str()
            self.agent.log("not committed", often=True, reason=reason, broker=self.source.where)
        else:
            self._settled.clear()

    def _revoked(self, consumer: object, partitions: list[Any]) -> None:
        """Others go on with these, and their offsets are no longer ours to commit."""
        for each in partitions:
            self._settled.pop((each.topic, each.partition), None)

    def _publish(self, producer: Any, body: bytes) -> None:
        try:
            producer.produce(self.source.predictions, body, on_delivery=self._delivered)
        except (BufferError, KafkaException) as error:
            self.intake.facts["unpublished"] += 1
            self.agent.log("not published", often=True, reason=str(error))

    def _delivered(self, error: Any, message: object) -> None:
        self.intake.facts["unpublished" if error is not None else "published"] += 1
        if error is not None:
            self.agent.log("not published", often=True, reason=error.str())

    # -- brokers -----------------------------------------------------------------------------
    def _idle(self, consumer: Any) -> None:
        """Nothing came: are brokers there, and do they know how far we are?"""
        now = time.monotonic()
        if now - self._probed < PROBE:
            return
        self._probed = now
        if not self.intake.facts["connected"]:
            try:
                consumer.list_topics(self.source.topics[0], timeout=PROBE)
            except KafkaException:
                return
            self._found()
        self._commit(consumer)

    def _found(self) -> None:
        if self.intake.facts["connected"]:
            return
        self.intake.facts["connected"] = True
        self.intake.facts["connects"] += 1
        self.agent.problems.pop("broker", None)
        self.agent.log("broker found", broker=self.source.where, topics=list(self.source.topics))

    def _wrong(self, error: Any) -> None:
        """librdkafka reports an event; most of them pass."""
        reason, where = error.str(), self.source.where
        if error.code() in GONE:
            self.intake.facts["connected"] = False
            text = f"the broker at {where} is not there ({reason}): it is dialled again"
            self.agent.problems["broker"] = text
            self.agent.log("broker lost", often=True, reason=reason, broker=where)
        elif error.code() != KafkaError._PARTITION_EOF:
            self.agent.problems.note("broker says", f"the broker at {where} says: {reason}")
            self.agent.log("broker", often=True, reason=reason, broker=where)


def listener(
    agent: Agent,
    source: SensorSource,
    access: BrokerAccess,
    intake: MessageIntake,
    stop: threading.Event,
) -> KafkaListener:
    """What listens to a source of this kind."""
    if access.password is not None and not (access.tls or all(map(is_loopback, source.brokers))):
        agent.log("broker", text="the password travels without TLS")
    return KafkaListener(agent, source, access, intake, stop)


__all__ = ["KafkaListener", "client_settings", "listener", "message_key"]
