"""Going back: snapshots of earlier moments are kept, bounded, and can be taken up again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dokl.base.errors import BadFile, BadInput
from dokl.cli.agent import agent as command
from dokl.live.agent.clock import Clock
from dokl.live.agent.runtime import Agent
from dokl.live.description import Durability, ExchangePolicy, Model
from dokl.live.description.text import text
from dokl.live.inputs import Arrival
from dokl.live.jobs.agents import identity
from dokl.live.jobs.rollback import moment, rollback, snapshots_of
from dokl.live.store import Store, stored_snapshots
from dokl.live.store.snapshots import StoredSnapshot, keep, too_many
from dokl.live.transports.memory import Hub, MemoryTransport
from live_networks import small

OFF = ExchangePolicy(mode="off")


pytestmark = pytest.mark.usefixtures("learns_whole")


class SetClock(Clock):
    """A wall clock that goes on to the next of these times with every n rows that are stored, so
    that a turn of the agent before they come does not see it.
    """

    def __init__(self, store, times, n):
        self.store, self.times, self.n, self.before = store, times or (1e9,), n, store.samples

    def wall(self):
        return self.times[max(0, (self.store.samples - self.before) // self.n - 1)]


@pytest.fixture
def lab(tmp_path):
    """A description on disk, and agents of it that learn rows at set times."""
    network = small(tmp_path / "lab.toml", exchange=OFF, durability=Durability(keep_minutes=1.0))
    network.path.write_text(text(network))
    (tmp_path / "lab.state").mkdir(mode=0o700)
    return network


def learned(network, name, *times, n=20):
    """An agent that takes n rows at each of these times; its state then, and its store's counts."""
    store = Store.open(
        network.path.parent / "lab.state" / f"{name}.db", identity(network, name), "process",
        network.limits,
    )  # fmt: skip
    clock = SetClock(store, times, n)
    agent = Agent(network, name, store, MemoryTransport(network, name, hub=Hub()), clock)
    agent.start()
    try:
        states = []
        for at in times:
            X = np.random.default_rng(int(at)).normal(size=(n, 3))
            agent.submit(Arrival(X, np.sin(X[:, :1]))).result(20)
            states.append(agent.protocol.packed_state())
        return states or [agent.protocol.packed_state()], agent.status()
    finally:
        agent.stop()


def test_a_node_is_as_it_was_at_a_time(lab):
    states, _ = learned(lab, "a", 1000.0, 1100.0, 1110.0, 1200.0)
    there = snapshots_of(lab.path)["a"]
    assert [(each.at, each.learned) for each in there] == [(1000.0, 20), (1100.0, 40), (1200.0, 80)]
    done = rollback(lab.path, 1150.0, ["a"])["a"]
    assert (done.at, done.learned, done.undone) == (1100.0, 40, 40)
    (now,), status = learned(lab, "a")
    assert now == states[1]
    assert status["samples"] == 80, "what was acknowledged stays so"
    assert status["journal"]["lost_rows"] == 40, "and what is not learned is told"
    (further,), status = learned(lab, "a", 2000.0)
    assert status["samples"] == 100
    assert learned(lab, "a")[0] == [further]


def test_a_node_that_shares_sums_goes_back_as_well(lab):
    lab = replace(lab, model=Model(D=20, method="squares", own_components=20))
    lab.path.write_text(text(lab))
    states, _ = learned(lab, "a", 1000.0, 1100.0, 1200.0)
    done = rollback(lab.path, 1150.0, ["a"])["a"]
    assert (done.at, done.learned, done.undone) == (1100.0, 40, 20)
    assert learned(lab, "a")[0] == [states[1]]


def test_all_nodes_of_a_machine_go_back_together_or_none(lab):
    early = {name: learned(lab, name, 1000.0, 2000.0)[0][0] for name in ("a", "b")}
    learned(lab, "c", 2000.0)
    with pytest.raises(BadInput, match="no snapshot is kept from before"):
        rollback(lab.path, 1500.0)
    assert learned(lab, "a")[0] != [early["a"]], "nobody went back"
    assert set(rollback(lab.path, 1500.0, ["a", "b"])) == {"a", "b"}
    for name in ("a", "b"):
        assert learned(lab, name)[0] == [early[name]]


def test_an_agent_that_runs_is_not_rolled_back(lab):
    learned(lab, "a", 1000.0)
    learned(lab, "b", 1000.0)
    path = lab.path.parent / "lab.state" / "b.db"
    store = Store.open(path, identity(lab, "b"), "process", lab.limits)
    try:
        with pytest.raises(BadFile, match=r"b\.db"):
            rollback(lab.path, 1500.0, ["a", "b"])
    finally:
        store.close()
    assert learned(lab, "a")[1]["journal"]["lost_rows"] == 0


def test_a_damaged_or_foreign_snapshot_is_refused(lab):
    learned(lab, "a", 1000.0, 2000.0)
    learned(lab, "b", 1000.0)
    (first, second), (other,) = (snapshots_of(lab.path)[name] for name in ("a", "b"))
    data = bytearray(first.path.read_bytes())
    data[-9] ^= 1
    first.path.write_bytes(bytes(data))
    with pytest.raises(BadFile, match="cannot be read"):
        rollback(lab.path, 1500.0, ["a"])
    second.path.write_bytes(other.path.read_bytes())
    with pytest.raises(BadFile, match="of another node"):
        rollback(lab.path, 2500.0, ["a"])


def test_few_are_kept_and_they_reach_far_back(tmp_path):
    place = tmp_path / "a.db"
    about = {"name": "a", "fingerprint": "f00d", "m": 1, "D": 2, "d": 3}
    for i in range(300):
        keep(place, about, b"x" * 100, i, 600.0 * i, most=12)
    times = [each.at for each in stored_snapshots(place)]
    assert len(times) == 12
    assert times[-1] == 600.0 * 299
    assert times[0] == 0.0
    ages = [times[-1] - at for at in times[:-1]]
    assert sum(age <= 6 * 3600 for age in ages) >= 4, "and the last hours have several"
    assert {path.suffix for path in (tmp_path / "a.kept").iterdir()} == {".snapshot"}


def test_they_are_bounded_in_bytes_and_the_newest_stays():
    all_of_them = [StoredSnapshot(float(i), i, 1000, Path(str(i))) for i in range(10)]
    left = [each for each in all_of_them if each not in too_many(all_of_them, 100, 3500)]
    assert len(left) == 3
    assert left[-1].at == 9
    assert len(too_many(all_of_them, 100, 10)) == 9


def test_none_are_kept_where_that_is_off(lab):
    learned(replace(lab, durability=Durability(keep_minutes=0.0)), "a", 1000.0, 2000.0)
    assert snapshots_of(lab.path)["a"] == []


def test_times_are_understood_or_refused():
    assert moment("1970-01-02T00:00:00+00:00", 0.0) == 86400.0
    assert moment("3d", 86400.0 * 10) == 86400.0 * 7
    with pytest.raises(BadInput, match="is not a time"):
        moment("yesterday", 0.0)


def test_the_command(lab):
    learned(lab, "a", 1000.0, 2000.0)
    run = CliRunner().invoke
    listed = run(command, ["rollback", str(lab.path), "--list"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines()] == ["a", "a"]
    assert "40 rows" in listed.output
    done = run(command, ["rollback", str(lab.path), "--to", "1970-01-01T00:25:00Z"])
    assert done.exit_code == 0
    assert "after 20 rows; 20 rows since are undone" in done.output
    assert run(command, ["rollback", str(lab.path)]).exit_code == 2
