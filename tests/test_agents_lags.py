"""Live nodes with earlier values of their own rows as inputs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from commands import dokl, fails
from dokl.base.errors import BadInput
from dokl.live.description import AgreedInputs, Durability, Model, parse, read
from dokl.live.description.text import text
from dokl.live.inputs import Inputs
from dokl.live.jobs.export import as_model
from dokl.live.sums.learner import SumsLearner
from live_networks import small
from memory_agents import OFF, WAIT, killed, made

HOURS = [f"2024-03-01T{hour:02}:00" for hour in range(24)]
LAGS = (("lag", "temp", "1"), ("mean", "wind", "2"), ("difference", "temp", "2h"))
NAMES = ("wind", "temp lag 1", "wind mean 2", "temp difference 2h")


def agreed(**more):
    zeros = (0.0,) * len(NAMES)
    sums = dict.fromkeys(("shift", "count", "total", "square"), zeros)
    given = {"numeric": NAMES, "lags": LAGS, "ordered_by": "when", **sums}
    return AgreedInputs("temp", **{**given, **more})


def network_of(**more):
    model = Model(D=20, method="squares", sigma=2.0, own_components=20)
    return small(exchange=OFF, model=model, inputs=agreed(**more))


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
    change = np.concatenate([[0.0] * 3, temp[2:-1] - temp[1:-2]])  # newest known, and 2 h before
    return np.column_stack([wind, before, mean, change]), temp[:, None]


def test_a_node_learns_from_its_rows_before():
    network, rows = network_of(), readings(0, 24)
    learner, came = network.learner(), arrival(network, rows)
    _, f = learner.learn(learner.start(), came.X, came.Y)
    plain = SumsLearner(network.agreed_map, -1, network.alone, None, "")
    X, Y = lagged(rows)
    np.testing.assert_allclose(f, plain.learn(plain.start(), X, Y)[1], atol=1e-12)


def test_how_rows_are_cut_into_calls_does_not_matter():
    network = network_of()
    learner, state, found = network.learner(), network.learner().start(), []
    came = arrival(network, readings(0, 24))
    _, f = learner.learn(state, came.X, came.Y)
    for some in (slice(0, 1), slice(1, 9), slice(9, 24)):
        state, told = learner.learn(state, came.X[some], came.Y[some])
        found.append(told)
    np.testing.assert_allclose(np.concatenate(found), f, atol=1e-12)


def test_a_node_finds_its_memory_again_after_a_crash(tmp_path):
    network = replace(network_of(), durability=Durability(snapshot_rows=10))
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
    assert knowing.lags is state.lags
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
