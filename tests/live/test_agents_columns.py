"""Networks that share rows, and whose columns change: earlier rows become rows of now."""

import json
from dataclasses import replace

import numpy as np
import pytest

from commands import dokl, fails
from dokl.base.arrays import FLOAT32
from dokl.base.errors import BadFile, BadInput
from dokl.estimators import AutoRegressor
from dokl.learning.columns import Preprocessor
from dokl.learning.experts import predicting
from dokl.live.agent.reloading import reload_description
from dokl.live.agent.rolls import roll_of
from dokl.live.certificates.signing import Seals
from dokl.live.description import AgreedInputs, ExchangePolicy, Model, parse, read
from dokl.live.description.epochs import column_map
from dokl.live.description.inspection import nonsense
from dokl.live.description.text import text
from dokl.live.inputs import Inputs
from dokl.live.jobs.agents import earlier_identities, identity
from dokl.live.jobs.inputs import changed_columns
from dokl.live.protocol import Protocol
from dokl.live.protocol.batches import NOTHING, pack_entry, read_batch, read_rows
from dokl.live.protocol.effects import Refuse, SendHello, SendTheta
from dokl.live.rows import ColumnMap
from dokl.live.store import Store
from dokl.live.transports.memory import Hub
from live_networks import small
from memory_agents import WAIT, killed, made, starting, wait

pytestmark = pytest.mark.usefixtures("short_searches")

MODEL = Model(method="squares", share="rows", own_components=30)
QUICK = ExchangePolicy(join_seconds=0.3, seal_seconds=0.1)


def agreed(*numeric, **more):
    zeros = (0.0,) * len(numeric)
    sums = dict.fromkeys(("shift", "count", "total", "square"), zeros)
    return AgreedInputs("pm25", numeric=numeric, **{**sums, **more})


def network_of(inputs=None, **more):
    given = {"model": MODEL, "exchange": QUICK, "inputs": inputs or agreed("temp", "wind")}
    return small(**{**given, **more})


def changed(network, add=(), drop=(), **levels):
    """The network after `dokl network columns`."""
    inputs = changed_columns(network.inputs, tuple(add), tuple(drop), levels)
    return replace(network, inputs=inputs, earlier=(*network.earlier, network.inputs))


OLD = network_of()
NEW = changed(OLD, ["humidity"], ["wind"])


def readings(n, seed=0, **more):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)).round(3)
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    rows = zip(X.tolist(), y.round(3).tolist(), strict=True)
    return [{"temp": x[0], "wind": x[1], "pm25": t} | more for x, t in rows]


def arrival(network, rows):
    return Inputs(network).from_json(json.dumps(rows).encode())


def temps(rows):
    """What is left of earlier rows: the temperature, and no humidity."""
    return [[row["temp"], 0.0] for row in rows]


# -- rows ------------------------------------------------------------------------------------------
def mapped(old, new, columns):
    """Rows by the old agreement, and what they become by the new one."""
    before, now = (network_of(each).model_inputs() for each in (old, new))
    return column_map(old, before, new, now).rows(before.transform(columns)), now


def test_columns_are_found_by_name_and_what_is_new_is_missing():
    old = agreed("temp", "wind", levels=(("place", ("roof", "yard")),))
    new = agreed("wind", "humidity", levels=(("place", ("cellar", "yard")),))
    columns = {"temp": np.array([1.0, 2.0]), "wind": np.array([3.3, -0.1])}
    columns["place"] = np.array(["yard", "roof"], object)
    X, now = mapped(old, new, columns)
    assert now.names_out == ("wind", "humidity", "place=cellar", "place=yard")
    assert X.tolist() == [[3.3, 0.0, 0.0, 1.0], [-0.1, 0.0, 0.0, 0.0]]


def test_the_same_columns_are_the_same_bits():
    table = {"temp": np.random.default_rng(0).normal(5, 3, 50), "wind": np.arange(50.0) / 7}
    fixed = Preprocessor.plan(table, standardise="fixed").agreed()
    sums = {key: tuple(fixed[key]) for key in ("shift", "count", "total", "square")}
    old = agreed("temp", "wind", standardise="fixed", **sums)
    X, now = mapped(old, replace(old, drop=("rain",)), table)
    assert X.tobytes() == now.transform(table).tobytes()


def test_numbers_stay_the_same_numbers_where_scaling_changes():
    table = {"temp": np.random.default_rng(0).normal(5, 3, 50), "wind": np.arange(50.0) / 7}
    fixed = Preprocessor.plan(table, standardise="fixed").agreed()
    sums = {key: tuple(fixed[key]) for key in ("shift", "count", "total", "square")}
    old = agreed("temp", "wind", standardise="fixed", **sums)
    X, now = mapped(old, agreed("wind", "temp"), table)
    np.testing.assert_allclose(X, now.transform(table), atol=1e-12)
    X, _ = mapped(agreed("wind", "temp"), old, table)
    np.testing.assert_allclose(X, network_of(old).model_inputs().transform(table), atol=1e-12)


def test_rows_that_were_taken_stay_rows_that_are_taken():
    """A number that other units make too large for float32 made its batch, and all that follow on
    it, unreadable.
    """
    made = ColumnMap(2, np.array([0, 1]), np.array([1e30, 2.0]), np.array([0.0, -1.0]))
    X = made.rows(np.array([[1e30, 1.0], [-1e30, -3e38]]))
    assert X.tolist() == [[FLOAT32, 1.0], [-FLOAT32, -FLOAT32]]


def test_a_name_of_another_kind_is_another_column():
    when = (("when", ("day",), 0.0),)
    old = agreed("wind", "place", times=when)
    columns = {"wind": np.ones(1), "place": np.ones(1), "when": np.array([3600.0])}
    new = agreed("when", "wind", levels=(("place", ("1", "1.0")),))
    X, _ = mapped(old, new, columns)
    assert X.tolist() == [[0.0, 1.0, 0.0, 0.0]]
    lagged = agreed("wind", "wind lag 1", lags=(("lag", "wind", "1"),))
    X, _ = mapped(agreed("wind", "wind lag 1"), lagged, {"wind": [2.0], "wind lag 1": [3.0]})
    assert X.tolist() == [[2.0, 0.0]]
    both = agreed("rain", "wind lag 1", "wind", lags=lagged.lags)
    X, _ = mapped(lagged, both, {"wind": [2.0], "wind lag 1": [3.0]})
    assert X.tolist() == [[0.0, 3.0, 2.0]]


def test_times_keep_the_parts_that_both_have():
    old = agreed("wind", times=(("when", ("day", "week"), 0.0),))
    new = agreed("wind", times=(("when", ("day", "year"), 5.0),))
    columns = {"wind": np.ones(3), "when": np.array([3600.0, 9e5, np.nan])}
    X, now = mapped(old, new, columns)
    np.testing.assert_array_equal(X[:, :3], now.transform(columns)[:, :3])
    assert not X[:, 3:].any()


# -- links -----------------------------------------------------------------------------------------
def protocol(network, name, incarnation=1, **more):
    near, roll = network.neighbours(name), roll_of(network, name)
    learner = network.learner(name)
    node = Protocol(learner, name, near, network.exchange, incarnation, roll=roll, **more)
    for peer in near:
        node.peer_up(peer, 0.0)
    return node


def talk(network, nodes, seconds, now=0.0):
    """Ticks, and whatever they send, between linked nodes; what was refused, by reason."""
    refused = []

    def carry_out(name, effects):
        for effect in effects:
            if isinstance(effect, SendTheta | SendHello):
                for peer in network.neighbours(name):
                    if peer in nodes:
                        carry_out(peer, nodes[peer].message(name, effect.data, now))
            elif isinstance(effect, Refuse):
                refused.append((name, effect.reason))

    for _ in range(int(seconds / 0.1)):
        now += 0.1
        for name, node in nodes.items():
            carry_out(name, node.tick(now))
    return now, refused


def heard(node):
    """Inputs of all rows that a node keeps, by origin."""
    way = node._way
    return {
        name: np.concatenate([read_rows(way.context, each)[0] for each in log.batches]).tolist()
        for name, log in way.logs.items()
        if log.batches
    }


def test_late_rows_of_a_neighbour_with_earlier_columns_are_mapped_and_relayed():
    rows = {name: readings(5, seed) for seed, name in enumerate("abc")}
    nodes = {"a": protocol(OLD, "a"), "b": protocol(NEW, "b"), "c": protocol(NEW, "c")}
    for name, node in nodes.items():
        network = OLD if name == "a" else NEW
        came = rows[name] if name == "a" else [r | {"humidity": 0.5} for r in rows[name]]
        node.samples(*(getattr(arrival(network, came), part) for part in "XY"), 0.0)
    now, refused = talk(OLD, nodes, 6.0)
    assert {reason for name, reason in refused if name == "a"} == {"fingerprint"}
    assert {name for name, _ in refused} == {"a"}
    mine = {name: [[r["temp"], 0.5] for r in rows[name]] for name in "bc"}
    for name in "bc":
        assert heard(nodes[name]) == {"a": temps(rows["a"]), **mine}
        assert nodes[name].facts()["sums"]["behind"] == 0
        assert nodes[name]._way.logs["a"].batches[0].sealed == nodes["a"]._way.own.batches[0].sealed
    assert heard(nodes["a"]) == {"a": [[r["temp"], r["wind"]] for r in rows["a"]]}
    kept = [batch.sealed for batch in nodes["a"]._way.own.batches]
    nodes["a"] = protocol(NEW, "a", 2, stored=kept)
    nodes["b"].peer_lost("a", now)
    nodes["b"].peer_up("a", now)
    talk(OLD, nodes, 12.0, now)
    assert heard(nodes["a"]) == {"a": temps(rows["a"]), **mine}


@pytest.mark.parametrize("bad", [[[np.inf, 1.0]], [[0.5, np.inf]], [[-1e300, 1.0]]])
def test_nodes_of_earlier_and_of_later_columns_refuse_the_same_rows(bad):
    """Else the logs differ, and who has later columns is blamed for what it passes on."""
    before, now = (protocol(network, "b")._way.context for network in (OLD, NEW))
    given = "a", 1, 0, np.array(bad), np.ones((1, 1)), 1.0, 2.0, NOTHING
    sealed = Seals().seal(pack_entry(before, *given))
    for context in (before, now):
        with pytest.raises(BadInput, match="numbers that cannot be used"):
            read_rows(context, read_batch(context, sealed))


def test_rows_of_unknown_columns_are_refused_by_one_message():
    node = protocol(OLD, "a")
    node.samples(*(getattr(arrival(OLD, readings(5)), part) for part in "XY"), 0.0)
    talk(OLD, {"a": node}, 1.0)
    kept = [batch.sealed for batch in node._way.own.batches]
    with pytest.raises(BadInput, match=f"rows of other columns, {OLD.fingerprint}.*earlier"):
        protocol(replace(NEW, earlier=()), "a", stored=kept)


# -- journals --------------------------------------------------------------------------------------
def crashed(folder, network, how_many):
    """A journal of an agent that was killed: rows in its log, and not yet sealed, and waiting."""
    rows = readings(how_many)
    sealing = replace(network, exchange=replace(QUICK, seal_seconds=1e-3))
    agent = made(folder, sealing)
    agent.start()
    agent.submit(arrival(network, rows[:40])).result(WAIT)
    wait(lambda: agent.status()["sharing"]["unsealed"] == 0)
    killed(agent)
    agent = made(folder, replace(network, exchange=replace(QUICK, seal_seconds=1e6)))
    agent.start()
    agent.submit(arrival(network, rows[40:])).result(WAIT)
    waiting = {"id": 7, "temp": 0.25, "wind": 3.0}
    agent.submit(arrival(network, [waiting])).result(WAIT)
    killed(agent)
    return rows


def test_a_journal_of_earlier_columns_is_taken_over(tmp_path):
    rows = crashed(tmp_path, OLD, 50)
    agent = made(tmp_path, NEW)
    assert agent.protocol.learned == 50
    assert agent.store.samples == 50
    own = agent.protocol.state.rows
    assert own.node.node.own.seen == 50
    assert own.X.tolist() == temps(rows[40:])
    agent.start()
    wait(lambda: agent.status()["sharing"]["origins"]["a"] == 50)
    agent.submit(arrival(NEW, [{"id": 7, "pm25": 0.5}])).result(WAIT)
    agent.submit(arrival(NEW, readings(3, 5, humidity=2.0))).result(WAIT)
    wait(lambda: agent.status()["sharing"]["kept"] == {"a": 54})
    wait(lambda: not agent.status()["sharing"]["behind"])
    found = heard(agent.protocol)["a"]
    assert found[:50] == temps(rows)
    assert found[50] == [0.25, 0.0]
    assert [humidity for _, humidity in found[51:]] == [2.0] * 3
    assert agent.protocol._way.own.batches[0].columns.hex() == OLD.fingerprint
    assert agent.status()["problems"] == []
    assert "columns changed" in agent.lines.events()
    agent.stop()
    again = made(tmp_path, NEW)
    assert again.protocol.learned == 54
    assert heard(again.protocol)["a"] == found
    again.store.close()


def test_the_lone_learner_is_that_of_the_mapped_rows(tmp_path):
    rows = crashed(tmp_path, OLD, 60)
    agent = made(tmp_path, NEW)
    alone = AutoRegressor(n_components=30, random_state=1)
    X, y = np.array(temps(rows)), np.array([row["pm25"] for row in rows])
    alone.partial_fit(X, y)  # together, as the node does
    new = np.array(temps(readings(4, 9)))
    told = agent.learner.predict(agent.protocol.state, new)[:, 0]
    agent.store.close()
    np.testing.assert_allclose(told, alone.predict(new), atol=0.05)  # others are not heard yet
    bank = agent.protocol.state.rows.node.node.own
    np.testing.assert_array_equal(predicting.predict(bank, new)[:, 0], alone.predict(new))


def test_a_failed_take_over_leaves_the_journal_of_before(tmp_path, monkeypatch):
    rows = crashed(tmp_path, OLD, 45)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "change_columns", failing)
        with pytest.raises(OSError, match="power"):
            made(tmp_path, NEW)
    for network in (OLD, NEW):
        again = made(tmp_path, network)
        assert again.protocol.learned == 45
        assert again.store.waiting_count == 1
        again.store.close()
    again = made(tmp_path, NEW)
    assert heard(again.protocol)["a"] == temps(rows[:40])
    again.store.close()
    with pytest.raises(BadFile, match="dokl network columns"):
        made(tmp_path, OLD)


def failing(*_):
    raise OSError("power")


def test_what_waits_for_labels_goes_where_its_times_are_not_known(tmp_path):
    crashed(tmp_path, OLD, 45)
    with_lags = replace(
        agreed("temp", "temp lag 1", lags=(("lag", "temp", "1"),), ordered_by="when"), drop=()
    )
    agent = made(tmp_path, replace(OLD, inputs=with_lags, earlier=(OLD.inputs,)))
    assert agent.store.waiting_count == 0
    assert agent.store.expired == 1
    assert agent.protocol.learned == 45
    agent.store.close()


def test_earlier_values_go_on_where_they_stay_the_same(tmp_path):
    lags = (("lag", "temp", "1"),)
    old = network_of(agreed("temp", "wind", "temp lag 1", lags=lags))
    new = changed(old, ["humidity"], ["wind"])
    rows = crashed(tmp_path, old, 45)
    agent = made(tmp_path, new)
    assert new.inputs.numeric == ("temp", "temp lag 1", "humidity")
    X = heard(agent.protocol)["a"]
    assert [x[1] for x in X[1:40]] == [row["temp"] for row in rows[:39]]
    agent.start()
    agent.submit(arrival(new, [{"id": 7, "pm25": 0.5}])).result(WAIT)
    wait(lambda: agent.status()["sharing"]["kept"] == {"a": 46})
    assert heard(agent.protocol)["a"][45] == [0.25, rows[44]["temp"], 0.0]
    agent.stop()


def test_inputs_that_wait_for_a_later_target_are_mapped(tmp_path):
    old = network_of(agreed("temp", "wind", "pm25", horizon="2"))
    new = changed(old, ["humidity"], ["wind"])
    rows = crashed(tmp_path, old, 45)
    agent = made(tmp_path, new)
    agent.start()
    agent.submit(arrival(new, readings(1, 4, humidity=1.0))).result(WAIT)
    wait(lambda: agent.status()["sharing"]["kept"] == {"a": 44})
    agent.stop()
    found = heard(agent.protocol)["a"]
    assert found == [[row["temp"], row["pm25"], 0.0] for row in rows[:44]]


def test_agents_change_columns_one_after_the_other_and_lose_nothing(tmp_path):
    hub, every = Hub(), {}
    with starting(tmp_path) as started:
        for seed, name in enumerate("abc"):
            every[name] = started(OLD, name, hub=hub)
            every[name].submit(arrival(OLD, readings(20, seed))).result(WAIT)
        counts = dict.fromkeys("abc", 20)
        wait(lambda: all(a.status()["sharing"]["origins"] == counts for a in every.values()))
        for step, name in enumerate("bca"):
            every[name].submit(arrival(OLD, readings(5, 10 + step))).result(WAIT)
            killed(every[name])
            every[name] = started(NEW, name, hub=hub)
            every[name].submit(arrival(NEW, readings(5, 20 + step, humidity=1.0))).result(WAIT)
        counts = dict.fromkeys("abc", 30)
        wait(lambda: all(a.status()["sharing"]["origins"] == counts for a in every.values()))
        wait(lambda: not any(a.status()["sharing"]["behind"] for a in every.values()))
        found = [heard(agent.protocol) for agent in every.values()]
        assert found[0] == found[1] == found[2]
        assert sum(row[1] for rows in found[0].values() for row in rows) == 15
        assert all(agent.status()["sharing"]["forks"] == {} for agent in every.values())
        wait(lambda: not any(agent.status()["problems"] for agent in every.values()))


# -- descriptions ----------------------------------------------------------------------------------
def test_a_description_keeps_its_earlier_columns():
    again = parse(text(NEW))
    assert again.inputs == replace(NEW.inputs, fingerprint=NEW.fingerprint)
    assert [each.fingerprint for each in again.former] == [OLD.fingerprint]
    assert nonsense(again) == []
    assert [each["fingerprint"] for each in earlier_identities(again, "a")] == [OLD.fingerprint]
    assert identity(again, "a")["d"] == 2


def test_what_cannot_be_mapped_is_refused_by_name():
    other = replace(NEW, earlier=(replace(OLD.inputs, target="no2"),))
    assert "has another target" in nonsense(other)[0]
    sums = replace(NEW, model=Model(method="squares", D=20))
    assert "share = 'rows'" in nonsense(sums)[0]
    edited = text(NEW).replace('numeric = ["temp", "wind"]', 'numeric = ["temp", "rain"]')
    with pytest.raises(BadInput, match="rows of it would not be known"):
        parse(edited)
    with pytest.raises(BadInput, match="must be a section like"):
        parse(text(OLD).replace("[network]", "earlier = [1]\n\n[network]", 1))


def test_a_running_agent_asks_for_a_restart(tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text(text(NEW))
    with pytest.raises(BadInput, match="columns were changed: restart this agent"):
        reload_description(path, "a", OLD)


def test_network_columns_edits_the_file(tmp_path):
    path = tmp_path / "lab.toml"
    words = ["--nodes", 2, "--graph", "complete", "--insecure-loopback", "--target", "pm25"]
    new = ["network", "new", path, *words, "--share", "rows"]
    dokl(*new, "--columns", "when:time,temp,wind", "--lag", "wind=1", "--lag", "temp=2")
    first = read(path)
    path.write_text("# by hand\n" + path.read_text())
    columns = ["network", "columns", path]
    place = ["--add", "place", "--levels", "place=roof,yard"]
    told = dokl(*columns, "--add", "humidity", *place, "--drop", "wind")
    assert "the inputs are temp, temp lag 2, humidity, when, place" in told.stdout
    second = read(path)
    assert path.read_text().startswith("# by hand")
    assert second.inputs.drop == ("wind",)
    assert second.inputs.lags == (("lag", "temp", "2"),)
    assert [each.fingerprint for each in second.former] == [first.fingerprint]
    dokl(*columns, "--drop", "humidity", "--drop", "place")
    third = read(path)
    assert third.inputs.drop == ("wind", "humidity", "place")
    assert [e.fingerprint for e in third.former] == [first.fingerprint, second.fingerprint]
    assert "the same kind" in fails(*columns, "--add", "temp")
    assert "'rain'" in fails(*columns, "--drop", "rain")
    assert "orders the rows" in fails(*columns, "--drop", "when")
    assert "the target" in fails(*columns, "--add", "pm25")
    dokl(*columns, "--drop", "when", "--drop", "temp lag 2")
    assert read(path).inputs.ordered_by == ""
    assert "--add NAME" in dokl(*columns, code=2).stderr
    plain = ["network", "new", tmp_path / "plain.toml", "--nodes", 2, "--inputs", 2]
    dokl(*plain, "--graph", "complete", "--insecure-loopback")
    assert "where rows are shared" in fails(
        "network", "columns", tmp_path / "plain.toml", "--add", "humidity"
    )
