"""Agents in Kafka's consumer groups: every reading learned once, whatever goes and comes back."""

import json
import socket
import ssl
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

from kafka_cluster import KafkaCluster
from lab import Lab, samples, wait_for

from dokl.live.agent.clock import Clock
from dokl.live.agent.problems import Problems
from dokl.live.certificates import Authority
from dokl.live.description import ExchangePolicy, SensorSource
from dokl.live.inputs import Inputs
from dokl.live.sources.access import BrokerAccess
from dokl.live.sources.dead_letters import DeadLetters
from dokl.live.sources.kafka import KafkaListener
from dokl.live.sources.messages import MessageIntake, new_facts
from live_networks import small

GROUP = "dokl-lab-a"


def reading(x1, x2, y):
    return json.dumps({"x1": x1, "x2": x2, "y": y}).encode()


def readings(n, seed):
    X, y = samples(n, seed)
    return [reading(*x, each) for x, each in zip(X.tolist(), y.tolist(), strict=True)]


def made_lab(folder, cluster, **more):
    lab = Lab(folder, [], names=["a"], secure=False, exchange=ExchangePolicy(mode="off"))
    source = SensorSource("kafka", (cluster.address,), ("readings",), **more)
    lab.write(replace(lab.network, sources={"a": source}))
    return lab


def has(lab, **wanted):
    """Wait until the source of the agent says so."""

    def there():
        source = lab.status("a")["source"]
        return all(source[key] == value for key, value in wanted.items())

    try:
        wait_for(there, f"{wanted}", 20)
    except AssertionError as error:
        raise AssertionError(f"{error}: {lab.status('a')['source']} {lab.tail('a')}") from None


class OnlyHands(threading.Thread):
    """No broker, but TLS as one would speak it: librdkafka's mock cluster has none. `shaken` has
    the first bytes of whoever believed the certificate.
    """

    def __init__(self, folder):
        super().__init__(daemon=True)
        authority = Authority.new("kafka")
        content = authority.files() | authority.issue("broker", ["localhost", "127.0.0.1"])
        for name in ("ca.pem", "pem", "key"):
            (folder / f"kafka.{name}").write_bytes(content[name])
        self.ca, self.shaken = folder / "kafka.ca.pem", []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "kafka.pem", folder / "kafka.key")
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"

    def run(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client, suppress(OSError):
                client.settimeout(5)
                with self._context.wrap_socket(client, server_side=True) as safe:
                    self.shaken.append(safe.recv(100))

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.join(10)


def test_tls_and_its_authority_come_from_the_environment(tmp_path):
    hands = OnlyHands(tmp_path)
    hands.start()
    other = tmp_path / "other.pem"
    other.write_bytes(Authority.new("other").files()["ca.pem"])
    who = {"DOKL_KAFKA_USERNAME": "hill", "DOKL_KAFKA_PASSWORD": "not in lab.toml"}
    try:
        with made_lab(tmp_path, hands) as lab:
            lab.start(env={**who, "DOKL_KAFKA_CA": str(other)})
            wait_for(lambda: "certificate verify failed" in lab.log("a").read_text(), "a word")
            wait_for(lambda: any("broker" in t for t in lab.status("a")["problems"]), "a problem")
            assert not any(hands.shaken)
            lab.stop("a")
            lab.start(env={**who, "DOKL_KAFKA_CA": str(hands.ca)})
            wait_for(lambda: any(hands.shaken), "it believes the certificate")
            assert "not in lab.toml" not in lab.log("a").read_text()
    finally:
        hands.close()


def test_readings_poison_and_brokers_that_come_back(tmp_path):
    with KafkaCluster("readings") as cluster, made_lab(tmp_path, cluster) as lab:
        lab.start()
        same = reading(1, 2, 0.5)  # equal readings have numbers of their own here
        cluster.publish("readings", [*readings(20, 1), b"{", same, same])
        cluster.publish("readings", readings(5, 2), partition=1)
        has(lab, rows=27, messages=28, repeated=0, dead_letters=1, connected=True)
        wait_for(lambda: cluster.committed(GROUP, "readings") == 23, "offsets are committed")
        cluster.down()
        wait_for(lambda: not lab.status("a")["source"]["connected"], "it is gone")
        assert any("broker" in text for text in lab.status("a")["problems"])
        cluster.up()
        cluster.publish("readings", readings(10, 3))
        has(lab, rows=37, connected=True)
        status = lab.status("a")
        assert (status["samples"], status["learned"]) == (37, 37)
        assert not any("is not there" in text for text in status["problems"])
        assert lab.stop("a") == 0
    [letter] = (tmp_path / "lab.state" / "a.dead.jsonl").read_text().splitlines()
    assert json.loads(letter)["from"] == "readings/0/20"
    assert json.loads(letter)["body"] == "{"


def test_what_is_delivered_again_after_a_crash_is_learned_once(tmp_path):
    more = {"predictions": "said"}
    with KafkaCluster("readings", "said") as cluster, made_lab(tmp_path, cluster, **more) as lab:
        lab.start()
        cluster.publish("readings", [*readings(15, 1), b'{"x1": 1, "x2": 2}'])
        has(lab, rows=15, asked=1, published=16)
        lab.kill("a")
        again = replace(lab.network.sources["a"], client="again")  # a group that knows of nothing
        lab.write(replace(lab.network, sources={"a": again}))
        cluster.publish("readings", readings(5, 2))
        lab.start()
        has(lab, rows=5, repeated=15)
        assert lab.status("a")["samples"] == 20
        has(lab, published=6)  # of five readings and the question, which is none to remember
        said = [json.loads(body) for body in cluster.heard("said", 22)]
        offsets = [int(each["from"].split("/")[2]) for each in said]
        assert sorted(offsets) == sorted([*range(21), 15])
        assert all(len(each["predictions"]) == 1 for each in said)


def test_an_agent_that_was_killed_is_taken_back_by_its_group(tmp_path):
    with KafkaCluster("readings") as cluster, made_lab(tmp_path, cluster) as lab:
        lab.start()
        cluster.publish("readings", readings(10, 1))
        has(lab, rows=10)
        lab.kill("a")
        cluster.publish("readings", readings(10, 2))
        lab.start()
        wait_for(lambda: lab.status("a")["samples"] == 20, "what came meanwhile is learned", 25)
        wait_for(lambda: cluster.committed(GROUP, "readings") == 20, "offsets are committed")


class Held:
    """An agent whose journal answers when it is told to."""

    def __init__(self):
        self.network, self.name, self.clock = small(links=(("a", "b"),)), "a", Clock()
        self.inputs, self.problems = Inputs(self.network), Problems(self.clock)
        self.source, self.under_way = new_facts("broker", "kafka"), []

    def submit(self, arrival):
        self.under_way.append((arrival, Future()))
        return self.under_way[-1][1]

    def log(self, *_, **__):
        pass


def test_offsets_are_committed_after_the_journal_has_the_rows(tmp_path):
    with KafkaCluster("t", partitions=1) as cluster:
        agent, stop = Held(), threading.Event()
        desk = MessageIntake(agent, DeadLetters(tmp_path / "dead"), stop, False)
        source = SensorSource("kafka", (cluster.address,), ("t",))
        listener = KafkaListener(agent, source, BrokerAccess(False), desk, stop)
        thread = threading.Thread(target=listener.run, daemon=True)
        thread.start()
        cluster.publish("t", [b'{"x1": 1, "x2": 0, "x3": 0, "y": 1}'])
        wait_for(lambda: agent.under_way, "it is on its way")
        time.sleep(0.3)
        assert cluster.committed(GROUP, "t") < 0
        [(arrival, future)] = agent.under_way
        assert arrival.key.startswith("kafka:t/0/0@")
        future.set_result({"repeated": False})
        wait_for(lambda: cluster.committed(GROUP, "t") == 1, "committed")
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
