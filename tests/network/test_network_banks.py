"""Networks of learners that also learn from others: the contracts, what travels, nodes of all
sizes.
"""

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import dokl
from dokl.estimators.nodes import in_order
from dokl.learning.experts import folding, predicting
from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.learning.experts.scaling import Scaling
from dokl.network import banks, saving, sharing
from dokl.network import node as nodes
from dokl.network.sharing import NEVER, SentRows, SharingRule
from variants import first

pytestmark = pytest.mark.usefixtures("short_searches")


def same(X):
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def two_kinds(K, n, seed=0):
    """Even nodes learn one function, odd ones another; n rows each, in turn."""
    rng = np.random.default_rng(seed)
    X, k = rng.normal(size=(K * n, 3)), np.arange(K * n) % K
    f = np.where(k % 2 == 0, same(X), X[:, 0] - same(X))
    return X, f + 0.1 * rng.normal(size=K * n), k


def small(way="rows", K=4, delay=2, most=100):
    return banks.start(3, 1, Settings(most=most), SharingRule(way, delay, np.full(K, 2)))


def learned(network, X, y, k):
    return banks.learn(network, X, y[:, None], np.ones(len(y)), in_order(network.K, k))


@pytest.fixture(scope="module")
def four():
    """Four nodes of two kinds after 120 rows each, by rows, and what they predicted."""
    X, y, k = two_kinds(4, 120)
    network, found = learned(small(), X, y, k)
    return network, found, X, y, k


@pytest.fixture(scope="module")
def estimator(four):
    """The same four nodes as an estimator."""
    network, _, X, y, k = four
    model = dokl.NetworkRegressor("ring", n_nodes=4, share="rows", n_components=100, random_state=0)
    model.partial_fit(X[:20], y[:20], nodes=k[:20])
    model.network_ = network
    return model


# -- the contracts ---------------------------------------------------------------------------------
def test_one_node_is_the_lone_learner_to_the_bit():
    X, y, _ = two_kinds(1, 140)
    for learn in ("prequential", "fit"):
        one = dokl.NetworkRegressor(nx.empty_graph(1), n_components=60, random_state=3)
        lone = dokl.AutoRegressor(n_components=60, random_state=3)
        found = [getattr(model, learn)(X, y) for model in (one, lone)]
        if learn == "prequential":
            np.testing.assert_array_equal(*found)
        np.testing.assert_array_equal(one.predict(X), lone.predict(X))
        np.testing.assert_array_equal(one.predict_interval(X), lone.predict_interval(X))


def test_one_node_classifies_as_the_lone_learner():
    X, y, _ = two_kinds(1, 120)
    one = dokl.NetworkClassifier(nx.empty_graph(1), n_components=60, random_state=3)
    lone = dokl.AutoClassifier(n_components=60, random_state=3)
    found = [model.prequential(X, y > 0, classes=[False, True]) for model in (one, lone)]
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(one.predict_proba(X), lone.predict_proba(X))


@pytest.mark.full_searches
def test_alone_is_what_a_lone_learner_predicts(four):
    network, _, X, y, k = four
    for node in (0, 3):
        mine = k == node
        lone = dokl.AutoRegressor(n_components=100, random_state=0)
        f = lone.prequential(X[mine], y[mine])
        found = banks.predict_alone(network, X[:50], node).mean[:, 0]
        np.testing.assert_allclose(found, lone.predict(X[:50]), atol=1e-6 * y.std())
        errors, keep = network.nodes[node].errors, 1 - 1 / 1000
        late = slice(50, None)
        weights = keep ** np.arange(mine.sum() - 51, -1, -1)
        told = weights @ (f - y[mine])[late] ** 2
        np.testing.assert_allclose(errors.total[0], told, rtol=1e-6)


@pytest.fixture(scope="module")
def beside():
    """Rows of nodes that differ: their errors alone, and in one place that knows the node."""
    X, y, k = two_kinds(4, 200, seed=1)
    every = dokl.AutoRegressor(n_components=100, random_state=0)
    in_one_place = every.prequential(np.hstack([X, np.eye(4)[k]]), y)
    alone, one_place = np.empty(4), np.empty(4)
    for node in range(4):
        mine = np.flatnonzero(k == node)
        lone = dokl.AutoRegressor(n_components=100, random_state=0).prequential(X[mine], y[mine])
        alone[node] = np.mean((lone - y[mine])[50:] ** 2)
        one_place[node] = np.mean((in_one_place[mine] - y[mine])[50:] ** 2)
    return X, y, k, alone, one_place


@pytest.mark.full_searches
@pytest.mark.parametrize("way", first(*sharing.WAYS))
def test_no_node_is_much_worse_than_alone_where_nodes_differ(way, beside):
    X, y, k, alone, one_place = beside
    _, found = learned(small(way), X, y, k)
    errors = [np.mean((found.mean[k == node, 0] - y[k == node])[50:] ** 2) for node in range(4)]
    ratios = errors / alone
    assert max(ratios) < 1.1
    assert np.mean(ratios) < (1.1 if way == "rows" else 1.6) * np.mean(one_place / alone)
    assert np.mean(ratios) < 0.8


# -- what travels, and when ------------------------------------------------------------------------
def test_nobody_hears_a_row_before_it_can_have_arrived():
    X, y, k = two_kinds(4, 60)
    other = y.copy()
    at = 4 * 50 + 1  # step 50 of node 1
    other[at] += 5.0
    found = [learned(small(delay=3), X, target, k)[1].mean[:, 0] for target in (y, other)]
    differs = np.flatnonzero(found[0] != found[1])
    assert set(k[differs[differs < 4 * 53]]) <= {1}  # its own node alone
    assert set(k[differs]) == {0, 1, 2, 3}


def test_sums_hold_rows_back_until_there_are_enough():
    X, y, k = two_kinds(4, 70)
    network, _ = learned(small("sums"), X[: 4 * 49], y[: 4 * 49], k[: 4 * 49])
    assert network.bank.seen == 0
    assert network.bytes.tolist() == [0] * 4
    network, _ = learned(network, X[4 * 49 :], y[4 * 49 :], k[4 * 49 :])
    assert network.bank.seen == 4 * 50
    assert (network.bytes > 0).all()


def test_a_node_predicts_as_alone_until_something_was_heard():
    X, y, k = two_kinds(4, 70)
    network, found = learned(small("sums", most=40), X, y, k)
    assert network.units is not None  # by the end, sums were heard
    first = np.flatnonzero(np.arange(len(y)) // 4 < 50)
    for node in range(4):
        mine = first[k[first] == node]
        lone = dokl.AutoRegressor(n_components=40, random_state=0)
        f = lone.prequential(X[mine], y[mine])
        np.testing.assert_allclose(found.mean[mine[1:], 0], f[1:], rtol=0, atol=1e-9)


def test_a_network_that_is_heard_late_counts_half_at_first_and_is_not_blamed_for_its_silence():
    X, y, k = two_kinds(4, 70)
    silent, _ = learned(small("sums", most=40), X[:200], y[:200], k[:200])
    node = silent.nodes[0]
    assert node.corrections is None
    assert node.weights.tolist() == [1.0, 0.0, 0.0]
    heard = nodes.with_corrections(node, Scaling(np.zeros(3), np.ones(3)), np.ones(1))
    assert heard.weights.tolist() == [0.0, 0.0, 1.0]
    assert heard.share == 0.5
    assert not heard.recent.failing.any()


def test_sums_are_sent_again_after_five_per_cent_more_rows():
    n = 3000
    given = SentRows(np.zeros((n, 1)), np.zeros((n, 1)), np.ones(n), np.zeros(n, int), np.arange(n),
                 np.full(n, NEVER))  # fmt: skip
    rule = SharingRule("sums", 0, np.array([1]))
    rows, sent, messages = sharing.send(rule, given, np.array([0]))
    ends = np.flatnonzero(np.diff(rows.due[rows.due < NEVER])) + 1
    grown = np.diff(ends) / ends[:-1]
    assert (np.diff(ends) >= 50).all()
    assert (grown >= 0.05 - 1e-9).all()
    assert messages < 60
    assert sent[0] == (rows.due < NEVER).sum()


def test_rows_take_fewer_bytes_than_sums_while_they_are_few(four):
    by_rows, _, X, y, k = four
    by_sums, _ = learned(small("sums"), X, y, k)
    assert 0 < by_rows.bytes[0] < by_sums.bytes[0]
    assert by_rows.bytes[0] == 2 * (by_rows.bank.seen) * sharing.row_bytes(3, 1)


@pytest.mark.full_searches
def test_the_same_however_rows_are_cut(four):
    _, whole, X, y, k = four
    network, parts = small(), []
    for at in range(0, 300, 100):
        part = slice(at, at + 100)
        network, found = learned(network, X[part], y[part], k[part])
        parts.append(found.mean)
    np.testing.assert_allclose(np.concatenate(parts), whole.mean[:300], atol=1e-6)


@pytest.mark.slow
def test_rows_without_a_label_are_predicted_and_not_learned(four):
    _, _, X, y, k = four
    weight = np.ones(len(y))
    weight[::7] = 1e-30
    network, found = banks.learn(small(), X, y[:, None], weight, in_order(4, k))
    assert network.seen.sum() == (weight == 1).sum()
    assert np.isfinite(found.mean).all()
    other = np.where(weight == 1, y, 99.0)
    _, again = banks.learn(small(), X, other[:, None], weight, in_order(4, k))
    np.testing.assert_array_equal(found.mean, again.mean)


# -- nodes of all sizes ----------------------------------------------------------------------------
def test_nodes_with_few_rows_or_none():
    X, y, _ = two_kinds(1, 300)
    rng = np.random.default_rng(0)
    k = rng.choice(6, size=300, p=[0.4, 0.3, 0.28, 0.02, 0.0, 0.0])
    k[150] = 4
    model = dokl.NetworkRegressor("ring", n_nodes=6, share="rows", n_components=60, random_state=0)
    model.prequential(X, y, nodes=k)
    fresh = two_kinds(1, 200, seed=5)[:2]
    for node in (3, 4, 5, None):  # of about 6, 1 and 0 rows, and one that there is not
        f = model.predict(fresh[0], nodes=node)
        assert np.mean((f - fresh[1]) ** 2) < 0.3 * np.var(fresh[1])
        lower, upper = model.predict_interval(fresh[0], 0.9, nodes=node)
        assert (lower < upper).all()
    assert "too few rows" in str(model.cooperation_)


def test_the_worth_of_a_node_is_not_told_of_fewer_than_30_rows():
    X, y, k = two_kinds(4, 90)
    k = np.where((k == 3) & (np.arange(len(k)) > 4 * 70), 0, k)  # 20 rows of it count, beyond 50
    model = dokl.NetworkRegressor("ring", n_nodes=4, share="rows", n_components=60, random_state=0)
    found = model.partial_fit(X, y, nodes=k).cooperation_
    assert np.isnan(found.worth).tolist() == [False, False, False, True]
    (line,) = [line for line in str(found).splitlines() if line.startswith("3 ")]
    assert "too few rows" in line
    pytest.importorskip("matplotlib")
    assert found.plot() is not None


def test_many_nodes_of_few_rows():
    K = 100
    X, y, k = two_kinds(K, 8)
    model = dokl.NetworkRegressor("random", n_nodes=K, share="rows", n_components=60,
                                  random_state=0)  # fmt: skip
    f = model.prequential(X, same(X) + 0.01 * y, nodes=k)
    late = slice(K * 6, None)
    assert np.mean((f - same(X))[late] ** 2) < 0.2 * np.var(same(X))
    assert banks._own_centres(Settings(), 2000) < 200


@pytest.mark.full_searches
def test_places_tell_who_is_alike(four, estimator):
    network, *_ = four
    places = network.bank.now.places
    apart = places.apart(np.arange(4), np.arange(4))
    assert 3 * max(apart[0, 2], apart[1, 3]) < min(apart[0, 1], apart[2, 3], apart[0, 3])
    found = estimator.cooperation_
    assert found.most_like == [2, 3, 0, 1]
    assert found.worth.min() > -0.05
    assert [row["node"] for row in found.table()] == np.argsort(-found.worth).tolist()
    assert np.isfinite(found.places).all()


def test_the_picture_of_nodes_has_them_all(estimator):
    pytest.importorskip("matplotlib").use("Agg")
    X, y, k = two_kinds(4, 5)
    early = dokl.NetworkRegressor("ring", n_nodes=4, share="rows", n_components=40, random_state=0)
    early.partial_fit(X, y, nodes=k)
    assert "no map" in early.plot_nodes().texts[0].get_text()
    names = [name for text in estimator.plot_nodes().texts for name in text.get_text().split("\n")]
    assert sorted(names) == ["0", "1", "2", "3"]


# -- fitting all rows at once, intervals, classes, files -------------------------------------------
@pytest.fixture(scope="module")
def new_rows():
    """Further rows of four nodes, and the error of four single learners there."""
    X, y, k = two_kinds(4, 120)
    new, true, at = two_kinds(4, 200, seed=9)
    lone = [dokl.AutoRegressor(100, random_state=0).fit(X[k == i], y[k == i]) for i in range(4)]
    off = [lone[i].predict(new[at == i]) - true[at == i] for i in range(4)]
    return new, true, at, np.mean(np.concatenate(off) ** 2)


@pytest.mark.full_searches
@pytest.mark.parametrize("way", first(*sharing.WAYS))
def test_fit_learns_from_all_nodes(way, new_rows):
    X, y, k = two_kinds(4, 120)
    order = np.argsort(k, kind="stable")  # files of stations, one after the other
    model = dokl.NetworkRegressor("ring", n_nodes=4, share=way, n_components=100, random_state=0)
    model.fit(X[order], y[order], nodes=k[order])
    new, true, at, alone = new_rows
    assert np.mean((model.predict(new, nodes=at) - true) ** 2) < alone
    lower, upper = model.predict_interval(new, 0.9, nodes=at)
    assert 0.8 < ((lower <= true) & (true <= upper)).mean() < 0.99


def test_intervals_hold_online(four):
    _, found, _, y, _ = four
    at = list(dokl.learning.intervals.LEVELS).index(0.9)
    far = np.sqrt(found.variance[:, 0]) * found.widths[:, 0, at]
    inside = np.abs(y - found.mean[:, 0]) <= far
    assert 0.85 < inside[120:].mean() < 0.97


def test_classes_are_learned_from_other_nodes():
    rng = np.random.default_rng(0)
    X, k = rng.normal(size=(480, 2)), np.arange(480) % 4
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    model = dokl.NetworkClassifier("ring", n_nodes=4, share="rows", n_components=60, random_state=0)
    f = model.prequential(X, y, classes=["other", "same"], nodes=k)
    lone = dokl.AutoClassifier(60, random_state=0)
    alone = lone.prequential(X[k == 0], y[k == 0], classes=["other", "same"])
    mine = k == 0
    assert np.mean(f[mine][20:] == y[mine][20:]) > np.mean(alone[20:] == y[mine][20:]) - 0.03
    assert np.mean(f[240:] == y[240:]) > 0.92
    p = model.predict_proba(X, nodes=1)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    three = np.digitize(X[:, 0], [-0.5, 0.5])
    model = dokl.NetworkClassifier("ring", n_nodes=4, n_components=40, random_state=0)
    assert model.fit(X[:240], three[:240]).score(X[240:], three[240:]) > 0.8


@pytest.mark.parametrize("way", sharing.WAYS)
def test_a_file_goes_on_to_single_precision_and_an_exact_one_to_the_same_bits(way, tmp_path):
    X, y, k = two_kinds(3, 80)
    model = dokl.NetworkRegressor("ring", n_nodes=3, share=way, n_components=40, random_state=0)
    model.partial_fit(X[:180], y[:180], nodes=k[:180])
    near = dokl.load(model.save(tmp_path / "near.safetensors"))
    back = dokl.load(dokl.save(model, tmp_path / "network.safetensors", exact=True))
    rest = X[180:], y[180:]
    found = [each.prequential(*rest, nodes=k[180:]) for each in (model, back, near)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], atol=1e-6)
    for each in (back, near):
        np.testing.assert_array_equal(each.sent_bytes_, model.sent_bytes_)


def test_networks_of_earlier_commits_keep_the_range_of_inputs():
    network = small("sums", K=3, most=40)
    earlier = replace(network.bank.settings, fixed_inputs=False)
    earlier = replace(network, bank=replace(network.bank, settings=earlier))
    assert saving.decode(*saving.encode(earlier)).bank.settings.fixed_inputs
    assert not saving.decode(*saving.encode(small("rows", K=3))).bank.settings.fixed_inputs


def test_what_does_not_fit_is_refused(four):
    network, *_ = four
    meta, arrays = saving.encode(network)
    meta = json.loads(json.dumps(meta))
    for name in ("bank.memories.0.theta", "nodes.1.own.now.inputs.centre", "sent"):
        with pytest.raises((ValueError, TypeError)):
            saving.decode(meta, {**arrays, name: np.zeros(7)})
    with pytest.raises(KeyError):
        saving.decode({**meta, "$": "Path"}, arrays)
    with pytest.raises(ValueError, match="no colour"):
        saving.decode({**meta, "colour": 1}, arrays)


def test_a_bank_of_groups_is_folded_to_the_same_predictions(four):
    network, _, X, *_ = four
    for group in (0, 3, -1):
        rows = np.hstack([X[:40], np.full((40, 1), float(group))])
        whole = predicting.predict_with_variance(network.bank, rows).mean
        parts = folding.predict(folding.fold(network.bank, group), X[:40])
        np.testing.assert_allclose(parts, whole, atol=1e-9)


# -- corrections and the guard ---------------------------------------------------------------------
def at_one_node(own, shared, y, heard=None, variances=(0.01, 0.01)):
    """What a node with corrections predicts for rows with targets y: (n,), which its own bank and
    the network's predicted so, with these variances.
    """
    n = len(y)
    unit = Scaling(np.zeros(1), np.ones(1))
    node = nodes.with_corrections(nodes.start(1, 1, Settings()), unit, np.ones(1))
    alone, theirs = (
        Prediction(f[:, None], np.full((n, 1), v), np.ones((n, 1, 5)))
        for f, v in zip((own, shared), variances, strict=True)
    )
    given = np.zeros((n, 1)), y[:, None], None, alone, theirs
    node, found = nodes.learn(node, *given, None if heard is None else heard[:, None])
    return node, found.mean[:, 0]


def test_errors_that_go_on_are_foreseen_from_the_last_one_and_from_what_was_heard():
    rng = np.random.default_rng(0)
    noise, around = 0.1 * rng.normal(size=(2, 2000))
    error = np.empty(2000)
    for t in range(2000):  # of the own bank: half of the last one, and of what was heard before
        error[t] = 0.5 * (error[t - 1] + around[t] if t else 0.0) + noise[t]
    y = rng.normal(size=2000)
    node, f = at_one_node(y - error, rng.normal(size=2000), y, 10 * around)
    late = slice(1000, None)
    assert np.mean((f - y)[late] ** 2) < 1.1 * np.var(noise[late])
    assert np.var(noise[late]) < 0.6 * np.var(error[late])
    # What is exported, and a test set, are not the next row.
    wanted = nodes.for_later_rows(node)
    assert node.corrections.last.any()
    assert not wanted.corrections.last.any()
    np.testing.assert_array_equal(wanted.weights, node.weights)


def test_errors_that_have_nothing_to_do_with_each_other_cost_nothing():
    rng = np.random.default_rng(1)
    y, error = rng.normal(size=1000), 0.1 * rng.normal(size=(2, 1000))
    _, f = at_one_node(*(y - error), y, 0.1 * rng.normal(size=1000))
    better = np.mean(((error[0] + error[1]) / 2) ** 2)  # both are as good, and independent
    assert np.mean((f - y)[300:] ** 2) < 1.15 * better


def test_the_mean_of_both_is_by_how_sure_each_is():
    rng = np.random.default_rng(3)
    y, error = rng.normal(size=1000), rng.normal(size=(2, 1000))
    own, shared, sure = y - 0.1 * error[0], y - 0.2 * error[1], (0.01, 0.04)
    node, f = at_one_node(own, shared, y, variances=sure)
    assert node.share == pytest.approx(0.2)
    best, alone, f = ((each - y)[10:400] for each in (0.8 * own + 0.2 * shared, own, f))
    assert np.mean(best**2) < 0.85 * np.mean(alone**2)
    assert np.mean(f**2) < 1.08 * np.mean(best**2)  # it is known at once, not learned
    # An own bank without a map is not asked, though it may believe that all targets are equal.
    few = slice(node.first_pilot - 1)
    node, f = at_one_node(own[few], shared[few], y[few], variances=(0.0, 0.04))
    assert node.share == 1.0
    np.testing.assert_array_equal(f[:1], shared[:1])


def test_a_network_that_begins_to_fail_is_dropped_within_some_rows():
    rng = np.random.default_rng(2)
    y = rng.normal(size=1500)
    own, shared = y - 0.1 * rng.normal(size=1500), y - 0.03 * rng.normal(size=1500)
    shared[1000:] *= -1.0  # as though most other nodes lied about their targets
    _, f = at_one_node(own, shared, y)
    error, alone = (f - y) ** 2, (own - y) ** 2
    assert error[100:1000].mean() < 0.2 * alone[100:1000].mean()
    assert error[1020:].mean() < 1.05 * alone[1020:].mean()


def test_a_node_goes_on_after_files_with_fewer_corrections(four):
    network, _, X, y, k = four
    old = [
        replace(
            node,
            corrections=replace(
                node.corrections,
                memories=node.corrections.memories[:4],
                mixture=replace(
                    node.corrections.mixture,
                    gain=node.corrections.mixture.gain[:5],
                    square=node.corrections.mixture.square[:5],
                ),
            ),
        )
        for node in network.nodes
    ]
    meta, arrays = saving.encode(replace(network, nodes=tuple(old)))
    back = saving.decode(json.loads(json.dumps(meta)), arrays)
    assert all(len(node.corrections.memories) == 6 for node in back.nodes)
    after, found = learned(back, X[:80], y[:80], k[:80])
    assert np.isfinite(found.mean).all()
    assert after.seen.tolist() == [140] * 4
