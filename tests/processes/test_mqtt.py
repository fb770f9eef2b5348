"""Agents at an MQTT broker: every reading learned once, whatever goes away and comes back."""

import asyncio
import json
import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import aiomqtt
import pytest
from brokers import PASSWORD, USER, Amqtt, ByTheLetter
from lab import Lab, free_ports, samples, wait_for

from dokl.live.agent.clock import Clock
from dokl.live.agent.problems import Problems
from dokl.live.certificates import Authority
from dokl.live.description import ExchangePolicy, SensorSource
from dokl.live.inputs import Inputs
from dokl.live.sources.access import BrokerAccess
from dokl.live.sources.dead_letters import DeadLetters
from dokl.live.sources.messages import MessageIntake, new_facts
from dokl.live.sources.mqtt import MqttListener
from live_networks import small

SECRETS = {"DOKL_MQTT_USERNAME": USER, "DOKL_MQTT_PASSWORD": PASSWORD}


def reading(x1, x2, y, **more):
    return json.dumps({"x1": x1, "x2": x2, "y": y, **more}).encode()


def readings(n, seed):
    X, y = samples(n, seed)
    return [reading(*x, each) for x, each in zip(X.tolist(), y.tolist(), strict=True)]


def made_lab(folder, port, **more):
    lab = Lab(folder, [], names=["a"], secure=False, exchange=ExchangePolicy(mode="off"))
    source = SensorSource("mqtt", (f"127.0.0.1:{port}",), ("stations/#",), **more)
    lab.write(replace(lab.network, sources={"a": source}))
    return lab


def publish(port, bodies, topic="stations/a", tls=None):
    """At QoS 1: each is with the broker when this returns."""

    async def send():
        who = {"username": USER, "password": PASSWORD, "tls_context": tls}
        async with aiomqtt.Client("127.0.0.1", port, **who) as client:
            for body in bodies:
                await client.publish(topic, body, qos=1)

    asyncio.run(send())


def has(lab, **wanted):
    """Wait until the source of the agent says so."""

    def there():
        source = lab.status("a")["source"]
        return all(source[key] == value for key, value in wanted.items()) and source

    try:
        return wait_for(there, f"{wanted}", 15)
    except AssertionError as error:
        raise AssertionError(f"{error}: {lab.status('a')['source']} {lab.tail('a')}") from None


# -- as processes, at a real broker ---------------------------------------------------------------
def test_readings_poison_repeats_and_a_broker_that_comes_back(tmp_path):
    [port] = free_ports(1)
    with made_lab(tmp_path, port) as lab:
        with Amqtt(port, tmp_path):
            lab.start(env=SECRETS)
            has(lab, connected=True)
            publish(port, [*readings(20, 1), b"{", reading(1, 2, 1e999), *readings(20, 1)[:3]])
            has(lab, rows=20, messages=25, repeated=3, dead_letters=2)
        wait_for(lambda: not lab.status("a")["source"]["connected"], "it is gone")
        wait_for(lambda: any("broker" in text for text in lab.status("a")["problems"]), "a word")
        assert lab.status("a")["samples"] == 20
        with Amqtt(port, tmp_path):
            has(lab, connected=True, connects=2)
            publish(port, [*readings(20, 1), *readings(10, 2)])  # a sensor that is not sure
            has(lab, rows=30, repeated=23)
            status = lab.status("a")
            assert (status["samples"], status["learned"]) == (30, 30)
            assert not any("broker" in text for text in status["problems"])
            assert lab.metric("a", "dokl_dead_letters_total") == 2
            assert lab.metric("a", "dokl_source_repeated_total") == 23
            assert lab.stop("a") == 0
    path = tmp_path / "lab.state" / "a.dead.jsonl"
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert [letter["body"] for letter in letters] == ["{", reading(1, 2, 1e999).decode()]
    assert all(letter["from"] == "stations/a" and letter["reason"] for letter in letters)
    assert path.stat().st_mode & 0o077 == 0
    assert PASSWORD not in lab.tail("a") + lab.path.read_text()


def test_what_came_while_an_agent_was_dead_is_learned_once(tmp_path):
    [port] = free_ports(1)
    with Amqtt(port, tmp_path) as broker, made_lab(tmp_path, port) as lab:
        lab.start(env=SECRETS)
        has(lab, connected=True)
        publish(port, readings(30, 1)[:15])
        has(lab, rows=15)
        lab.kill("a")
        wait_for(lambda: not broker.has("dokl-lab-a"), "the broker knows that it is gone")
        publish(port, readings(30, 1))  # of which the first 15 are known
        lab.start(env=SECRETS)
        has(lab, rows=15, repeated=15)
        assert lab.status("a")["samples"] == 30


def test_predictions_are_published_over_tls(tmp_path):
    [port] = free_ports(1)
    authority = Authority.new("broker")
    content = authority.files() | authority.issue("broker", ["localhost", "127.0.0.1"])
    paths = {name: tmp_path / name for name in ("ca.pem", "pem", "key")}
    for name, path in paths.items():
        path.write_bytes(content[name])
    env = {**SECRETS, "DOKL_MQTT_CA": str(paths["ca.pem"])}
    context = BrokerAccess(True, ca=str(paths["ca.pem"])).context()
    heard = []

    async def ask():
        who = {"username": USER, "password": PASSWORD, "tls_context": context}
        async with aiomqtt.Client("127.0.0.1", port, **who) as client:
            await client.subscribe("said/a", qos=1)
            for body in (b'{"x1": 1, "x2": 0.5}', reading(1, 2, 3), b'{"id": 7, "x1": 1, "x2": 2}'):
                await client.publish("stations/a", body, qos=1)
            async with asyncio.timeout(15):
                while len(heard) < 3:
                    heard.append(json.loads((await anext(client.messages)).payload))

    broker = Amqtt(port, tmp_path, tls=(paths["pem"], paths["key"]))
    with broker, made_lab(tmp_path, port, predictions="said/a") as lab:
        lab.start(env=env)
        has(lab, connected=True)
        asyncio.run(ask())
        status = lab.status("a")
        assert (status["samples"], status["waiting_labels"]) == (1, 1)
        has(lab, asked=1, published=3, unpublished=0)
    assert [each["from"] for each in heard] == ["stations/a"] * 3
    assert [each.get("ids") for each in heard] == [None, None, ["7"]]
    assert all(len(each["predictions"]) == 1 for each in heard)


def test_a_wrong_password_is_told_and_samples_by_http_go_on(tmp_path):
    [port] = free_ports(1)
    with Amqtt(port, tmp_path), made_lab(tmp_path, port) as lab:
        lab.start(env={**SECRETS, "DOKL_MQTT_PASSWORD": "wrong"})
        wait_for(lambda: any("broker" in text for text in lab.status("a")["problems"]), "a word")
        X, y = samples(5, 1)
        assert lab.post("a", X, y)["accepted"] == 5


# -- in this process, at a broker by the letter ------------------------------------------------
class Held:
    """An agent whose journal answers when it is told to, and knows keys again."""

    def __init__(self):
        self.network, self.name, self.clock = small(links=(("a", "b"),)), "a", Clock()
        self.inputs, self.problems = Inputs(self.network), Problems(self.clock)
        self.source = new_facts("broker", "mqtt")
        self.keys, self.learned, self.under_way, self.holds = set(), [], [], True

    def submit(self, arrival):
        future = Future()
        self.under_way.append((arrival, future))
        if not self.holds:
            self.journal()
        return future

    def journal(self):
        while self.under_way:
            arrival, future = self.under_way.pop(0)
            repeated = arrival.key in self.keys
            self.keys.add(arrival.key)
            self.learned += [] if repeated else [arrival.X[0, 0]]
            future.set_result({"repeated": repeated})

    def log(self, *_, **__):
        pass


@pytest.fixture
def by_the_letter():
    broker = ByTheLetter()
    broker.start()
    yield broker
    broker.close()


def listening(agent, broker, tmp_path, stop, **more):
    source = SensorSource("mqtt", (f"127.0.0.1:{broker.port}",), ("t",), **more)
    desk = MessageIntake(agent, DeadLetters(tmp_path / "dead"), stop, False)
    listener = MqttListener(agent, source, BrokerAccess(False), desk, stop)
    thread = threading.Thread(target=listener.run, daemon=True)
    thread.start()
    assert broker.subscribed.wait(10)
    return thread


def test_kill_9_amid_messages_loses_none_and_doubles_none(tmp_path, by_the_letter):
    with made_lab(tmp_path, by_the_letter.port) as lab:
        lab.start()
        assert by_the_letter.subscribed.wait(10)
        sent = readings(150, 1)
        for part in (sent[:50], sent[50:100], sent[100:]):
            before = len(by_the_letter.acknowledged)
            for each in part:
                by_the_letter.publish("stations/a", each)
            if part[-1] != sent[-1]:
                wait_for(lambda n=before: len(by_the_letter.acknowledged) > n, "some are taken")
                lab.kill("a")
                lab.start()
        wait_for(lambda: not by_the_letter.waiting, "all are acknowledged", 20)
        assert lab.status("a")["samples"] == 150
        assert lab.status("a")["source"]["dead_letters"] == 0


def test_more_than_can_wait_is_asked_for_again(tmp_path, by_the_letter, monkeypatch):
    monkeypatch.setattr("dokl.live.sources.mqtt.HELD_BYTES", 2 * len(body(1)) + 2100)
    agent, stop = Held(), threading.Event()
    thread = listening(agent, by_the_letter, tmp_path, stop)
    by_the_letter.publish("t", body(0))
    wait_for(lambda: agent.under_way, "the first is on its way")
    for i in range(1, 6):  # while the journal hangs
        by_the_letter.publish("t", body(i))
    time.sleep(0.3)
    agent.holds = False
    agent.journal()
    wait_for(lambda: len(by_the_letter.acknowledged) == 6, "all are acknowledged")
    assert sorted(agent.learned) == [0, 1, 2, 3, 4, 5]
    assert agent.source["connects"] > 1
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def body(i):
    return json.dumps({"x1": i, "x2": 0, "x3": 0, "y": 1}).encode()


def test_nothing_is_acknowledged_before_the_journal_has_it(tmp_path, by_the_letter):
    agent, stop = Held(), threading.Event()
    thread = listening(agent, by_the_letter, tmp_path, stop)
    by_the_letter.publish("t", body(1))
    wait_for(lambda: agent.under_way, "it is on its way")
    time.sleep(0.3)
    assert by_the_letter.acknowledged == []
    agent.journal()
    wait_for(lambda: by_the_letter.acknowledged == [("t", body(1))], "acknowledged")
    by_the_letter.publish("t", b"poison")
    wait_for(lambda: len(by_the_letter.acknowledged) == 2, "acknowledged, too")
    assert b"poison" in (tmp_path / "dead").read_bytes()
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_redelivery_is_learned_once(tmp_path, by_the_letter):
    agent, stop = Held(), threading.Event()
    thread = listening(agent, by_the_letter, tmp_path, stop)
    by_the_letter.publish("t", body(1))
    wait_for(lambda: agent.under_way, "it is on its way")
    by_the_letter.cut()  # so that its acknowledgement cannot arrive
    agent.journal()
    agent.holds = False
    by_the_letter.publish("t", body(2))
    wait_for(lambda: len(by_the_letter.acknowledged) == 2, "both acknowledged")
    assert by_the_letter.sent_again >= 1
    assert agent.learned == [1, 2]
    assert agent.source["repeated"] == 1
    assert agent.source["connects"] == 2
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_lost_connection_is_not_waited_for(tmp_path, by_the_letter, monkeypatch):
    """A prediction that this broker never confirms kept us from dialling again."""
    monkeypatch.setattr("dokl.live.sources.mqtt.ANSWER", 3600.0)
    monkeypatch.setattr(MessageIntake, "take", lambda self, messages: [b"said"] * len(messages))
    agent, stop = Held(), threading.Event()
    thread = listening(agent, by_the_letter, tmp_path, stop, predictions="said")
    by_the_letter.publish("t", body(1))
    wait_for(lambda: by_the_letter.heard, "a prediction is said")
    by_the_letter.cut()
    assert by_the_letter.subscribed.wait(20)
    wait_for(lambda: agent.source["connects"] == 2, "it is there again")
    assert (agent.source["published"], agent.source["unpublished"]) == (0, 1)
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
