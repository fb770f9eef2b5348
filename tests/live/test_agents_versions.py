"""Neighbours say of which version of dokl they are: shown, and good for nothing else."""

import numpy as np

from dokl import __version__
from dokl.live.http import gauges
from dokl.live.protocol import messages
from dokl.live.protocol import node as nodes
from dokl.live.protocol.messages import (
    HEADER,
    HELLO,
    MOST_REFUSALS,
    Message,
    RefusalNotice,
    mark_of,
)
from dokl.live.transports.memory import Hub
from fake_link import described, grown, reasons
from live_networks import small
from memory_agents import starting, wait

LEARNER = described().learner()
GIVEN = {"fingerprint": LEARNER.fingerprint, "m": LEARNER.m, "D": LEARNER.D}


def hello(release, refusals=(), incarnation=7, wall=1.0):
    about = LEARNER.fingerprint, LEARNER.m, LEARNER.D, 1, incarnation, 0
    return messages.pack(Message(HELLO, *about, wall=wall, refusals=refusals, release=release))


def test_a_hello_says_it_and_earlier_versions_pass_over_it(monkeypatch):
    refusals = tuple(RefusalNotice(mark_of(f"n{i}"), i, "stale") for i in range(MOST_REFUSALS + 5))
    data = hello("0.2.1.dev4", refusals)
    found = messages.unpack(data, **GIVEN)
    assert found.release == "0.2.1"
    assert found.refusals == refusals[: MOST_REFUSALS - 1]
    assert len(data) == HEADER.size + 17 * MOST_REFUSALS, "as long as it may be for any version"
    # An earlier version knows no such reason, and so leaves the record out.
    assert len(messages.SAID) <= messages.OF_RELEASE
    assert messages.unpack(hello(""), **GIVEN).release == ""


def test_a_claim_is_shown_and_changes_nothing():
    node = grown(LEARNER, np.random.default_rng(0))
    before = node.facts()["neighbours"]["n01"]
    assert before["release"] == ""
    for i, number in enumerate((0, 1, 2**64 - 1)):
        data = hello("1.0", wall=2.0 + i)
        record = messages.REFUSAL.pack(messages.RELEASE, number, messages.OF_RELEASE)
        data = data[: HEADER.size] + record * (1 + i)
        assert reasons(node.message("n01", data, 2.0 + i)) == []
        after = node.facts()["neighbours"]["n01"]
        assert len(after["release"]) <= 24
        changed = {key for key in before if after[key] != before[key]}
        assert changed <= {"release", "count", "learned"}


def test_agents_of_two_versions_show_it_to_prometheus(tmp_path, monkeypatch):
    network, hub = small(links=(("a", "b"),)), Hub()
    with starting(tmp_path) as start:
        a = start(network, "a", hub=hub)
        monkeypatch.setattr(nodes, "__version__", "99.1.0")
        start(network, "b", hub=hub)
        wait(lambda: a.status()["neighbours"]["b"]["version"] == "99.1.0")
        text = gauges.text(a.status()).decode()
        assert 'dokl_neighbour_version_skew{neighbour="b"} 1.0' in text
        assert "99.1.0" not in text, "others must not make up labels"
    with starting(tmp_path) as start:
        monkeypatch.setattr(nodes, "__version__", __version__)
        hub = Hub()
        a, _ = (start(network, name, hub=hub) for name in "ab")
        wait(lambda: a.status()["neighbours"]["b"]["version"] is not None)
        assert 'dokl_neighbour_version_skew{neighbour="b"} 0.0' in gauges.text(a.status()).decode()
