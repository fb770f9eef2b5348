"""Messages of earlier versions are read, and sent in the same bytes; other layouts are refused."""

from contextlib import closing

import numpy as np
import pytest

from dokl.live.description import read
from dokl.live.jobs.agents import identity
from dokl.live.protocol.messages import HELLO, THETA, Refused, pack, unpack
from dokl.live.store import Store
from old_journals import GOLDEN, expected, old_network


@pytest.fixture
def network(tmp_path):
    return read(old_network(tmp_path, range(7000, 7004)))


def test_a_description_of_an_earlier_version_has_its_fingerprint(network):
    assert network.fingerprint == expected("a")["fingerprint"] == expected("b")["fingerprint"]


@pytest.mark.parametrize(("name", "kind"), [("hello", HELLO), ("theta", THETA)])
def test_messages_are_as_they_were(network, name, kind):
    data = (GOLDEN / f"{name}.bin").read_bytes()
    like = {"fingerprint": network.fingerprint, "m": 1, "D": 20}
    message = unpack(data, **like)
    assert (message.kind, message.step, message.learned, message.wall) == (kind, 9, 40, 12.5)
    if kind == THETA:
        np.testing.assert_array_equal(message.theta[0], np.arange(20, dtype=np.float32) / 7)
    assert pack(message) == data
    with pytest.raises(Refused, match="message layout 2, this node reads 1"):
        unpack(data[:4] + b"\x02" + data[5:], **like)


@pytest.mark.parametrize("name", ["a", "b"])
def test_journals_are_brought_up_to_date_and_say_the_same(network, name, tmp_path):
    path = tmp_path / "lab.state" / f"{name}.db"
    store = Store.open(path, identity(network, name), network.durability.mode, network.limits)
    with closing(store):
        _says_the_same(network, store, name)


def _says_the_same(network, store, name):
    learner = network.learner()
    packed, _, batches = store.restore()
    state = learner.start() if packed is None else learner.unpack(packed)
    for X, Y in batches:
        state, _ = learner.learn(state, X, Y)
    assert (store.samples, store.waiting_count) == (40, 1)
    assert store.offset("nobody") is None
    asked = np.array(expected(name)["asked"])
    said = learner.answers(learner.predict(state, asked))
    assert said == expected(name)["predictions"]
