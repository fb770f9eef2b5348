"""A new key for the authority, as the guide says, by agents that share sums: no row is lost."""

from contextlib import contextmanager

import numpy as np
import pytest

from dokl.base.errors import BadInput
from dokl.learning.squares import sums
from dokl.live.certificates.signing import Seals
from dokl.live.description import ExchangePolicy, Model, read
from dokl.live.jobs import networks
from dokl.live.sums import forgetting
from dokl.live.sums.forgetting import Fading, Remainder
from dokl.live.transports.memory import Hub
from dokl.network.sums.origins import Entry
from live_networks import on_disk
from memory_agents import WAIT, arrival, made, wait

pytestmark = pytest.mark.usefixtures("learns_whole")  # so nothing waits to be sealed
ROWS = {"a": 40, "b": 30, "c": 45}
TOTAL = sum(ROWS.values())


class Lab:
    """Three agents in a line that know all rows, and what one does with them."""

    def __init__(self, folder):
        self.folder, self.hub, self.agents = folder, Hub(), {}
        policy = ExchangePolicy(every_seconds=0.02, join_seconds=0.1, fewest_rows=20)
        self.path = on_disk(folder, exchange=policy, model=Model(D=20, method="squares")).path

    def start(self, *names):
        for name in names:
            self.agents[name] = made(self.folder, read(self.path), name, hub=self.hub)
            self.agents[name].start()

    def stop(self, *names):
        for name in names:
            self.agents.pop(name).stop()

    def reload(self):
        for agent in self.agents.values():
            agent.reload(self.path).result(WAIT)

    def known(self):
        return {name: agent.status()["sharing"]["rows"] for name, agent in self.agents.items()}

    def settle(self, total=TOTAL):
        wait(lambda: set(self.known().values()) == {total})

    def resealed(self):
        """Wait until everybody has everybody's seal of the present certificates."""
        seals = {name: Seals(read(self.path).certificate_files(name)) for name in ROWS}
        wait(lambda: all(
            seals[origin].made(sealed)
            for agent in self.agents.values()
            for origin, sealed in agent.protocol._way.sealed.items()
        ))  # fmt: skip

    def problems(self, name):
        return self.agents[name].status()["problems"]


@pytest.fixture
def lab(tmp_path, learns_whole):
    with running(tmp_path) as made:
        yield made


@contextmanager
def running(folder):
    lab = Lab(folder)
    lab.start(*ROWS)
    for name, n in ROWS.items():
        lab.agents[name].submit(arrival(n, n)).result(WAIT)
    lab.settle()
    yield lab
    lab.stop(*list(lab.agents))


@pytest.mark.slow
def test_the_authority_gets_a_new_key_and_who_starts_again_knows_all_rows(lab):
    networks.renew_authority(lab.path, "key")
    lab.reload()
    networks.renew(lab.path)
    lab.reload()
    lab.resealed()
    networks.renew_authority(lab.path, "last")
    lab.reload()
    for name in ROWS:
        lab.stop(name)
        lab.start(name)
        lab.settle()
    assert [lab.problems(name) for name in ROWS] == [[], [], []]
    told = {
        origin: entry.sums.rows for origin, entry in lab.agents["a"].protocol._way.account.items()
    }
    assert told == ROWS, "the same rows under new seals"


@pytest.mark.slow
def test_an_authority_that_sums_depend_on_stays_believed(lab):
    """A node is down while all others get their new certificates, and one starts again."""
    networks.renew_authority(lab.path, "key")
    lab.reload()
    lab.stop("c")
    networks.renew(lab.path)
    lab.reload()
    networks.renew_authority(lab.path, "last")
    with pytest.raises(BadInput, match=r"under which the sums of .*c are sealed"):
        lab.agents["b"].reload(lab.path).result(WAIT)
    assert "the sums of" in lab.problems("b")[0]
    lab.stop("a")
    lab.start("a")
    wait(lambda: any("is refused (signature)" in text for text in lab.problems("a")))
    (text,) = lab.problems("a")
    assert "what 'b' sends" in text
    assert "of 'c' that no authority in ca.pem has issued" in text
    wait(lambda: lab.known() == {"a": TOTAL - ROWS["c"], "b": TOTAL})
    lab.start("c")
    lab.settle()
    lab.resealed()
    lab.reload()
    wait(lambda: not any(lab.problems(name) for name in ROWS))
    lab.stop("a")
    lab.start("a")
    lab.settle()


def test_a_renewed_certificate_tells_no_few_rows(lab):
    """A reload seals what was sealed before, and not the rows since."""
    lab.agents["a"].submit(arrival(5, 1)).result(WAIT)
    networks.renew(lab.path, ["a"])
    before = lab.agents["a"].protocol._way.account["a"]
    lab.reload()
    lab.resealed()
    after = lab.agents["b"].protocol._way.account["a"]
    assert after.version > before.version
    assert after.content == before.content


def test_the_same_rows_under_another_seal_are_forgotten_by_nobody():
    Z, Y = np.eye(4)[:3], np.ones((3, 1))
    known = sums.add(sums.no_rows(4, 1), Z, Y)
    left = sums.add(sums.no_rows(4, 1), Z[2:], Y[2:])
    kept = {"b": Remainder(Entry("b", 1, known), (left,))}
    account = {"b": Entry("b", 2, known)}
    now = forgetting.remainders_now(kept, account, (), (Fading(10.0, 4),))["b"]
    assert np.array_equal(now.left[0].zz, left.zz)
    assert now.entry.incarnation == 2
