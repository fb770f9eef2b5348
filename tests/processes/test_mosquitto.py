"""Agents at Mosquitto: what it has not heard to be learned comes again, and is learned once."""

import os
import signal

import pytest
from brokers import PASSWORD
from lab import free_ports, samples, wait_for
from mosquitto import Mosquitto
from test_mqtt import SECRETS, has, made_lab, publish, readings

from dokl.live.certificates import Authority
from dokl.live.sources.access import BrokerAccess

CLIENT = "dokl-lab-a"


def stopped(lab):
    """The agent takes nothing in for a while: whatever is sent to it is not acknowledged."""
    os.kill(lab.processes["a"].pid, signal.SIGSTOP)


def test_a_broker_restarted_with_unacknowledged_messages_delivers_them_again(tmp_path):
    [port] = free_ports(1)
    with Mosquitto(port, tmp_path) as broker, made_lab(tmp_path, port) as lab:
        lab.start(env=SECRETS)
        has(lab, connected=True)
        publish(port, readings(60, 1)[:20])
        has(lab, rows=20)
        stopped(lab)
        try:
            publish(port, readings(60, 1)[20:])
            wait_for(lambda: broker.delivered(CLIENT) > 20, "some are on their way")
            broker.save()
            broker.kill()
            broker.start()
        finally:
            os.kill(lab.processes["a"].pid, signal.SIGCONT)
        wait_for(lambda: lab.status("a")["samples"] >= 60, "all are learned")
        wait_for(lambda: broker.delivered(CLIENT, again=True) > 0, "some came again")
        publish(port, [*readings(60, 1), *readings(5, 2)])  # a sensor that is not sure
        wait_for(lambda: lab.status("a")["samples"] >= 65, "and five more")
        status = lab.status("a")
        assert (status["samples"], status["learned"]) == (65, 65)
        assert status["source"]["repeated"] >= 60
        assert status["source"]["dead_letters"] == 0


def test_both_killed_with_messages_under_way_lose_none_and_double_none(tmp_path):
    [port] = free_ports(1)
    with Mosquitto(port, tmp_path) as broker, made_lab(tmp_path, port) as lab:
        lab.start(env=SECRETS)
        has(lab, connected=True)
        stopped(lab)
        publish(port, readings(50, 1))
        wait_for(lambda: broker.delivered(CLIENT) > 0, "some are on their way")
        lab.kill("a")
        broker.save()
        broker.kill()
        broker.start()
        lab.start(env=SECRETS)
        wait_for(lambda: lab.status("a")["samples"] >= 50, "all are learned")
        assert broker.delivered(CLIENT, again=True) > 0
        wait_for(lambda: lab.status("a")["queue"]["rows"] == 0, "nothing waits")
        assert lab.status("a")["samples"] == 50


# -- TLS and credentials, from the environment ---------------------------------------------------
@pytest.fixture
def papers(tmp_path):
    """An authority's certificate, the broker's and the agent's, as files."""
    authority, paths = Authority.new("broker"), {}
    content = {"ca": authority.files()["ca.pem"]}
    for who in ("broker", "agent"):
        issued = authority.issue(who, ["localhost", "127.0.0.1"])
        content |= {f"{who}.pem": issued["pem"], f"{who}.key": issued["key"]}
    for name, data in content.items():
        paths[name] = tmp_path / name
        paths[name].write_bytes(data)
    return paths


def environment(papers, **changed):
    tls = {"CA": "ca", "CERTIFICATE": "agent.pem", "KEY": "agent.key"} | changed
    return SECRETS | {f"DOKL_MQTT_{key}": str(papers[name]) for key, name in tls.items() if name}


def test_certificates_and_password_come_from_the_environment(tmp_path, papers):
    [port] = free_ports(1)
    tls = papers["ca"], papers["broker.pem"], papers["broker.key"]
    own = {"certificate": str(papers["agent.pem"]), "key": str(papers["agent.key"])}
    context = BrokerAccess(True, ca=str(papers["ca"]), **own).context()
    with Mosquitto(port, tmp_path, tls), made_lab(tmp_path, port) as lab:
        lab.start(env=environment(papers))
        has(lab, connected=True)
        publish(port, readings(10, 1), tls=context)
        has(lab, rows=10)
        assert PASSWORD not in lab.tail("a") + lab.path.read_text()


def test_a_broker_of_another_authority_is_not_believed(tmp_path, papers):
    [port] = free_ports(1)
    papers["other"] = tmp_path / "other"
    papers["other"].write_bytes(Authority.new("other").files()["ca.pem"])
    tls = papers["ca"], papers["broker.pem"], papers["broker.key"]
    with Mosquitto(port, tmp_path, tls), made_lab(tmp_path, port) as lab:
        for changed in ({"CA": "other"}, {"CERTIFICATE": "", "KEY": ""}):
            lab.start(env=environment(papers, **changed))
            wait_for(lambda: any("broker" in t for t in lab.status("a")["problems"]), "a word")
            X, y = samples(5, 1)
            assert lab.post("a", X, y)["accepted"] == 5  # samples by HTTP go on
            assert not lab.status("a")["source"]["connected"]
            assert lab.stop("a") == 0
        assert "certificate verify failed" in lab.tail("a") + lab.log("a").read_text()
