"""librdkafka's mock cluster: real brokers on loopback that speak Kafka's protocol, in this process.

Python's face can start one but not take its brokers down, so the library is called directly.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

NO_ERROR = 0


def _library():
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    lib = ctypes.CDLL(str(next(folder.glob("librdkafka*.so*"))))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_handle_mock_cluster", pointer, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class KafkaCluster:
    """One broker with topics; `down` and `up` take it away and bring it back."""

    def __init__(self, *topics, partitions=2):
        self._lib, error = _library(), ctypes.create_string_buffer(512)
        conf = self._lib.rd_kafka_conf_new()
        for key, value in ((b"test.mock.num.brokers", b"1"), (b"log_level", b"0")):
            assert self._lib.rd_kafka_conf_set(conf, key, value, error, 512) == NO_ERROR, error
        self._handle = self._lib.rd_kafka_new(0, conf, error, 512)
        assert self._handle, error.value
        self._cluster = self._lib.rd_kafka_handle_mock_cluster(self._handle)
        for topic in topics:
            made = self._lib.rd_kafka_mock_topic_create(
                self._cluster, topic.encode(), partitions, 1
            )
            assert made == NO_ERROR
        self.address = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._producer = None

    def down(self):
        assert self._lib.rd_kafka_mock_broker_set_down(self._cluster, 1) == NO_ERROR

    def up(self):
        assert self._lib.rd_kafka_mock_broker_set_up(self._cluster, 1) == NO_ERROR

    def publish(self, topic, bodies, partition=0):
        """Each is with the broker when this returns."""
        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.address, "log_level": 0})
        for body in bodies:
            self._producer.produce(topic, body, partition=partition)
        assert self._producer.flush(10) == 0

    def _consumer(self, group):
        words = {"bootstrap.servers": self.address, "group.id": group, "log_level": 0}
        return Consumer(words)

    def committed(self, group, topic, partition=0):
        """How far a group says that it is."""
        consumer = self._consumer(group)
        try:
            return consumer.committed([TopicPartition(topic, partition)], timeout=5)[0].offset
        finally:
            consumer.close()

    def heard(self, topic, n, seconds=15.0):
        """The first n messages of a topic."""
        consumer = self._consumer("test")
        consumer.assign([TopicPartition(topic, p, 0) for p in range(2)])
        try:
            found = []
            while len(found) < n and (more := consumer.consume(n - len(found), seconds)):
                found += [each.value() for each in more if each.error() is None]
            return found
        finally:
            consumer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
        self._lib.rd_kafka_destroy(self._handle)
