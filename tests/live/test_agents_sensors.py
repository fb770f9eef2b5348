"""Messages of brokers: what a section may say, who we are, keys, dead letters, and the desk."""

import json
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from dokl.base.errors import BadInput, Diverged, MissingExtra
from dokl.live.agent.clock import Clock
from dokl.live.agent.problems import Problems
from dokl.live.agent.reloading import reload_description
from dokl.live.agent.replies import Busy, Stopping
from dokl.live.certificates import Authority
from dokl.live.description import SensorSource, parse, read
from dokl.live.description.inspection import layout_problems
from dokl.live.description.sources import topic_matches
from dokl.live.description.text import text
from dokl.live.inputs import Inputs
from dokl.live.jobs import sensors
from dokl.live.sources import dead_letters as letters_module
from dokl.live.sources.access import broker_access
from dokl.live.sources.dead_letters import DeadLetters, SensorMessage
from dokl.live.sources.messages import MessageIntake, new_facts
from dokl.live.store import StoreFailed, TooManyWaiting
from live_networks import small

MQTT = SensorSource("mqtt", ("127.0.0.1:1883",), ("stations/+/readings",), "said/a")
SECTION = '[sources.a]\nkind = "mqtt"\nbrokers = ["127.0.0.1:1883"]\ntopics = ["t"]\n'


# -- the description -------------------------------------------------------------------------------
def test_what_is_written_is_read_again():
    sources = {
        "a": MQTT,
        "b": SensorSource("mqtt", ("[::1]:1883",), ("x", "y/#"), client="b", repeats="learn"),
        "c": SensorSource("kafka", ("k1:9092", "k2:9092"), ("readings",), "said", "group"),
    }
    found = parse(text(small(sources=sources)), "lab.toml")
    assert found.sources == sources
    assert found.without(["a"]).sources.keys() == {"b", "c"}
    assert found.fingerprint == small().fingerprint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('kind = "mqtt"', 'kind = "mqt"'), "[sources.a] unknown kind 'mqt': did you mean 'mqtt'"),
        (('["127.0.0.1:1883"]', "[]"), "[sources.a] brokers is empty"),
        (('["127.0.0.1:1883"]', '["here"]'), "[sources.a] address 'here' is not HOST:PORT"),
        (('["127.0.0.1:1883"]', '["a:1", "b:1"]'), "[sources.a] brokers: MQTT has one"),
        (('["t"]', '"t"'), "[sources.a] topics must be a list"),
        (('["t"]', '["a/#/b"]'), "[sources.a] topic 'a/#/b' cannot be subscribed to"),
        (('["t"]', '["a+"]'), "[sources.a] topic 'a+' cannot be subscribed to"),
        (('["t"]', '["t"]\npredictions = "p/#"'), "[sources.a] predictions 'p/#' must be one"),
        (('["t"]', '["p/#"]\npredictions = "p/q"'), "the node would read it"),
        (('["t"]', '["t"]\npassword = "x"'), "[sources.a] password: every node has this file"),
        (('["t"]', '["t"]\nrepeats = "twice"'), "[sources.a] unknown repeats 'twice'"),
        (('["t"]', '["t"]\ntopic = "x"'), "unknown key in [sources.a] 'topic'"),
        (("[sources.a]", "[sources.z]"), "[sources.z]: there is no [nodes.z]"),
    ],
)
def test_a_wrong_section_says_what_is_wrong(change, said):
    with pytest.raises(BadInput) as caught:
        parse(text(small()) + SECTION.replace(*change), "lab.toml")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topics": ("a/b",)}, "topic 'a/b' cannot be one of Kafka"),
        ({"topics": ("..",)}, "topic '..' cannot be one of Kafka"),
        ({"predictions": "readings"}, "the node would read it"),
        ({"predictions": ""}, "topic '' cannot be one of Kafka"),
        ({"repeats": "learn"}, "repeats is for MQTT"),
        ({"brokers": ("k1",)}, "address 'k1' is not HOST:PORT"),
    ],
)
def test_a_wrong_section_of_kafka_says_what_is_wrong(change, said):
    good = {"kind": "kafka", "brokers": ("k1:9092",), "topics": ("readings",)}
    with pytest.raises(BadInput, match=said):
        SensorSource(**{**good, **change})


def test_two_nodes_must_not_be_one_client():
    one = SensorSource("mqtt", ("127.0.0.1:1883",), ("t",), client="me")
    [problem] = [p for p in layout_problems(small(sources={"a": one, "b": one})) if "client" in p]
    assert "[sources.b] and [sources.a] are both client 'me'" in problem


def test_revoked_nodes_have_no_source_and_a_running_agent_keeps_its_own(tmp_path):
    path = tmp_path / "lab.toml"
    plain = small(path)
    path.write_text(text(plain) + SECTION)
    with pytest.raises(BadInput, match=r"\[sources.a\] was changed: restart"):
        reload_description(path, "a", plain)
    assert reload_description(path, "b", plain).sources["a"].topics == ("t",)
    path.write_text(path.read_text().replace("revoked = []", 'revoked = ["a"]'))
    assert read(path).sources == {}


@pytest.mark.parametrize(
    ("pattern", "topic", "heard"),
    [("a/+", "a/b", True), ("a/+", "a", False), ("a/+", "a/b/c", False), ("#", "a/b", True),
     ("a/#", "ab", False), ("$share/g/a/+", "a/b", True), ("a/b", "a/b", True)],
)  # fmt: skip
def test_what_a_subscription_hears(pattern, topic, heard):
    assert topic_matches(pattern, topic) is heard


# -- who we are ------------------------------------------------------------------------------------
def test_access_comes_from_the_environment(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    given = {"DOKL_MQTT_USERNAME": "u", "DOKL_MQTT_PASSWORD_FILE": str(secret), "OTHER": "x"}
    access = broker_access("mqtt", ["10.0.0.7:8883"], given)
    assert (access.tls, access.username, access.password) == (True, "u", "from a file")
    assert "from a file" not in repr(access)
    assert access.context().check_hostname
    assert not broker_access("mqtt", ["localhost:1883"], {}).tls
    assert broker_access("mqtt", ["localhost:1883"], {"DOKL_MQTT_TLS": "on"}).tls
    assert broker_access("mqtt", ["10.0.0.7:1883"], {"DOKL_MQTT_TLS": "off"}).context() is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"PASSWORD": "x"}, "DOKL_MQTT_PASSWORD is set, and DOKL_MQTT_USERNAME is not"),
        ({"TLS": "yes"}, "DOKL_MQTT_TLS must be on or off"),
        ({"CA": "/nowhere/ca.pem"}, "DOKL_MQTT_CA is /nowhere/ca.pem"),
        ({"KEY": __file__}, "belong together"),
        ({"CA": __file__, "TLS": "off"}, "there is no TLS"),
        ({"USERNAME": "u", "PASSWORD_FILE": "/nowhere/x"}, "PASSWORD_FILE: /nowhere/x cannot"),
        ({"USERNAME": "u", "PASSWORD_FILE": "x", "PASSWORD": "y"}, "one is enough"),
    ],
)
def test_an_environment_that_cannot_be_says_so(given, said):
    with pytest.raises(BadInput, match=said):
        broker_access("mqtt", ["10.0.0.7:1"], {f"DOKL_MQTT_{k}": v for k, v in given.items()})


def test_certificates_that_are_none_are_told_before_anything_starts():
    with pytest.raises(BadInput, match="cannot be used"):
        broker_access("mqtt", ["10.0.0.7:1"], {"DOKL_MQTT_CA": __file__}).context()


@pytest.mark.parametrize(
    ("path", "said"), [("/nowhere/ca.pem", "DOKL_KAFKA_CA is /nowhere/ca.pem"), (__file__, "CA")]
)
def test_a_wrong_authority_of_kafka_is_told_before_anything_starts(monkeypatch, path, said):
    pytest.importorskip("dokl.live.sources.kafka", exc_type=ImportError)
    monkeypatch.setenv("DOKL_KAFKA_CA", path)
    source = SensorSource("kafka", ("10.0.0.5:9093",), ("t",))
    with pytest.raises(BadInput, match=said):
        sensors.checked_source(small(sources={"a": source}), "a")


def test_a_missing_package_is_named_before_anything_starts(monkeypatch):
    monkeypatch.setitem(sensors.__dict__, "import_module", _missing)
    with pytest.raises(MissingExtra, match=r"dokl\[mqtt\]"):
        sensors.checked_source(small(sources={"a": MQTT}), "a")
    assert sensors.checked_source(small(sources={"a": MQTT}), "b") is None


def _missing(name):
    raise MissingExtra("a source of kind mqtt", name.rpartition(".")[2])


def test_an_mqtt_message_is_known_by_topic_and_body():
    mqtt = pytest.importorskip("dokl.live.sources.mqtt", exc_type=ImportError)
    keys = {mqtt.message_key(*given) for given in (("a", b"1"), ("a", b"2"), ("b", b"1"))}
    assert len(keys) == 3
    assert mqtt.message_key("a", b"1") in keys


def test_a_kafka_message_is_known_by_its_place_and_its_time():
    kafka = pytest.importorskip("dokl.live.sources.kafka", exc_type=ImportError)
    given = (("t", 0, 1, 5), ("t", 1, 0, 5), ("t", 0, 1, 6), ("u", 0, 1, 5))
    assert len({kafka.message_key(*each) for each in given}) == 4


def test_what_kafka_is_told_of_who_we_are(tmp_path):
    kafka = pytest.importorskip("dokl.live.sources.kafka", exc_type=ImportError)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(Authority.new("kafka").files()["ca.pem"])
    source = SensorSource("kafka", ("k1:9092", "k2:9092"), ("t",))

    def words(brokers=source.brokers, **given):
        named = {f"DOKL_KAFKA_{key}": value for key, value in given.items()}
        return kafka.client_settings(source, broker_access("kafka", brokers, named))

    assert words()["security.protocol"] == "ssl"
    assert words(["127.0.0.1:1"])["security.protocol"] == "plaintext"
    found = words(USERNAME="u", PASSWORD="p", CA=str(ca), MECHANISM="SCRAM-SHA-256")
    assert found["bootstrap.servers"] == "k1:9092,k2:9092"
    assert found["security.protocol"] == "sasl_ssl"
    assert (found["sasl.username"], found["sasl.password"]) == ("u", "p")
    assert (found["sasl.mechanism"], found["ssl.ca.location"]) == ("SCRAM-SHA-256", str(ca))
    kafka.Consumer({**found, "bootstrap.servers": "", "group.id": "g"}).close()  # it knows them all
    with pytest.raises(BadInput, match="DOKL_KAFKA_MECHANISM"):
        words(USERNAME="u", PASSWORD="p", MECHANISM="GUESS")


# -- dead letters ----------------------------------------------------------------------------------
def test_dead_letters_are_lines_also_after_one_was_cut_short(tmp_path):
    path = tmp_path / "a.dead.jsonl"
    letters = DeadLetters(path)
    letters.add([(SensorMessage("t", b"\xff\x00"), "no text"), (SensorMessage("t", b"{"), "x")], 0)
    with path.open("ab") as file:
        file.write(b'{"at": "19')
    letters.add([(SensorMessage("t/2", b"last"), "why")], 1.5)
    first, second, _, last = path.read_text().splitlines()
    assert json.loads(first)["base64"] == "/wA="
    assert json.loads(second)["body"] == "{"
    wanted = {"at": "1970-01-01T00:00:01.500Z", "from": "t/2", "reason": "why", "body": "last"}
    assert json.loads(last) == wanted
    assert path.stat().st_mode & 0o777 == 0o600


def test_dead_letters_are_bounded_and_follow_no_link(tmp_path, monkeypatch):
    monkeypatch.setattr(letters_module, "MOST", 500)
    monkeypatch.setattr(letters_module, "BODY", 100)
    path = tmp_path / "a.dead.jsonl"
    for _ in range(50):
        DeadLetters(path).add([(SensorMessage("t", b"x" * 1000), "why")], 0)
    sizes = [each.stat().st_size for each in tmp_path.iterdir()]
    assert len(sizes) <= 2
    assert max(sizes) < 1000
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        DeadLetters(tmp_path / "link").add([(SensorMessage("t", b""), "why")], 0)


# -- the desk --------------------------------------------------------------------------------------
class Fake:
    """An agent that answers from a list, then with {}; errors are raised."""

    def __init__(self, *answers):
        self.network, self.name, self.clock = small(), "a", Clock()
        self.inputs, self.problems = Inputs(self.network), Problems(self.clock)
        self.answers, self.given, self.lines = list(answers), [], []
        self.source = new_facts("broker", "mqtt")

    def submit(self, arrival):
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Busy | Stopping):
            raise answer
        self.given.append(arrival)
        future = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result({"repeated": False, **answer})
        return future

    def predict(self, X):
        return X.sum(axis=1).tolist()

    def log(self, event, **fields):
        self.lines.append((event, fields))


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """What a desk makes of bodies, and what lies in the file of dead letters."""
    monkeypatch.setattr("dokl.live.sources.messages.HELD", 0.01)

    def take(agent, *bodies, predicts=False, stop=None):
        desk = MessageIntake(
            agent, DeadLetters(tmp_path / "dead"), stop or threading.Event(), predicts
        )
        said = desk.take([SensorMessage("t", body, f"k{i}") for i, body in enumerate(bodies)])
        path = tmp_path / "dead"
        dead = (
            [json.loads(x)["reason"] for x in path.read_text().splitlines()]
            if path.exists()
            else []
        )
        return SimpleNamespace(said=said, dead=dead)

    return take


def row(i, **more):
    return json.dumps({"x1": i, "x2": 0, "x3": 0, "y": 1, **more}).encode()


def test_bodies_are_json_or_csv_and_one_bad_row_spoils_only_its_message(taken):
    agent = Fake()
    found = taken(agent, row(1), b"x1,x2,x3,y\n2,0,0,1\n3,0,0,1\n", b'[{"x1": 4}]', b"", b"\xff")
    assert [arrival.X[:, 0].tolist() for arrival in agent.given] == [[1], [2, 3]]
    assert [arrival.key for arrival in agent.given] == ["k0", "k1"]
    assert len(found.dead) == 3
    assert "no target" in found.dead[0]
    assert found.said == []
    counts = {key: agent.source[key] for key in ("rows", "messages", "dead_letters")}
    assert counts == {"rows": 3, "messages": 5, "dead_letters": 3}
    assert "3 so far" in agent.problems["dead letters"]


def test_what_may_pass_is_tried_again_and_what_may_not_is_a_dead_letter(taken):
    agent = Fake(Busy(0.01), StoreFailed("full"), {}, TooManyWaiting("wait"), Diverged("far off"),
                 ZeroDivisionError())  # fmt: skip
    found = taken(agent, row(1), row(2), row(3), row(4))
    assert sorted(found.dead) == ["far off", "internal error: ZeroDivisionError()"]
    assert agent.source["rows"] == 2
    assert agent.source["messages"] == 4
    assert "source" not in agent.problems


def test_repeats_are_counted_and_not_answered_again(taken):
    agent = Fake({}, {"repeated": True})
    found = taken(agent, row(1), row(1), predicts=True)
    assert [json.loads(said)["predictions"] for said in found.said] == [[1.0]]
    assert (agent.source["rows"], agent.source["repeated"]) == (1, 1)


def test_questions_are_answered_and_not_learned(taken):
    agent = Fake()
    asked = b'{"columns": ["x1", "x2", "x3"], "data": [[1, 2, 3], [4, 5, 6]]}'
    waits = b'{"id": 7, "x1": 1, "x2": 1, "x3": 1}'
    found = taken(agent, asked, waits, predicts=True)
    assert [json.loads(said) for said in found.said] == [
        {"node": "a", "from": "t", "predictions": [6.0, 15.0]},
        {"node": "a", "from": "t", "ids": ["7"], "predictions": [3.0]},
    ]
    assert len(agent.given) == 1
    assert agent.source["asked"] == 1
    assert "no target" in taken(Fake(), asked).dead[0]  # where nobody would hear the answer


def test_a_label_does_not_overtake_its_input(taken):
    agent = Fake(StoreFailed("full"))
    taken(agent, b'{"id": 7, "x1": 1, "x2": 1, "x3": 1}', b'{"id": 7, "y": 1}')
    assert [len(arrival.waiting) for arrival in agent.given] == [1, 1, 0]
    assert [len(arrival.labels) for arrival in agent.given] == [0, 0, 1]


def test_who_is_to_stop_acknowledges_nothing(taken):
    stop = threading.Event()
    stop.set()
    assert taken(Fake(), row(1), stop=stop).said is None
    with pytest.raises(Stopping):
        taken(Fake(Stopping("end")), row(1))


def test_dead_letters_that_cannot_be_written_hold_the_source_up(taken, tmp_path):
    (tmp_path / "dead").mkdir()
    agent, stop = Fake(), threading.Event()
    threading.Timer(0.1, stop.set).start()
    desk = MessageIntake(agent, DeadLetters(tmp_path / "dead"), stop, False)
    assert desk.take([SensorMessage("t", b"{")]) is None
    assert "held up: dead cannot be written" in agent.problems["source"]


def test_a_message_that_is_too_long_is_a_dead_letter(taken):
    agent = Fake()
    found = taken(agent, b"[" + b" " * agent.network.limits.body_bytes)
    assert "are the most (body_bytes)" in found.dead[0]
