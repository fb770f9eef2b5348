"""Strangers: foreign certificates, forged keys, other features, malformed messages."""

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zenoh
from lab import MODEL, Lab, free_ports, ring, samples, wait_for

from dokl.live.certificates import Authority, node_files
from dokl.live.certificates.files import new_folder
from dokl.live.description import ExchangePolicy
from dokl.live.protocol import messages
from dokl.live.protocol.messages import THETA, Message
from dokl.live.transports.zenoh_settings import configuration, key

STARTED = time.time_ns()


@contextmanager
def session(network, name, access=False):
    """A raw Zenoh session in a node's place; it does what it likes: no access table of its own."""
    config = zenoh.Config()
    for setting, value in configuration(network, name, 10_000).items():
        if access or setting != "access_control":
            config.insert_json5(setting, json.dumps(value))
    opened = zenoh.open(config)
    try:
        yield opened
    finally:
        opened.close()


def say(opened, where, data):
    opened.put(where, data, congestion_control=zenoh.CongestionControl.BLOCK)


def message(lab, theta, step, incarnation=STARTED):
    """A theta that follows all the rules."""
    learner = lab.network.learner()
    about = (THETA, learner.fingerprint, learner.m, learner.D, 1, incarnation, step)
    return messages.pack(Message(*about, 1000, 1000, 0.0, False, theta, False))


def test_a_hundred_thousand_malformed_messages(tmp_path):
    rng = np.random.default_rng(1)
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start("a", "c")
        lab.neighbours_up("a", "c")
        good = message(lab, np.ones((1, MODEL.D), np.float32), 1)
        memory = resident(lab, "a")
        with session(lab.network, "b") as attacker:
            token = attacker.liveliness().declare_token(key(lab.network, "alive", "b"))
            lab.neighbours_up("a", "b")
            for i in range(100_000):
                kind = "hello" if i % 2 else "theta"
                say(attacker, key(lab.network, kind, "b"), malformed(good, i, rng))
                if i % 10_000 == 0:
                    lab.post("a", *samples(20, i))
            wait_for(lambda: sum(lab.status("a")["refused"].values()) > 10, "refusals are counted")
            refused = lab.status("a")["refused"]
            token.undeclare()
        assert len(refused) >= 3  # several reasons
        assert lab.metric("a", "dokl_messages_refused_total", reason="magic") > 0
        assert resident(lab, "a") < memory + 100
        assert len(lab.lines("a", "message refused")) < 2000  # thinned out
        before = lab.status("a")["exchange"]["combines"]
        for i in range(30):
            lab.post("a", *samples(50, i))
            lab.post("c", *samples(50, 100 + i))
        wait_for(lambda: lab.status("a")["exchange"]["combines"] > before, "a combines with c")
        lab.has_learned("a")
        assert lab.error("a") < 0.2
        assert lab.status("a")["samples"] == 10 * 20 + 30 * 50
        assert np.isfinite(lab.status("a")["theta_norm"])


def malformed(good, i, rng):
    """Something that is wrong in one way or another."""
    way = i // 2 % 5
    if way == 0:
        return rng.bytes(int(rng.integers(0, 600)))
    if way == 1:
        return good[: int(rng.integers(0, len(good)))]
    if way == 2:
        return good + bytes(3)
    if way == 3:  # not finite
        return good[:-4] + np.float32("nan").tobytes()
    return good[:8] + rng.bytes(8) + good[16:]  # another fingerprint


def resident(lab, name):
    """MiB."""
    fields = Path(f"/proc/{lab.processes[name].pid}/statm").read_text().split()
    return int(fields[1]) * 4096 / 2**20


def test_a_neighbour_cannot_speak_in_anothers_name(tmp_path):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start("a")
        with session(lab.network, "b") as forger:
            token = forger.liveliness().declare_token(key(lab.network, "alive", "b"))
            forged = forger.liveliness().declare_token(key(lab.network, "alive", "c"))
            lab.neighbours_up("a", "b")
            for step in range(1, 60):
                attack = message(lab, np.full((1, MODEL.D), 5.0, np.float32), step)
                say(forger, key(lab.network, "theta", "c"), attack)
                time.sleep(0.01)
            time.sleep(1.0)
            seen = lab.status("a")["neighbours"]
            assert seen["b"]["up"]
            assert not seen["c"]["up"]
            assert seen["c"]["received"] == 0
            assert lab.status("a")["theta_norm"] == 0
            # As itself it is heard: what is tested above is not a broken link.
            say(forger, key(lab.network, "theta", "b"),
                message(lab, np.full((1, MODEL.D), 0.1, np.float32), 1))  # fmt: skip
            wait_for(lambda: lab.status("a")["neighbours"]["b"]["received"] == 1, "a hears b")
            token.undeclare()
            forged.undeclare()


def test_a_lying_neighbour_is_bounded_by_the_clip(tmp_path):
    policy = ExchangePolicy(every_seconds=0.05, clip=0.05)
    with Lab(tmp_path, [("a", "b"), ("a", "c")], exchange=policy) as lab:
        lab.start("a", "c")
        lab.neighbours_up("a", "c")
        for i in range(30):
            lab.post("a", *samples(50, i))
        wait_for(lambda: lab.status("a")["learned"] == 1500, "a has begun, and not with b's vector")
        with session(lab.network, "b") as attacker:
            token = attacker.liveliness().declare_token(key(lab.network, "alive", "b"))
            lab.neighbours_up("a", "b")
            for step in range(1, 21):
                attack = message(lab, np.full((1, MODEL.D), 100.0, np.float32), step)
                say(attacker, key(lab.network, "theta", "b"), attack)
                lab.post("a", *samples(50, 50 + step))
            wait_for(lambda: lab.status("a")["neighbours"]["b"]["received"] >= 5, "a hears b")
            said = "'b' is clipped"  # from the first combination on, which may be a moment later
            wait_for(lambda: any(said in text for text in lab.status("a")["assumptions"]), said)
            lab.post("a", *samples(50, 99))
            assert lab.error("a") < 0.25
            token.undeclare()


@pytest.mark.parametrize("how", ["another authority", "no certificate", "plain TCP"])
def test_strangers_stay_outside(tmp_path, how):
    with Lab(tmp_path, ring("a", "b", "c")) as lab:
        lab.start("a", "c")
        lab.neighbours_up("a", "c")
        network = stranger(lab, tmp_path / "foreign", how)
        with session(network, "b") as outside:
            token = outside.liveliness().declare_token(key(network, "alive", "b"))
            heard = []
            where = key(network, "theta", "a")
            subscriber = outside.declare_subscriber(where, lambda sample: heard.append(sample))
            for step in range(1, 30):
                say(outside, key(network, "theta", "b"),
                    message(lab, np.full((1, MODEL.D), 5.0, np.float32), step))  # fmt: skip
                lab.post("a", *samples(20, step))
                time.sleep(0.05)
            seen = lab.status("a")["neighbours"]["b"]
            assert not seen["up"]
            assert seen["received"] == 0
            assert not heard
            assert lab.metric("a", "dokl_neighbour_up", neighbour="b") == 0
            assert lab.metric("a", "dokl_neighbour_up", neighbour="c") == 1
            subscriber.undeclare()
            token.undeclare()


def stranger(lab, folder, how):
    """The network as somebody without its certificates would try to join it."""
    folder.mkdir()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    nodes = {**lab.network.nodes, "b": replace(lab.network.node("b"), address=address)}
    routes = {"b->a": lab.network.node("a").address, "b->c": lab.network.node("c").address}
    about = lab.network.about
    if how != "another authority":
        about = replace(about, security="insecure-loopback")
    network = replace(
        lab.network, about=about, nodes=nodes, routes=routes, path=folder / "lab.toml"
    )
    if how == "another authority":
        authority = Authority.new("lab")
        content = authority.files() | node_files(network, "b", authority, 30)
        with new_folder(network.folder, content):
            pass
    return network


def test_other_features_are_refused_at_hello_naming_both_fingerprints(tmp_path):
    (tmp_path / "ours").mkdir()
    with Lab(tmp_path / "ours", ring("a", "b")) as lab:
        lab.start("a")
        lab.write(replace(lab.network, model=replace(MODEL, seed=4)))  # b gets another Omega
        lab.start("b")
        theirs, ours = lab.network.fingerprint, lab.status("a")["fingerprint"]
        wait_for(lambda: lab.status("a")["refused"].get("fingerprint"), "a refuses b")
        text = lab.lines("a", "message refused")[0]["text"]
        assert theirs in text
        assert ours in text
        lab.post("b", *samples(50, 1))
        lab.post("a", *samples(50, 2))
        time.sleep(0.5)
        assert lab.status("a")["neighbours"]["b"]["received"] == 0
        assert lab.status("a")["exchange"]["combines"] == 0
        assert lab.metric("a", "dokl_messages_refused_total", reason="fingerprint") > 0
