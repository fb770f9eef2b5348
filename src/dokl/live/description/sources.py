"""[sources.NAME]: the broker that a node's samples come from, and what can be wrong with that.

A section says where and what, never who: names, passwords and certificates are secrets of a host,
and are taken from its environment (`dokl.live.sources.access`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from dokl.base import config
from dokl.base.errors import BadInput, UnknownName
from dokl.live.description.checks import host_port

REPEATS = ("skip", "learn")
LONGEST = 65_535  # bytes of an MQTT topic
SECRETS = ("username", "user", "password", "token", "ca", "certificate", "cert", "key", "tls")


@dataclass(frozen=True)
class SensorSource:
    """One node's broker; make one with `sensor_source`.

    kind: "mqtt" or "kafka". brokers: HOST:PORT; Kafka may have several to begin with. topics: what
    to subscribe to. predictions: a topic to publish predictions to. client: under which name the
    broker knows the node and keeps what it missed, of Kafka the consumer group; dokl-NETWORK-NODE
    unless given. repeats: what to do with an MQTT message equal to an earlier one, "skip"
    it as a redelivery, or "learn" it again.
    """

    kind: str
    brokers: tuple[str, ...]
    topics: tuple[str, ...]
    predictions: str | None = None
    client: str | None = None
    repeats: str = "skip"

    def __post_init__(self) -> None:
        if self.kind not in _CHECKS:
            raise UnknownName("kind", self.kind, _CHECKS)
        if self.repeats not in REPEATS:
            raise UnknownName("repeats", self.repeats, REPEATS)
        if not self.brokers or not self.topics:
            empty = "topics" if self.brokers else "brokers"
            raise BadInput(f"{empty} is empty: name one at least")
        for broker in self.brokers:
            host_port(broker)
        if self.client is not None and not (self.client and self.client.isprintable()):
            raise BadInput(f"client {self.client!r} must be plain text, or left out")
        _CHECKS[self.kind](self)

    @property
    def where(self) -> str:
        """The brokers, for people."""
        return ", ".join(self.brokers)

    def client_of(self, network: str, node: str) -> str:
        """The name under which the broker knows a node."""
        return self.client or f"dokl-{network}-{node}"


def sensor_source(name: str, table: object) -> SensorSource:
    """The section of node `name`; BadInput names it."""
    section = f"[sources.{name}]"
    if not isinstance(table, dict):
        raise BadInput(f"[sources] {name} must be a section {section}, got {table!r}")
    for key in table:
        if key.lower() in SECRETS:
            raise BadInput(
                f"{section} {key}: every node has this file, and secrets of one do not belong "
                "there: they come from the environment, like DOKL_MQTT_PASSWORD"
            )
    try:
        return config.parse(SensorSource, table, section)
    except BadInput as error:
        text = str(error)
        raise BadInput(text if section in text else f"{section} {text}") from None


# -- MQTT ----------------------------------------------------------------------------------------
def _check_mqtt(source: SensorSource) -> None:
    if len(source.brokers) > 1:
        raise BadInput(f"brokers: MQTT has one, got {source.where}")
    for topic in source.topics:
        _check_filter(topic)
    where = source.predictions
    if where is None:
        return
    if not where or "+" in where or "#" in where or where.startswith("$"):
        raise BadInput(f"predictions {where!r} must be one topic, without + and #")
    _check_filter(where)
    for topic in source.topics:
        if topic_matches(topic, where):
            raise BadInput(
                f"predictions {where!r} is among the topics ({topic!r}): the node would read it"
            )


def _check_filter(topic: str) -> None:
    """[MQTT-4.7]: # is the last level, + a whole one."""
    levels = topic.split("/")
    wild = any(level not in ("#", "+") and ("#" in level or "+" in level) for level in levels)
    if not topic or wild or "#" in levels[:-1] or "\0" in topic or len(topic.encode()) > LONGEST:
        raise BadInput(
            f"topic {topic!r} cannot be subscribed to: + is one whole level and # all that "
            "follow, like stations/+/readings or stations/#"
        )


def topic_matches(pattern: str, topic: str) -> bool:
    """Whether a subscription covers a topic.

    >>> topic_matches("stations/+/readings", "stations/a/readings"), topic_matches("a/#", "a")
    (True, True)
    """
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[0] == "$share":
        wanted = wanted[2:]
    for i, level in enumerate(wanted):
        if level == "#":
            return True
        if i >= len(levels) or level not in ("+", levels[i]):
            return False
    return len(wanted) == len(levels)


# -- Kafka ---------------------------------------------------------------------------------------
_KAFKA_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def _check_kafka(source: SensorSource) -> None:
    topics_out = () if source.predictions is None else (source.predictions,)
    for topic in (*source.topics, *topics_out):
        if not _KAFKA_TOPIC.fullmatch(topic):
            raise BadInput(
                f"topic {topic!r} cannot be one of Kafka: use 1 to 249 of the letters A-Z a-z, "
                "digits, dot, _ and -"
            )
    if source.predictions in source.topics:
        raise BadInput(
            f"predictions {source.predictions!r} is among the topics: the node would read it"
        )
    if source.repeats != REPEATS[0]:
        raise BadInput("repeats is for MQTT: Kafka numbers its messages, so equal ones are two")


_CHECKS: dict[str, Callable[[SensorSource], None]] = {"mqtt": _check_mqtt, "kafka": _check_kafka}
