"""Logs of rows: what any interleaving of loss, repetition, reordering, partition, restart and fork
leaves.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dokl.base.errors import BadInput
from dokl.live.protocol import batches, logs, row_sharing
from dokl.live.protocol.logs import OriginLog
from dokl.live.protocol.messages import HAVE, ROWS, mark_of
from row_net import CONTEXT, LINKS, NAMES, Disk, Net, chain, entry, forged, values, without

WHO, LINK = st.sampled_from(NAMES), st.sampled_from(LINKS)
WAY = st.sampled_from([w for a, b in LINKS for w in ((a, b), (b, a))])
STEP = st.one_of(
    st.tuples(st.just("row"), WHO),
    st.tuples(st.just("tick"), WHO, st.sampled_from([0.0, 0.3, 1.0])),
    st.tuples(st.just("deliver"), WAY, st.integers(0, 3), st.booleans(), st.booleans()),
    st.tuples(st.just("cut"), LINK),
    st.tuples(st.just("join"), LINK),
    st.tuples(st.just("crash"), WHO),
)
FORK = st.one_of(STEP, st.tuples(st.just("backup"), WHO), st.tuples(st.just("restore"), WHO))
FEW = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def tips(net):
    return [
        {name: (log.end, log.tip) for name, log in node.logs.items()} for node in net.nodes.values()
    ]


def run(net, steps):
    for what, *about in steps:
        if what == "backup":
            net.backups[about[0]] = net.nodes[about[0]].disk.copy()
        elif what == "restore":
            if about[0] in net.backups:
                net.crash(about[0], net.backups[about[0]])
        else:
            getattr(net, what)(*about)


@FEW
@given(st.lists(STEP, max_size=120))
def test_every_row_is_heard_once_everywhere(steps):
    net = Net()
    run(net, steps)
    net.settle()
    own = {name: net.nodes[name].disk.rows for name in NAMES}
    everything = sorted((name, y) for name in NAMES for y in own[name])
    for node in net.nodes.values():
        assert sorted(node.heard) == everything
        for name in NAMES:
            assert [y for who, y in node.heard if who == name] == own[name]
            log = node.logs.get(name, OriginLog())
            assert (log.end, log.forks, log.missing) == (len(own[name]), 0, 0)
        assert not node.notices


@FEW
@given(st.lists(FORK, max_size=160))
def test_logs_agree_after_forks(steps):
    net = Net()
    run(net, steps)
    net.settle(20.0)
    for name in NAMES:  # where rows were lost, the next one says so
        net.row(name)
    net.settle()
    first, *others = tips(net)
    assert all(other == first for other in others)
    for name in NAMES:
        assert values(net.nodes["a"].logs[name]) == net.nodes[name].disk.rows
    for node in net.nodes.values():
        heard = node.protocol._way.learner.next_rows(node.protocol.state)
        assert {name: heard[name] for name in node.logs} == {n: g.end for n, g in node.logs.items()}


@FEW
@given(st.lists(FORK, max_size=160), st.integers(3, 12))
def test_little_is_kept(steps, kept):
    net = Net(kept=kept)
    run(net, steps)
    for node in net.nodes.values():
        for log in node.logs.values():
            assert log.end - log.base <= kept or len(log.batches) == 1
            assert all(a.end == b.first for a, b in zip(log.batches, log.batches[1:], strict=False))


def test_a_batch_travels_once_over_each_direction():
    net = Net()
    for _ in range(40):
        for name in NAMES:
            net.row(name)
        net.settle(1.0)
    net.settle(20.0)
    total = sum(len(log.batches) for log in net.nodes["a"].logs.values())
    for node in net.nodes.values():
        sent = [sealed for body in node.floods for sealed in batches.unpack_batches(body, {})]
        assert len(sent) == len(set(sent)) <= total


def test_an_old_backup_forks_and_everybody_hears_of_it():
    net = Net()
    for _ in range(3):
        net.row("a")
    net.settle(5.0)
    backup = net.nodes["a"].disk.copy()
    for _ in range(4):
        net.row("a")
    net.settle(5.0)
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    net.crash("a", backup)
    for _ in range(2):
        net.row("a")
    for _ in range(30):  # alone, it seals after a while
        net.tick("a", 0.2)
    net.settle(30.0)
    assert {node.logs["a"].end for node in net.nodes.values()} == {5}
    for node in net.nodes.values():
        assert node.logs["a"].forks
        assert any("'a' has sealed different rows" in text for text in node.protocol.disputes())


def test_what_a_journal_lost_is_lost_for_all_and_told():
    net = Net(kept=4)
    for _ in range(9):
        net.row("a")
        net.settle(1.0)
    assert net.nodes["c"].logs["a"].end == 9
    net.crash("a", Disk())
    net.incarnation = 1  # and its clock was set back
    net.nodes["a"].protocol._node.incarnation = 1
    net.row("a")
    net.settle(30.0)
    for node in net.nodes.values():
        assert values(node.logs["a"]) == net.nodes["a"].disk.rows == [10.0]
        assert node.logs["a"].forks


def test_who_was_away_for_long_goes_on_with_what_is_kept():
    net = Net(kept=8)
    for link in (("c", "d"), ("d", "a")):
        net.cut(link)
    for _ in range(30):
        net.row("a")
        for name in "abc":
            net.tick(name, 0.4)
        for way in net.queues:
            while net.queues[way]:
                net.deliver(way)
    net.settle(30.0)
    far = net.nodes["d"].logs["a"]
    assert far.end == 30
    assert far.missing >= 20
    found = net.nodes["d"].protocol._way.remarks(net.now)
    assert found == [f"{far.missing} rows of 'a' are no longer kept"]


def test_a_crash_loses_no_row_that_was_learned_and_is_no_longer_kept():
    net = Net(kept=8)
    for _ in range(40):
        net.row("a")
        net.settle(0.7)
    for name in "ac":
        assert net.nodes[name].logs["a"].base > 20
        net.crash(name)
    net.settle(30.0)
    for node in net.nodes.values():
        assert [y for who, y in node.heard if who == "a"] == net.nodes["a"].disk.rows


def test_forks_of_one_start_are_followed_only_so_often():
    log, taken = OriginLog(), 0
    for i in range(400):
        batch = batches.read_batch(CONTEXT, entry([[float(i)]], [[0.0]]))
        log, what = logs.add(log, batch, 100)
        taken += what == logs.NEW
    assert taken <= logs.MOST_FORKS + 1
    assert len(log.batches) == 1


def test_own_batches_that_are_no_longer_kept_are_no_fork():
    """Others keep a little more, and answer each other's questions, which this node reads, too."""
    net = Net(kept=4)
    net.row("a")
    net.settle(1.0)
    (old,) = net.nodes["b"].logs["a"].batches
    for _ in range(8):
        net.row("a")
        net.settle(1.0)
    node, before = net.nodes["a"], net.nodes["a"].logs["a"]
    assert before.base > old.end
    body = batches.pack_batches([old], set())
    node.do(node.protocol.message, "b", forged(net, "b", ROWS, body), net.now)
    assert node.logs["a"] is before
    assert not node.notices


@pytest.mark.parametrize("more", [9, 11, 20])
def test_logs_agree_after_a_fork_whose_place_nobody_keeps(more):
    """It came back from an old backup while one node was away, and much has come since."""
    net = Net(kept=4)
    for _ in range(3):
        net.row("a")
        net.settle(0.8)
    backup = net.nodes["a"].disk.copy()
    for _ in range(9):
        net.row("a")
        net.settle(0.8)
    for link in (("c", "d"), ("d", "a")):
        net.cut(link)
    net.crash("a", backup)
    net.settle_some("abc", 2.0)
    for _ in range(more):
        net.row("a")
        net.settle_some("abc", 0.8)
    net.settle(20.0)
    first, *others = tips(net)
    assert all(other == first for other in others)
    assert values(net.nodes["d"].logs["a"]) == net.nodes["a"].disk.rows[-4:]


def lost_a_journal(kept):
    """Node a has rows of o from before that lost its journal, as many batches of them; of those
    since, b has the last ten alone and d has all 60. a has just met both.
    """
    net = Net(more=("o",))
    for link in LINKS:
        net.cut(link)
    context = net.nodes["a"].protocol._way.context
    old, new = (chain(context, "o", *about) for about in ((10, 1), (6, 2)))
    for node, log in (("a", old[-kept:]), ("b", new[-1:]), ("d", new)):
        way = net.nodes[node].protocol._way
        way.logs = {**way.logs, "o": OriginLog(tuple(log))}
    return net


@pytest.mark.parametrize("kept", [10, 2, 5])
def test_a_log_that_began_again_is_taken_from_who_has_most_of_it(kept):
    """The one that has only its end answers first."""
    net = lost_a_journal(kept)
    net.join(("a", "b"))
    net.join(("d", "a"))
    without(net, ("d", "a"), [], 3.0)
    net.settle_some(("a", "b", "d"), 20.0)
    log = net.nodes["a"].logs["o"]
    assert values(log) == np.arange(60.0).tolist()
    assert log.missing == 0


@pytest.mark.parametrize("kept", [10, 2, 5])
def test_rows_that_a_log_began_with_and_nobody_has_are_missing(kept):
    net = lost_a_journal(kept)
    net.join(("a", "b"))
    net.settle_some(("a", "b"), 20.0)
    log = net.nodes["a"].logs["o"]
    assert (log.base, log.end, log.missing) == (50, 60, 50)
    found = net.nodes["a"].protocol._way.remarks(net.now)
    assert found == ["up to 50 rows of 'o' are no longer kept"]


def test_own_rows_that_cannot_be_sealed_wait(monkeypatch):
    """Its key cannot be read, say; an agent reports that, and goes on."""
    net = Net()
    net.row("a")

    def sealed(entry):
        raise BadInput("no key")

    with monkeypatch.context() as patch:
        patch.setattr(net.nodes["a"].protocol._way.roll.seals, "seal", sealed)
        for _ in range(3):
            with pytest.raises(BadInput):
                net.tick("a", 1.0)
    net.settle(5.0)
    assert [values(node.logs["a"]) for node in net.nodes.values()] == [[1.0]] * 4


def test_a_log_that_begins_again_at_its_first_row_misses_none_of_before():
    old, new = (chain(CONTEXT, "o", 6, start) for start in (1, 2))
    log, what = logs.add(OriginLog((old[-1],), missing=50), new[0], 100)
    assert (what, log.base, log.missing) == (logs.NEW, 0, 0)


@pytest.mark.parametrize("size", [1, 200_000])
def test_a_fork_is_found_behind_many_rows_that_are_no_longer_kept(size, monkeypatch):
    """Who answers keeps more of what both once had than one answer holds."""
    monkeypatch.setattr(row_sharing, "MESSAGE", size)
    net = lost_a_journal(2)
    way = net.nodes["d"].protocol._way
    old = chain(way.context, "o", 5, 1)
    way.logs = {**way.logs, "o": OriginLog((*old, *chain(way.context, "o", 6, 2, old[-1])))}
    net.join(("d", "a"))
    net.settle_some("ad", 20.0)
    log = net.nodes["a"].logs["o"]
    assert (log.base, log.end, log.missing) == (50, 110, 0)


def test_who_claims_the_start_of_a_log_holds_nobody_up_for_long():
    net = lost_a_journal(10)
    net.join(("a", "b"))
    net.join(("d", "a"))
    have = forged(net, "d", HAVE, logs._VERSION.pack(mark_of("o"), 0, 1_000, b"x" * 8))
    without(net, ("d", "a"), [have], 25.0)
    assert net.nodes["a"].logs["o"].end == 100
    without(net, ("d", "a"), [have], 35.0)
    assert net.nodes["a"].logs["o"].end == 60
