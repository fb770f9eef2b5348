"""Live nodes with earlier values of their own rows as inputs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from commands import dokl, fails
from dokl.base.arrays import FLOAT32
from dokl.base.errors import BadInput
from dokl.live.description import AgreedInputs, Durability, ExchangePolicy, Model, parse, read
from dokl.live.description.text import text
from dokl.live.inputs import Inputs
from dokl.live.jobs.export import as_model
from dokl.live.protocol.batches import read_rows
from dokl.live.sums.learner import SumsLearner
from dokl.live.transports.memory import Hub
from live_networks import small
from memory_agents import OFF, WAIT, killed, made, wait

pytestmark = pytest.mark.usefixtures("short_searches")

HOURS = [f"2024-03-01T{hour:02}:00" for hour in range(24)]
LAGS = (("lag", "temp", "1"), ("mean", "wind", "2"), ("difference", "temp", "2h"))
NAMES = ("wind", "temp lag 1", "wind mean 2", "temp difference 2h")


def agreed(**more):
    zeros = (0.0,) * len(NAMES)
    sums = dict.fromkeys(("shift", "count", "total", "square"), zeros)
    given = {"numeric": NAMES, "lags": LAGS, "ordered_by": "when", **sums}
    return AgreedInputs("temp", **{**given, **more})


def network_of(share="sums", exchange=OFF, **more):
    how = {"D": 20, "sigma": 2.0} if share == "sums" else {"share": "rows"}
    model = Model(method="squares", own_components=20, **how)
    return small(exchange=exchange, model=model, inputs=agreed(**more))


def readings(first, last, seed=0):
    """Hours of a day: a walk that only its past tells."""
    rng = np.random.default_rng(seed)
    temp, wind = np.cumsum(rng.normal(size=24)), rng.normal(size=24)
    rows = zip(HOURS, wind.round(3).tolist(), temp.round(3).tolist(), strict=True)
    return [{"when": h, "wind": w, "temp": t} for h, w, t in rows][first:last]


def arrival(network, rows):
    return Inputs(network).from_json(json.dumps(rows).encode())


def asked(network, rows):
    return Inputs(network).rows_json(json.dumps([r | {"temp": None} for r in rows]).encode())


def lagged(rows):
    """The inputs of rows, by hand."""
    temp, wind = (np.array([row[name] for row in rows]) for name in ("temp", "wind"))
    before = np.concatenate([[0.0], temp[:-1]])
    mean = np.concatenate([wind[:1], (wind[1:] + wind[:-1]) / 2])
    change = np.concatenate([[0.0] * 2, temp[1:-1] - temp[:-2]])  # newest known, and 2 h before
    return np.column_stack([wind, before, mean, change]), temp[:, None]


def test_a_node_learns_from_its_rows_before():
    network, rows = network_of(), readings(0, 24)
    learner, came = network.learner(), arrival(network, rows)
    _, f = learner.learn(learner.start(), came.X, came.Y)
    plain = SumsLearner(network.agreed_map, -1, network.alone, None, "")
    X, Y = lagged(rows)
    np.testing.assert_allclose(f, plain.learn(plain.start(), X, Y)[1], atol=1e-12)


def test_earlier_values_are_numbers_that_can_be_shared():
    """The difference of 3e38 and -3e38 was none, and neighbours refused all further rows."""
    rows = readings(0, 6)
    rows[3]["temp"], rows[4]["temp"] = -3e38, 3e38
    network = network_of("rows")
    lagged, came = network.learner().lagged, arrival(network, rows)
    X, _, _ = lagged.enter(lagged.start(), came.X, came.Y)
    assert np.abs(X).max() == FLOAT32


def test_how_rows_are_cut_into_calls_does_not_matter():
    network = network_of()
    learner, state, found = network.learner(), network.learner().start(), []
    came = arrival(network, readings(0, 24))
    _, f = learner.learn(state, came.X, came.Y)
    for some in (slice(0, 1), slice(1, 9), slice(9, 24)):
        state, told = learner.learn(state, came.X[some], came.Y[some])
        found.append(told)
    np.testing.assert_allclose(np.concatenate(found), f, atol=1e-12)


@pytest.mark.parametrize("share", ["sums", "rows"])
def test_a_node_finds_its_memory_again_after_a_crash(tmp_path, share):
    network = replace(network_of(share), durability=Durability(snapshot_rows=10))
    agent = made(tmp_path, network)
    agent.start()
    for first in (0, 6, 12):
        told = agent.submit(arrival(network, readings(first, first + 6))).result(WAIT)
    assert told["samples"] == 18
    next_hour = asked(network, readings(18, 19))
    expected = agent.predict(next_hour)
    assert agent.predict(next_hour) == expected  # a question is not remembered
    killed(agent)
    again = made(tmp_path, network)
    assert again.protocol.learned == 18
    assert again.predict(next_hour) == expected
    again.start()
    again.submit(arrival(network, readings(18, 24))).result(WAIT)
    again.stop()
    straight = network.learner()
    came = arrival(network, readings(0, 24))
    state, _ = straight.learn(straight.start(), came.X, came.Y)
    last = made(tmp_path, network)
    tomorrow = asked(network, [{"when": "2024-03-02T00:00", "wind": 0.5}])
    assert last.predict(tomorrow) == pytest.approx(straight.predict(state, tomorrow)[:, 0])
    last.store.close()


def test_rows_that_do_not_follow_are_refused_and_nothing_is_stored(tmp_path):
    network = network_of()
    agent = made(tmp_path, network)
    agent.start()
    agent.submit(arrival(network, readings(0, 5))).result(WAIT)
    for rows, words in (
        (readings(4, 6), "row 1, column 'when': 2024-03-01T04:00:00 repeats the time"),
        ([*readings(6, 7), *readings(5, 6)], "row 2, column 'when': 2024-03-01T05:00:00 is before"),
        ([{"wind": 1.0, "temp": 2.0, "when": None}], "the time is missing"),
    ):
        with pytest.raises(BadInput, match=words):
            agent.submit(arrival(network, rows)).result(WAIT)
    with pytest.raises(BadInput, match="repeats the time"):
        agent.predict(asked(network, readings(4, 5)))
    assert agent.submit(arrival(network, readings(5, 6))).result(WAIT)["samples"] == 6
    agent.stop()


def test_an_export_remembers_the_rows_of_its_node(tmp_path):
    network = network_of()
    learner, came = network.learner(), arrival(network, readings(0, 18))
    state, _ = learner.learn(learner.start(), came.X, came.Y)
    as_model(network, state).save(tmp_path / "a.dokl")
    import dokl as library

    model, rows = library.load(tmp_path / "a.dokl"), readings(18, 19)
    expected = learner.predict(state, asked(network, rows))[:, 0]
    np.testing.assert_allclose(model.predict(rows), expected, atol=1e-9)


def test_a_packed_state_goes_on_and_others_are_refused():
    network = network_of()
    learner, came = network.learner(), arrival(network, readings(0, 18))
    state, _ = learner.learn(learner.start(), came.X, came.Y)
    data, later = learner.pack(state), arrival(network, readings(18, 24))
    _, f = learner.learn(learner.unpack(data), later.X, later.Y)
    np.testing.assert_array_equal(f, learner.learn(state, later.X, later.Y)[1])
    other = network_of(
        lags=(("lag", "temp", "2"), *LAGS[1:]), numeric=("wind", "temp lag 2", *NAMES[2:])
    )
    with pytest.raises(BadInput, match="other lags"):
        other.learner().unpack(data)
    plain = SumsLearner(network.agreed_map, -1, network.alone, None, "")
    with pytest.raises(BadInput, match="no lags"):
        learner.unpack(plain.pack(plain.start()))


def test_others_rows_reach_a_node_that_remembers_its_own():
    network = network_of()
    learner, came = network.learner(), arrival(network, readings(0, 18))
    state, _ = learner.learn(learner.start(), came.X, came.Y)
    other, _ = learner.learn(learner.start(), came.X[:9], came.Y[:9])
    total = learner.own_sums(state) + learner.own_sums(other)
    left = [total for _ in learner.fading]
    knowing = learner.knowing(state, total, left)
    assert knowing.series is state.series
    learner.predict(knowing, asked(network, readings(18, 19)))


def test_the_description_tells_lags(tmp_path):
    network = network_of()
    again = parse(text(network))
    assert again.inputs.lags == LAGS
    assert again.fingerprint == network.fingerprint
    other = network_of(lags=(("lag", "temp", "1"),), numeric=NAMES)  # the rest are rows' own
    assert other.fingerprint != network.fingerprint
    assert Inputs(network).columns == ("wind", "when")
    assert set(Inputs(other).columns) == {"wind", "wind mean 2", "temp difference 2h", "when"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lags": (("lag", "temp"),)}, "each entry is"),
        ({"lags": (("later", "temp", "1"), *LAGS[1:])}, "later"),
        ({"lags": (("lag", "temp", "5"), *LAGS[1:])}, "'temp lag 5' is not among numeric"),
        ({"ordered_by": ""}, "no column of times"),
        ({"ordered_by": "wind"}, "not one of times"),
        ({"lags": (), "numeric": NAMES}, "ordered_by is the column"),
    ],
)
def test_lags_that_cannot_be_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        agreed(**change)


QUICK = ExchangePolicy(join_seconds=0.3, seal_seconds=0.1)


def check_shared(tmp_path, network, rows, inputs):
    """Two agents learn 24 readings each; `rows` in all are shared, as `inputs` makes them."""
    hub = Hub()
    agents = [made(tmp_path, network, name, hub) for name in "ab"]
    for agent in agents:
        agent.start()
    try:
        for agent, seed in zip(agents, (1, 2), strict=True):
            agent.submit(arrival(network, readings(0, 24, seed))).result(WAIT)
        wait(lambda: all(agent.protocol._way.learned == rows for agent in agents))
        for sharing in (agent.protocol._way for agent in agents):
            for name, seed in zip("ab", (1, 2), strict=True):
                heard = [read_rows(sharing.context, b) for b in sharing.logs[name].batches]
                X, Y = (np.concatenate(parts) for parts in zip(*heard, strict=True))
                for found, expected in zip((X, Y), inputs(readings(0, 24, seed)), strict=True):
                    np.testing.assert_allclose(found, expected, atol=1e-12)
    finally:
        for agent in agents:
            agent.stop()


def test_rows_are_shared_with_the_earlier_values_of_their_own_node(tmp_path):
    """Who hears a row needs no rows before it; and both ends of a link learn the same."""
    check_shared(tmp_path, network_of("rows", QUICK), 48, lagged)


def test_network_new_takes_lags_where_rows_are_shared(tmp_path):
    words = ["network", "new", tmp_path / "lab.toml", "--nodes", 2, "--graph", "complete"]
    words += ["--columns", "when:time,wind", "--target", "temp", "--share", "rows"]
    words += ["--insecure-loopback"]
    dokl(*words, "--lag", "temp=1,24", "--rolling", "wind=3h")
    inputs = read(tmp_path / "lab.toml").inputs
    assert inputs.lags == (("lag", "temp", "1"), ("lag", "temp", "24"), ("mean", "wind", "3h"))
    assert inputs.ordered_by == "when"
    assert inputs.numeric == ("wind", "temp lag 1", "temp lag 24", "wind mean 3h")
    again = [*words, "--overwrite"]
    assert "give --sample FILE" in fails(*again, "--lags", "auto")
    assert "'rain'" in fails(*again, "--lag", "rain=1")
    assert "wind:time" in fails(*again, "--lag", "temp=1", "--time", "wind")


def test_network_new_makes_lags_of_each_node_s_rows(tmp_path):
    lines = ["when,place,wind,temp"]
    both = zip(readings(0, 24, 1), readings(0, 24, 2), strict=True)
    for pair in both:
        lines += [
            f"{r['when']},{p},{r['wind']},{r['temp']}" for p, r in zip("ab", pair, strict=True)
        ]
    (tmp_path / "s.csv").write_text("\n".join(lines) + "\n")
    words = ["network", "new", tmp_path / "lab.toml", "--nodes", 2, "--graph", "complete"]
    words += ["--sample", tmp_path / "s.csv", "--target", "temp", "--insecure-loopback"]
    squares = ["--method", "squares", "--map", "drawn", "--components", 20]
    lags = ["--lag", "temp=1", "--rolling", "wind=2"]
    nodes = ["--node-column", "place"]
    told = dokl(*words, *squares, *lags, *nodes)
    assert "in the order of column 'when' by 'place'" in told.stdout
    network = read(tmp_path / "lab.toml")
    assert network.inputs.lags == (("lag", "temp", "1"), ("mean", "wind", "2"))
    assert network.inputs.count[1] == 46  # the first row of each node has no row before
    error = fails(*words, "--overwrite", *squares, *lags)
    assert "repeats the time" in error
    assert "--node-column" in error
    assert "method = 'squares'" in fails(*words, "--overwrite", *lags, *nodes)


# -- a horizon -------------------------------------------------------------------------------------
AHEAD = ("temp", "wind", "temp lag 1")


def ahead_of(share="sums", horizon="2", exchange=OFF, **more):
    zeros = (0.0,) * len(AHEAD)
    sums = dict.fromkeys(("shift", "count", "total", "square"), zeros)
    lags = (("lag", "temp", "1"),)
    given = {"numeric": AHEAD, "lags": lags, "ordered_by": "when", "horizon": horizon, **sums}
    network = network_of(share, exchange)
    return replace(network, inputs=AgreedInputs("temp", **{**given, **more}))


def later(rows, by=2):
    """Inputs of rows, and the later targets, by hand; the last rows have none yet."""
    temp, wind = (np.array([row[name] for row in rows]) for name in ("temp", "wind"))
    before = np.concatenate([[0.0], temp[:-1]])
    return np.column_stack([temp, wind, before])[:-by], temp[by:, None]


@pytest.mark.parametrize("horizon", ["2", "2h"])
def test_a_horizon_joins_inputs_with_targets_so_much_later(horizon):
    network, rows = ahead_of(horizon=horizon), readings(0, 24)
    learner, came = network.learner(), arrival(network, rows)
    state, _ = learner.learn(learner.start(), came.X, came.Y)
    plain = SumsLearner(network.agreed_map, -1, network.alone, None, "")
    known, _ = plain.learn(plain.start(), *later(rows))
    assert state.node.own.rows == 22
    asked_now = asked_ahead(network, {"when": "2024-03-02T00:00", "wind": 0.5, "temp": 1.0})
    straight = np.array([[1.0, 0.5, rows[-1]["temp"]]])
    np.testing.assert_allclose(
        learner.predict(state, asked_now), plain.predict(known, straight), atol=1e-12
    )


def asked_ahead(network, row):
    return Inputs(network).rows_json(json.dumps([row]).encode())


def test_what_is_told_of_a_target_was_predicted_a_horizon_before():
    network, rows = ahead_of(), readings(0, 24)
    learner, came = network.learner(), arrival(network, rows)
    state, told = learner.start(), []
    for i in range(24):
        one = slice(i, i + 1)
        told.append(learner.predict(state, came.X[one])[0, 0])
        state, f, half = learner.learn_saying(state, came.X[one], came.Y[one])
        if i >= 2:
            assert f[0, 0] == told[i - 2]
    assert half[0, 0] > 0
    _, f = learner.learn(learner.start(), came.X, came.Y)
    np.testing.assert_array_equal(f[2:, 0], told[:-2])


@pytest.mark.parametrize("share", ["sums", "rows"])
def test_inputs_that_wait_for_their_target_survive_a_crash(tmp_path, share):
    network = replace(ahead_of(share), durability=Durability(snapshot_rows=10))
    agent = made(tmp_path, network)
    agent.start()
    for first in (0, 6, 12):
        agent.submit(arrival(network, readings(first, first + 6))).result(WAIT)
    question = asked_ahead(network, readings(18, 19)[0])
    expected = agent.predict(question)
    killed(agent)
    again = made(tmp_path, network)
    assert again.predict(question) == expected
    again.start()
    again.submit(arrival(network, readings(18, 24))).result(WAIT)
    again.stop()
    learner, came = network.learner(), arrival(network, readings(0, 24))
    state, _ = learner.learn(learner.start(), came.X, came.Y)
    last = made(tmp_path, network)
    tomorrow = asked_ahead(network, {"when": "2024-03-02T00:00", "wind": 0.5, "temp": 0.1})
    assert last.predict(tomorrow) == pytest.approx(learner.predict(state, tomorrow)[:, 0])
    own = last.learner.own_node(last.protocol.state).own
    assert (own.seen, last.protocol.learned) == (22, 24)
    last.store.close()


def test_rows_are_shared_with_later_targets(tmp_path):
    check_shared(tmp_path, ahead_of("rows", exchange=QUICK), 44, later)


def test_a_row_s_own_target_is_an_input_that_may_be_missing():
    network = ahead_of()
    given = Inputs(network)
    with_it, without = ({"when": HOURS[0], "wind": 1.0, "temp": 7.0}, {"when": HOURS[0], "wind": 1})
    assert given.rows_json(json.dumps([with_it]).encode())[0].tolist()[:2] == [7.0, 1.0]
    learner = network.learner()
    asked_both = [given.rows_json(json.dumps([row]).encode()) for row in (with_it, without)]
    assert [x[0, 0] for x in asked_both] == [7.0, 0.0]
    for X in asked_both:
        assert np.isfinite(learner.predict(learner.start(), X)).all()
    came = given.from_json(json.dumps([{"id": 1, **without}]).encode())
    assert [name for name, _ in came.waiting] == ["1"]
    label = given.from_json(b'[{"id": 1, "temp": 3}]')
    assert label.labels[0][1].tolist() == [3.0]


def test_an_export_with_a_horizon_goes_on_from_its_node(tmp_path):
    network = ahead_of()
    learner, came = network.learner(), arrival(network, readings(0, 18))
    state, _ = learner.learn(learner.start(), came.X, came.Y)
    as_model(network, state).save(tmp_path / "a.dokl")
    import dokl as library

    model, row = library.load(tmp_path / "a.dokl"), readings(18, 19)[0]
    expected = learner.predict(state, asked_ahead(network, row))[:, 0]
    np.testing.assert_allclose(model.predict([row]), expected, atol=1e-9)
    assert str(model.series.horizon) == "2"


def test_the_description_tells_a_horizon():
    network = ahead_of()
    again = parse(text(network))
    assert (again.inputs.horizon, again.fingerprint) == ("2", network.fingerprint)
    assert ahead_of(horizon="3").fingerprint != network.fingerprint
    learner, other = network.learner(), ahead_of(horizon="3").learner()
    with pytest.raises(BadInput, match="other lags"):
        other.unpack(learner.pack(learner.start()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"horizon": "soon"}, "horizon: 'soon' is neither"),
        ({"horizon": "0"}, "'temp' is named twice"),
        ({"horizon": "2h", "ordered_by": ""}, "horizon is a time"),
        ({"target": "rain"}, "'rain' must be among numeric"),
        ({"task": "classification", "labels": (0, 1)}, "it is not for classes"),
    ],
)
def test_horizons_that_cannot_be_are_refused(change, words):
    given = {"target": "temp", "horizon": "2", **change}
    zeros = dict.fromkeys(("shift", "count", "total", "square"), (0.0,) * len(AHEAD))
    lags = (("lag", "temp", "1"),)
    with pytest.raises(BadInput, match=words):
        AgreedInputs(**{"numeric": AHEAD, "lags": lags, "ordered_by": "when", **zeros, **given})


def test_network_new_takes_a_horizon(tmp_path):
    words = ["network", "new", tmp_path / "lab.toml", "--nodes", 2, "--graph", "complete"]
    words += ["--target", "temp", "--insecure-loopback"]
    rows = [*words, "--share", "rows", "--columns", "when:time,wind"]
    dokl(*rows, "--lag", "temp=1", "--horizon", "6h")
    inputs = read(tmp_path / "lab.toml").inputs
    assert (inputs.horizon, inputs.ordered_by) == ("6h", "when")
    assert inputs.numeric == ("wind", "temp", "temp lag 1")
    lines = ["when,place,wind,temp"]
    for pair in zip(readings(0, 24, 1), readings(0, 24, 2), strict=True):
        lines += [
            f"{r['when']},{p},{r['wind']},{r['temp']}" for p, r in zip("ab", pair, strict=True)
        ]
    (tmp_path / "s.csv").write_text("\n".join(lines) + "\n")
    sample = [*words, "--overwrite", "--sample", tmp_path / "s.csv", "--node-column", "place"]
    squares = ["--method", "squares", "--map", "learned", "--components", 12]
    dokl(*sample, *squares, "--horizon", "2")
    network = read(tmp_path / "lab.toml")
    assert network.inputs.numeric == ("wind", "temp")
    assert network.inputs.horizon == "2"
    assert network.agreed_map.rows == 44
    assert "method = 'squares'" in fails(*sample, "--horizon", "2")
