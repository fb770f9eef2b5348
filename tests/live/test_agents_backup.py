"""Copies of journals: of one moment while the agent runs, and the way back with a later start."""

import fcntl
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from dokl.base.errors import BadFile, BadInput
from dokl.cli.agent import agent as command
from dokl.live.description import ExchangePolicy, Model
from dokl.live.description.text import text
from dokl.live.jobs.agents import accept_loss, identity, state_folder
from dokl.live.jobs.backup import backup, restore
from dokl.live.store import AuditLog, RowsMissing, Store, audit_path, read_saved
from dokl.live.transports.memory import Hub
from live_networks import small
from memory_agents import WAIT, arrival, killed, made, starting, wait

OFF = ExchangePolicy(mode="off")


@pytest.fixture
def lab(tmp_path):
    """A description on disk, and the folder of its journals."""
    network = small(tmp_path / "lab.toml", exchange=OFF)
    network.path.write_text(text(network))
    state_folder(network.path).mkdir(mode=0o700)
    return network


def folder(network):
    return state_folder(network.path)


def learned(network, *seeds, **options):
    """An agent that has learned 40 rows of each seed, and was ended in order."""
    agent = made(folder(network), network, **options)
    agent.start()
    for seed in seeds:
        agent.submit(arrival(40, seed, key=f"batch {seed}")).result(WAIT)
    agent.stop()
    return agent


def rows_of(network, path):
    _, learned, batches = read_saved(path, identity(network, "a"))
    return learned + sum(len(X) for X, _ in batches)


def test_a_running_agent_is_copied_at_one_moment(lab, tmp_path):
    to = tmp_path / "a.backup"
    with starting(folder(lab)) as start:
        agent = start(lab)
        agent.submit(arrival(40, 1)).result(WAIT)
        found = backup(lab.path, "a", to)
        agent.submit(arrival(40, 2)).result(WAIT)
        with pytest.raises(BadFile, match="has this store open"):
            restore(lab.path, "a", to, overwrite=True)
        assert agent.status()["samples"] == 80
    assert (found.rows, found.bytes) == (40, to.stat().st_size)
    assert rows_of(lab, to) == 40
    assert to.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.glob("a.backup*")] == ["a.backup"]


def test_a_restored_node_predicts_as_then_and_counts_what_is_lost(lab, tmp_path):
    to, X = tmp_path / "a.backup", np.ones((2, 3)) / 3
    first = learned(lab, 1)
    said = first.predict(X)
    backup(lab.path, "a", to)
    later = learned(lab, 2)
    assert later.predict(X) != said
    before = (folder(lab) / "a.db").read_bytes()
    with pytest.raises(BadInput, match="there is a store already, with 80 rows"):
        restore(lab.path, "a", to)
    assert (folder(lab) / "a.db").read_bytes() == before
    found = restore(lab.path, "a", to, overwrite=True)
    assert (found.rows, found.lost, found.replaced) == (40, 40, True)
    again = learned(lab)
    assert again.predict(X) == said
    assert again.status()["journal"]["lost_rows"] == 40
    assert rows_of(lab, folder(lab) / "a.db.replaced") == 80
    # What is gone can be sent once more, under the same key; what is not is known.
    agent = learned(lab, 1, 2)
    assert agent.status()["samples"] == 80
    assert agent.status()["requests"]["repeated"] == 1


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_restored_node_speaks_with_a_later_incarnation(lab, tmp_path, elsewhere):
    """Also where the clock was set back: the old journal knows what was said last."""
    to = tmp_path / "a.backup"
    learned(lab, 1)
    backup(lab.path, "a", to)
    path, about = folder(lab) / "a.db", (identity(lab, "a"), "process", lab.limits)
    ahead = 2 * 10**18
    Store.open(path, *about, now_ns=ahead).close()
    if elsewhere:
        for part in folder(lab).glob("a.db*"):
            part.unlink()
    found = restore(lab.path, "a", to, overwrite=True)
    store = Store.open(path, *about, now_ns=1)
    last = store.incarnation
    store.close()
    assert last > found.incarnation
    assert found.incarnation > (0 if elsewhere else ahead)
    assert found.lost == 0


def test_a_power_cut_in_the_middle_is_noticed(lab, tmp_path, monkeypatch):
    to = tmp_path / "a.backup"
    learned(lab, 1)
    backup(lab.path, "a", to)
    learned(lab, 2)

    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dokl.live.store.copies._put_aside", cut)
    with pytest.raises(KeyboardInterrupt):
        restore(lab.path, "a", to, overwrite=True)
    with pytest.raises(RowsMissing):
        learned(lab)
    monkeypatch.undo()
    restore(lab.path, "a", to, overwrite=True)
    assert learned(lab).status()["samples"] == 40


def test_what_is_no_copy_of_this_node_is_refused(lab, tmp_path):
    to = tmp_path / "a.backup"
    with pytest.raises(BadInput, match="there is no journal of 'a'"):
        backup(lab.path, "a", to)
    learned(lab, 1)
    backup(lab.path, "a", to)
    with pytest.raises(BadInput, match="exists"):
        backup(lab.path, "a", to)
    with pytest.raises(BadInput, match="'a'"):
        restore(lab.path, "b", to)
    assert not (folder(lab) / "b.db").exists()
    whole = to.read_bytes()
    for cut in (100, len(whole) // 2):
        to.write_bytes(whole[:cut])
        with pytest.raises(BadFile, match="damaged"):
            restore(lab.path, "a", to, overwrite=True)
    at = whole.index(b"batch 1")
    to.write_bytes(whole[:at] + b"BATCH" + whole[at + 5 :])
    with pytest.raises(BadFile, match=r"damaged \(row 1 missing from index \S+\)$"):
        restore(lab.path, "a", to, overwrite=True)
    assert learned(lab).status()["samples"] == 40
    with pytest.raises(BadInput, match="no such file"):
        restore(lab.path, "a", tmp_path / "nothing")


def test_others_take_a_restored_origin_of_sums_for_the_newer_one(tmp_path):
    policy = ExchangePolicy(every_seconds=0.02, join_seconds=0.1, fewest_rows=5)
    network = small(
        tmp_path / "lab.toml",
        links=(("a", "b"),),
        exchange=policy,
        model=Model(D=20, method="squares"),
    )
    network.path.write_text(text(network))
    folder(network).mkdir(mode=0o700)
    hub, to = Hub(), tmp_path / "a.backup"
    with starting(folder(network)) as start:
        b = start(network, "b", hub=hub)
        a = made(folder(network), network, "a", hub=hub)
        a.start()
        a.submit(arrival(40, 1)).result(WAIT)
        knows = lambda: b.status()["sharing"]["origins"].get("a", -1)  # noqa: E731
        wait(lambda: knows() > 35)  # fewer than five rows may be held back
        backup(network.path, "a", to)
        a.submit(arrival(40, 2)).result(WAIT)
        wait(lambda: knows() > 75)
        a.stop()
        restore(network.path, "a", to, overwrite=True)
        a = start(network, "a", hub=hub)
        # It cannot know which of its rows are in what it said since, and takes that back first.
        wait(lambda: knows() == 0)
        a.submit(arrival(50, 3)).result(WAIT)
        wait(lambda: knows() > 85)
        assert not b.status()["problems"]


# -- who did it --------------------------------------------------------------------------------
def test_commands_are_in_the_audit_log_and_stay_there(lab, tmp_path):
    to, run = tmp_path / "a.backup", CliRunner()
    learned(lab, 1)
    for given in (
        ["backup", str(lab.path), "--name", "a", str(to)],
        ["restore", str(lab.path), "--name", "a", str(to), "--overwrite", "--json"],
    ):
        done = run.invoke(command, given)
        assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 40
    agent = made(folder(lab), lab)
    agent.start()
    lab.path.write_text(
        text(replace(lab, about=replace(lab.about, links=(("a", "c"), ("b", "c")))))
    )
    agent.reload(lab.path).result(WAIT)
    lab.path.write_text("nonsense")
    with pytest.raises(BadInput):
        agent.reload(lab.path).result(WAIT)
    killed(agent)
    lab.path.write_text(text(lab))
    accept_loss(lab.path, "a")
    found = AuditLog(audit_path(folder(lab) / "a.db")).lines()
    events = ["backup", "restore", "reload", "reload", "accept-loss"]
    assert [line["event"] for line in found] == events
    assert {line["node"] for line in found} == {"a"}
    assert all(line["by"] and line["pid"] == os.getpid() and line["at"] for line in found)
    assert found[2]["neighbours"] == ["-b", "+c"]
    assert (found[2]["ok"], found[3]["ok"]) == (True, False)
    assert found[3]["why"]


def test_the_audit_log_is_bounded_and_only_grows_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr("dokl.live.store.audit.MOST_BYTES", 2000)
    log = AuditLog(tmp_path / "a.audit.jsonl")
    for i in range(200):
        assert log("reload", "a", number=i, why="x" * 10_000 if i == 150 else "")
    found = log.lines()
    numbers = [line["number"] for line in found]
    assert numbers == list(range(numbers[0], 200)), "the newest, none missing, in order"
    assert max(len(str(line.get("why"))) for line in found) <= 4000
    assert len(list(tmp_path.iterdir())) == 5
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5 * 2000 + 5000
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    with open(log.path, "ab") as file:
        file.write(b'{"at": "half a li')
    assert log.lines() == found, "a line that was cut short harms no other"


def test_an_audit_log_waits_for_nobody_who_keeps_its_folder_locked(tmp_path):
    log = AuditLog(tmp_path / "a.audit.jsonl")
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        assert log("reload", "a")
    finally:
        os.close(other)
    assert [line["event"] for line in log.lines()] == ["reload"]


def test_an_audit_log_that_cannot_be_written_stops_nobody(tmp_path):
    assert not AuditLog(tmp_path / "nowhere" / "a.audit.jsonl")("reload")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert not AuditLog(tmp_path / "link")("reload")
    assert not (tmp_path / "elsewhere").exists()
