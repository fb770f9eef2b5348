"""Cooperation that never hurts: the method, its engine, the network without settings."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone

import dokl
from dokl import Exchange, Features, Gaussian, GraphRecipe, Problem, Stream, graphs, run
from dokl.base.arrays import Block
from dokl.base.errors import BadGraph, BadInput, UnknownName
from dokl.estimators.choices import in_order
from dokl.network.exchange import Mixing, Sending
from dokl.simulation.cooperation import node, reach
from dokl.simulation.cooperation.members import Member
from dokl.simulation.engines import choice
from dokl.simulation.learner import Learner
from dokl.simulation.methods import cooperation, from_spec, squares
from dokl.simulation.streams import Example2, Example3, Missing
from wild_samples import spoil_unused, wild_rows

RING = GraphRecipe("ring", 5)
PROBLEM = Problem(Features(Gaussian(3.0), 5, 24, "paired"), cooperation())
QUIET = {"show_progress": False}
# Names whose arrays say the same in other words: a list of rows, or folded into the matrix.
WORDS = (".P", ".W", ".c", ".a", ".b", ".n")


# --- the method ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "exchange",
    [
        Exchange(RING, every=3),
        Exchange(RING, "cta", 2),
        Exchange(RING, every=2, sending=Sending("float32", parts=2)),
        Exchange(),
    ],
)
def test_the_engine_agrees_with_the_reference(exchange):
    stream, asked = Missing(Example2(K=5, n=40), p=0.2), ("predictions", "state")
    fast, slow = (
        run(PROBLEM, exchange, stream, engine=engine, record=asked, **QUIET)
        for engine in ("numba", "reference")
    )
    np.testing.assert_allclose(
        fast.curves["predictions"], slow.curves["predictions"], rtol=0, atol=1e-9
    )
    for name, array in fast.states[0].nodes.items():
        if not name.endswith(WORDS):
            np.testing.assert_allclose(array, slow.states[0].nodes[name], atol=1e-8, err_msg=name)


def test_wild_rows_and_graphs_in_turn_agree_with_the_reference():
    """Targets far off, absent rows, rows of weight 0 and of next to none, two outputs."""
    K, n, rng = 4, 40, np.random.default_rng(0)
    X, Y, index = wild_rows(rng, (n, K), 5, 2)
    weight = rng.uniform(0.3, 2.0, n * K)
    weight[rng.random(n * K) < 0.1] = 0.0
    weight[rng.random(n * K) < 0.2] = 1e-30
    spoil_unused(X, index)
    block, weights = Block(X, Y, weight, index), graphs.metropolis(graphs.build("ring", K, seed=0))
    problem = Problem(Features(Gaussian(3.0), 5, 24, "paired").draw(0), cooperation())
    for exchange in (
        Exchange([weights, np.full((K, K), 1 / K)], "cta", 3),
        Exchange(weights, every=8, sending=Sending("float32", 0.05, 2)),
    ):
        found = []
        for engine in ("numba", "reference"):
            learner = Learner(problem, exchange, K=K, m=2, engine=engine)
            found.append(learner.advance(learner.start(), block))
        (fast, f), (slow, g) = found
        np.testing.assert_allclose(f, g, rtol=0, atol=1e-9)
        assert (fast.clock, fast.sent, fast.peak) == (slow.clock, slow.sent, slow.peak)
        for name, array in fast.nodes.items():
            if not name.endswith(WORDS):
                np.testing.assert_allclose(array, slow.nodes[name], atol=1e-8, err_msg=name)


def test_jax_names_the_engine_that_cooperates_and_auto_takes_it(monkeypatch):
    stream, why = Example2(K=5, n=4), "'jax' does not run the method 'cooperation': use engine='nu"
    with pytest.raises(BadInput, match=why):
        run(PROBLEM, Exchange(RING), stream, engine="jax", runs=2, **QUIET)
    with pytest.raises(BadInput, match=why):
        Learner(Problem(PROBLEM.features.draw(0), cooperation()), K=5, engine="jax")
    monkeypatch.setattr(choice, "gpu", lambda: "a card")
    monkeypatch.setattr(choice, "WORTH_A_GPU", 0.0)
    assert run(PROBLEM, Exchange(RING), stream, runs=2, **QUIET).engine == "numba"


def test_bad_input_is_named():
    learner, block = made(), Example2(K=5, n=2).draw(0).block()
    block.Y[3] = np.nan
    with pytest.raises(BadInput, match="target of row 3 is NaN"):
        learner.advance(learner.start(), block)


def made(K=5, D=24, **exchange):
    """A learner on a ring, or alone."""
    weights = graphs.metropolis(graphs.build("ring", K, seed=0))
    features = Features(Gaussian(3.0), 5, D, "paired").draw(0)
    return Learner(Problem(features, cooperation()), Exchange(weights, **exchange), K=K)


def test_pieces_are_as_good_as_the_whole_and_leave_what_was_given():
    block, learner = Example2(K=5, n=90).draw(1).block(), made(every=2)
    whole, f = learner.advance(learner.start(), block)
    state, parts = learner.start(), []
    for start, stop in ((0, 1), (1, 75), (75, 90)):
        before = state.copy()
        new, g = learner.advance(state, block.steps(start, stop))
        for name in before.nodes.keys() - {n for n in before.nodes if n.endswith(".W")}:
            np.testing.assert_array_equal(before.nodes[name], state.nodes[name], err_msg=name)
        state, _ = new, parts.append(g)
    np.testing.assert_allclose(np.concatenate(parts), f, atol=1e-9)
    np.testing.assert_allclose(state.theta, whole.theta, atol=1e-9)


def test_packed_and_unpacked():
    learner = made()
    state, _ = learner.advance(learner.start(), Example2(K=5, n=20).draw(1).block())
    again = learner.unpack(learner.pack(state))
    block = Example2(K=5, n=5).draw(2).block()
    for a, b in zip(learner.advance(state, block), learner.advance(again, block), strict=True):
        np.testing.assert_allclose(getattr(a, "theta", a), getattr(b, "theta", b), atol=1e-12)
    assert from_spec(PROBLEM.method.spec()) == PROBLEM.method


def test_a_row_of_next_to_no_weight_is_predicted_and_not_learned():
    stream, learner = Example2(K=5, n=40).draw(1), made()
    asked = np.random.default_rng(0).random((40, 5)) < 0.5
    few, f = learner.advance(
        learner.start(), Stream(stream.X, stream.y, np.where(asked, 1e-30, 1.0)).block()
    )
    none, g = learner.advance(
        learner.start(), Stream(stream.X, stream.y, np.where(asked, 0.0, 1.0)).block()
    )
    assert np.isfinite(f).all()
    assert np.isnan(g[..., 0][asked]).all()
    np.testing.assert_allclose(f[~asked], g[~asked], atol=1e-9)
    np.testing.assert_allclose(few.theta, none.theta, atol=1e-9)
    np.testing.assert_allclose(few.covered, none.covered)


def test_the_sums_are_those_of_all_rows():
    """Nothing is lost or counted twice, and where copies agree the shared expert knows them all."""
    block, learner = Example2(K=5, n=60).draw(1).block(), made()
    state, _ = learner.advance(learner.start(), block)
    D = learner.D
    Z, Y = learner.problem.features.transform(block.X), block.Y
    crew = learner.problem.method.crew(learner.exchange)
    first = crew.sums(D, 1)[crew.shared[0]]
    totals = state.sums[:, first].sum(axis=0)
    triangle = (Z.T @ Z).T[np.triu_indices(D)]  # columns of the lower triangle, one after another
    np.testing.assert_allclose(totals[0], 300)
    np.testing.assert_allclose(totals[2 : 2 + len(triangle)], triangle, rtol=1e-9)
    np.testing.assert_allclose(totals[2 + len(triangle) : -1], (Y.T @ Z)[0], rtol=1e-9)


def test_a_vector_predicts_what_the_members_say():
    block, learner = Example2(K=5, n=60).draw(1).block(), made()
    state, _ = learner.advance(learner.start(), block)
    crew, Z = learner.problem.method.crew(learner.exchange), block.X[:7]
    for k in (0, 3):
        mean, variance = node.predicted(crew, state, k, learner.problem.features.transform(Z))
        np.testing.assert_allclose(learner.predict(state, Z, k), mean, atol=1e-10)
        assert (variance > 0).all()


@pytest.mark.parametrize(("inputs", "helps"), [("input", False), ("state", True)])
def test_sharing_helps_or_does_no_harm(inputs, helps):
    """The paper's third example, in the reading in which cooperation hurts, and in the other."""
    features = Features(Gaussian(0.35), 2 if inputs == "state" else 1, 24, "paired")
    problem, stream = Problem(features, cooperation(0.001)), Example3(K=6, n=300, inputs=inputs)
    kwargs = {"runs": 2, "seed": 3, "workers": 1, **QUIET}
    alone, both = (
        run(problem, Exchange(weights), stream, **kwargs)["mse"][150:].mean()
        for weights in (None, GraphRecipe("complete", 6))
    )
    plain = Problem(features, squares(0.001, share="sums"))
    shared = run(plain, Exchange(GraphRecipe("complete", 6)), stream, **kwargs)["mse"][150:].mean()
    assert both < 1.04 * alone
    assert both < 1.15 * shared
    assert (shared < alone) == helps


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ((Member("shared"),), "must be own"),
        ((Member("own"), Member("corrected")), "no shared expert 0"),
    ],
)
def test_members_that_make_no_crew(members, match):
    with pytest.raises(BadInput, match=match):
        cooperation(members=members)


def test_members_that_cannot_be():
    with pytest.raises(UnknownName, match="role"):
        Member("theirs")
    for wrong in ({"memory": 1}, {"ridge": 0.0}, {"width": -1}):
        with pytest.raises(BadInput):
            Member("own", **wrong)
    with pytest.raises(BadInput, match="ridge"):
        cooperation(ridge=0.0)


def test_rules_that_sums_cannot_bear():
    lopsided = np.array([[0.9, 0.1, 0.0], [0.2, 0.6, 0.2], [0.0, 0.5, 0.5]])
    for exchange, match in (
        (Exchange(lopsided), "columns sum to one"),
        (Exchange(GraphRecipe("ring", 3).draw(0), mixing=Mixing(clip=1.0)), "weighted mean alone"),
    ):
        with pytest.raises(BadInput, match=match):
            PROBLEM.method.slots(PROBLEM.features, 1, exchange)


# --- intervals ------------------------------------------------------------------------------------
def test_every_node_is_covered_however_it_errs():
    """Averaged widths alone would cover the noisy node too seldom, and the others too often."""
    rng, K = np.random.default_rng(0), 4
    noise = np.array([0.5, 1.0, 1.0, 3.0])
    scores = np.abs(noise * rng.normal(size=(4000, K)))
    first = dokl.learning.intervals.start((0.9,))
    shared, private = np.tile(first.width, (K, 1, 1)), np.zeros((K, 1, 1))
    energy, inside = np.tile(first.energy, (K, 1, 1)), np.zeros(K)
    for row in scores:
        for k in range(K):
            *parts, used = reach.follow(
                first.levels, shared[k], private[k], energy[k], row[k : k + 1, None]
            )
            shared[k], private[k], energy[k] = parts
            inside[k] += row[k] <= used[0, 0, 0]
        shared[:] = shared.mean(axis=0)
    np.testing.assert_allclose(inside / len(scores), 0.9, atol=0.02)


# --- the network without settings ---------------------------------------------------------------
def offset_stations(n, seed=0):
    """Stations that measure the same but for an offset."""
    rng = np.random.default_rng(seed)
    X, where = rng.normal(size=(n, 2)), np.array(list("abc"))[np.arange(n) % 3]
    y = 100 + 20 * (np.sin(2 * X[:, 0]) + X[:, 1]) + np.where(where == "b", 30.0, 0.0)
    return X, y + rng.normal(size=n), where


def chain(**settings):
    import networkx as nx

    return dokl.NetworkRegressor(nx.path_graph(list("abc")), random_state=0, **settings)


@pytest.fixture(scope="module")
def learned():
    X, y, where = offset_stations(450, seed=3)
    model = chain(n_components=40, every=3)
    return model, model.prequential(X, y, nodes=where), (X, y, where)


def test_a_network_without_settings(learned):
    model, f, (_, y, _) = learned
    late = slice(250, None)
    assert np.mean((f - y)[late] ** 2) < 8.0  # of a variance of about 500, and noise 1
    new, true, place = offset_stations(90, seed=1)
    assert np.mean((model.predict(new, nodes=place) - true) ** 2) < 6.0
    both, own = (model.predict(new[:3], nodes=n) for n in (["b"] * 3, "b"))
    np.testing.assert_array_equal(both, own)
    assert model.predict(new).shape == (90,)


def test_what_sharing_is_worth(learned):
    model, _, _ = learned
    found = model.cooperation_
    assert found.names == ["a", "b", "c"]
    assert (found.together < 1.15 * found.alone).all()
    rows = {row["node"]: row for row in found.table()}
    assert rows["a"]["rows"] == 150
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)
    assert "sharing has" in str(found)


def test_the_picture_of_it(learned):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    axes = learned[0].cooperation_.plot()
    assert {text.get_text() for text in axes.texts} == {"a", "b", "c"}
    plt.close("all")


def test_intervals_of_a_network(learned):
    model, _, _ = learned
    new, true, place = offset_stations(300, seed=2)
    lower, upper = model.predict_interval(new, 0.9, nodes=place)
    inside = (lower <= true) & (true <= upper)
    assert 0.75 < inside.mean() <= 1.0
    low, high = model.predict_interval(new[:5])
    assert (low < high).all()
    narrow, wide = (model.predict_interval(new[:5], c, nodes="a") for c in (0.5, 0.99))
    assert (wide[1] - wide[0] > narrow[1] - narrow[0]).all()


@pytest.mark.parametrize("offset", [30.0, 0.0])
def test_intervals_without_nodes_lie_around_the_prediction(offset):
    """And hold rows of every node, also where one measures something else than the others."""
    X, y, where = offset_stations(300)
    new, true, place = offset_stations(300, seed=2)
    y, true = (t - np.where(w == "b", 30.0 - offset, 0.0) for t, w in ((y, where), (true, place)))
    model = chain(n_components=40, every=3).partial_fit(X, y, nodes=where)
    lower, upper = model.predict_interval(new, 0.9)
    np.testing.assert_allclose(0.5 * (lower + upper), model.predict(new), rtol=1e-12)
    assert ((lower <= true) & (true <= upper)).mean() > 0.85
    of_node = np.subtract(*model.predict_interval(new, 0.9, nodes=place)[::-1])
    assert ((upper - lower).mean() > 3.0 * of_node.mean()) == (offset > 0)


def test_intervals_while_learning():
    X, y, where = offset_stations(150)
    plain, model = chain(n_components=20, every=3), chain(n_components=20, every=3)
    weight = np.where(np.arange(150) == 7, 0.0, 1.0)
    f, lower, upper = model.prequential(X, y, weight, where, return_interval=0.9)
    np.testing.assert_array_equal(f, plain.prequential(X, y, weight, where))
    assert np.isnan([f[7], lower[7], upper[7]]).all()
    assert ((lower <= y) & (y <= upper))[60:].mean() > 0.7
    before = dict(vars(model))
    with pytest.raises(BadInput, match="coverage"):
        model.prequential(X, y, None, where, return_interval=1.5)
    assert vars(model) == before


def test_a_node_that_misses_rows_does_not_run_ahead():
    """Nobody may learn of an hour before it has predicted the one before."""
    hours, K = 60, 6
    there = np.ones((hours, K), bool)
    there[5:15, 0] = there[10:30, 3] = there[40:45, 4:] = there[50, :4] = False
    hour, owner = np.nonzero(there)
    index = in_order(K, owner)
    assert [set(hour[row[row >= 0]]) for row in index] == [{h} for h in np.unique(hour)]
    swapped = np.array([3, 5, 4, 0, 2, 1])[owner]  # whatever the order in which nodes come
    np.testing.assert_array_equal(in_order(K, swapped)[:, [3, 5, 4, 0, 2, 1]], index)
    shuffled = np.random.default_rng(1).integers(K, size=200)
    steps = in_order(K, shuffled)
    rows = [row[row >= 0] for row in steps]
    assert all(a.max() < b.min() for a, b in pairwise(rows))
    assert len(np.concatenate(rows)) == 200


def test_fit_is_one_pass_and_learning_goes_on():
    X, y, where = offset_stations(240)
    model = chain(n_components=40, every=3).fit(X, y, nodes=where)
    again = clone(model).fit(X, y, nodes=where)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert model.network_.seen.tolist() == [80, 80, 80]
    assert model.score(X, y, nodes=where) > 0.5
    model.partial_fit(X[:15], y[:15], nodes=where[:15])
    assert model.network_.seen.tolist() == [85, 85, 85]


def test_alone_is_alone():
    X, y, where = offset_stations(150)
    model = chain(n_components=20, rule="alone").fit(X, y, nodes=where)
    assert model.network_.bank is None
    assert model.cooperation_.text == "every node works alone: nothing is shared"
    assert not model.sent_bytes_.any()


def test_a_failed_call_changes_nothing(learned):
    model, _, (X, y, where) = learned
    before, f = dict(vars(model)), model.predict(X, nodes=where)
    with pytest.raises(BadInput, match="not in the graph"):
        model.partial_fit(X[:3], y[:3], nodes=["a", "x", "c"])
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(X[:3], [1.0, np.nan, 2.0], nodes=where[:3])
    assert vars(model) == before
    np.testing.assert_array_equal(model.predict(X, nodes=where), f)


def test_classes_over_a_network():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.array(["in", "out"])[(X[:, 0] * X[:, 1] > 0).astype(int)]
    model = dokl.NetworkClassifier("complete", n_nodes=3, n_components=40, every=4, random_state=0)
    model.fit(X, y)
    assert model.score(X, y) > 0.9
    assert set(model.predict(X, nodes=1)) == {"in", "out"}
    assert model.decision_function(X).shape == (300,)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_over_a_network(tmp_path, classes):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 1))
    sure = np.stack([np.zeros(600), 2 * np.sin(2 * X[:, 0]), X[:, 0]])[:classes]
    truth = (np.exp(sure) / np.exp(sure).sum(axis=0)).T
    y = (rng.random((600, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    model = dokl.NetworkClassifier("complete", n_nodes=3, n_components=20, every=4, random_state=0)
    assert hasattr(model, "predict_proba")
    said = model.prequential(X, y, classes=range(classes))
    assert np.mean(said[200:] == truth[200:].argmax(axis=1)) > 0.8
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.abs(p - truth).mean() < 0.1
    np.testing.assert_array_equal(p.argmax(axis=1), model.predict(X))
    np.testing.assert_allclose(np.log(model.predict_proba(X, 1)), model.predict_log_proba(X, 1))
    dokl.save(model, tmp_path / "model.dokl")
    again = dokl.load(tmp_path / "model.dokl")
    np.testing.assert_array_equal(again.predict_proba(X), p)
    again.partial_fit(X[:40], y[:40])
    model.partial_fit(X[:40], y[:40])
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X))


def test_disconnected_graphs_are_refused():
    import networkx as nx

    X, y, _ = offset_stations(30)
    with pytest.raises(BadGraph, match="disconnected"):
        dokl.NetworkRegressor(nx.empty_graph(3)).fit(X, y)
