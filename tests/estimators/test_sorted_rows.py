"""fit on rows that are sorted by their target, which learns them in random order."""

import numpy as np
import pytest

from dokl import AutoClassifier, AutoRegressor, NetworkClassifier, NetworkRegressor
from dokl.learning.order import moves_gradually, sorted_by_target

pytestmark = pytest.mark.usefixtures("short_searches")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * RNG.normal(size=400)
LABELS = np.digitize(Y, [-0.3, 0.4])
TRAIN, TEST = np.arange(300), np.arange(300, 400)
BY_TARGET = TRAIN[np.argsort(Y[TRAIN])]
BY_CLASS = TRAIN[np.argsort(LABELS[TRAIN], kind="stable")]
SMALL = {"n_components": 40, "random_state": 0}
NONE = np.empty((400, 0))


def learned(model):
    """The inputs in the order in which they were learned."""
    return model.bank_.stored.all()[0]


def fitted(rows, y, **weight):
    return AutoRegressor(**SMALL).fit(rows, y, **weight)


def test_numbers_in_their_order_are_learned_as_well_as_in_any_other():
    rows = X[BY_TARGET], Y[BY_TARGET]
    model, follows = fitted(*rows), AutoRegressor(**SMALL).partial_fit(*rows)
    plain = fitted(X[TRAIN], Y[TRAIN])
    scores = [each.score(X[TEST], Y[TEST]) for each in (model, plain, follows)]
    assert min(scores[0], scores[1]) > 0.75 > scores[2]
    assert learned(plain).tolist() == X[TRAIN].tolist()
    assert learned(follows).tolist() == X[BY_TARGET].tolist()
    order = learned(model).tolist()
    assert sorted(order) == sorted(X[TRAIN].tolist())
    assert order != X[BY_TARGET].tolist()
    assert order == learned(fitted(*rows)).tolist()
    other = AutoRegressor(**{**SMALL, "random_state": 1}).fit(*rows)
    assert order != learned(other).tolist()


def test_weights_stay_with_their_rows():
    weight = (np.arange(300) % 3).astype(float)[BY_TARGET]
    model = fitted(X[BY_TARGET], Y[BY_TARGET], sample_weight=weight)
    rows, _, weights = model.bank_.stored.all()
    assert len(rows) == 200
    of = dict(zip(map(tuple, X[BY_TARGET]), weight, strict=True))
    assert [of[tuple(row)] for row in rows] == weights.tolist()
    assert fitted(X[BY_TARGET], np.column_stack([Y, -Y])[BY_TARGET]).predict(X[:2]).shape == (2, 2)


def test_classes_one_after_the_other():
    model = AutoClassifier(**SMALL).fit(X[BY_CLASS], LABELS[BY_CLASS])
    plain = AutoClassifier(**SMALL).fit(X[TRAIN], LABELS[TRAIN])
    assert learned(plain).tolist() == X[TRAIN].tolist()
    assert learned(model).tolist() != X[BY_CLASS].tolist()
    scores = [each.score(X[TEST], LABELS[TEST]) for each in (model, plain)]
    assert min(scores) > 0.7
    sure = model.predict_proba(X[TEST])[np.arange(100), LABELS[TEST]]
    assert np.exp(np.log(sure).mean()) > 0.5  # probabilities follow the same rows


@pytest.mark.parametrize("named", [False, True])
def test_networks_do_the_same_at_each_node(named):
    small = {"n_nodes": 3, "n_components": 40, "random_state": 0}
    # Dealt out evenly, or one node after the other, each with sorted rows.
    order = np.concatenate([BY_TARGET[k::3] for k in range(3)]) if named else BY_TARGET
    nodes = {"nodes": np.repeat(np.arange(3), 100)} if named else {}
    model = NetworkRegressor("ring", **small).fit(X[order], Y[order], **nodes)
    assert model.score(X[TEST], Y[TEST]) > 0.7
    own = model.network_.nodes[0].own.stored.all()[1][:, 0]
    assert len(own) == 100
    assert sorted(own) == sorted(Y[BY_TARGET[::3]]) != own.tolist()
    order = np.concatenate([BY_CLASS[k::3] for k in range(3)]) if named else BY_CLASS
    sorter = NetworkClassifier("ring", **small).fit(X[order], LABELS[order], **nodes)
    assert sorter.score(X[TEST], LABELS[TEST]) > 0.7


def test_series_that_rise_are_learned_in_their_order():
    rng = np.random.default_rng(1)
    weather = np.sin(np.arange(400) / 5) + 0.1 * rng.normal(size=400)
    total = np.cumsum(np.exp(rng.normal(size=400)))
    walk = np.cumsum(rng.normal(size=400))
    before = np.append(0.0, total[:-1])
    for inputs in ([weather], [X[:, 0], walk], [before], [X[:, 0], before]):
        model = fitted(np.column_stack(inputs), total)
        assert learned(model).tolist() == np.column_stack(inputs).tolist()
    season = np.repeat([0, 1, 0, 1], 100)
    model = AutoClassifier(**SMALL).fit(np.column_stack([weather, X]), season)
    assert learned(model)[:, 0].tolist() == weather.tolist()


def test_which_rows_are_sorted():
    assert sorted_by_target(np.sort(Y), False, NONE)
    assert sorted_by_target(-np.sort(Y), False, NONE)
    assert not sorted_by_target(Y, False, NONE)
    assert not sorted_by_target(np.sort(Y)[:40], False, NONE[:40])
    assert not sorted_by_target(np.full(400, 2.0), False, NONE)
    # A rating, rare events, and blocks of an input, sorted within.
    assert sorted_by_target(np.repeat([1.0, 2.0, 3.0], 100), False, NONE[:300])
    assert not sorted_by_target((np.arange(400) % 40 == 0) * 1.0, False, NONE)
    blocks = np.repeat(np.arange(8.0), 50)
    within = np.sort(Y.reshape(8, 50), axis=1).ravel()
    assert sorted_by_target(within, False, blocks[:, None])
    # Most rows of a block count up: eight falls in four hundred rows are few, in eighty many.
    short = np.tile(np.arange(10.0), 10)
    assert not sorted_by_target(short, False, NONE[:100])
    labels = np.array(["a", "b"])
    assert sorted_by_target(np.repeat(labels, 200), True, NONE)
    assert not sorted_by_target(np.repeat(labels[np.arange(40) % 2], 10), True, NONE)
    assert not sorted_by_target(np.repeat(labels, [395, 5]), True, NONE)


def test_inputs_of_sorted_tables_do_not_look_like_a_series():
    noise = 0.02 * np.random.default_rng(1).normal(size=(400, 2))
    alike = np.sort(Y)[:, None] * [1.0, -2.0] + noise
    assert not moves_gradually(np.column_stack([alike, X, np.arange(400), np.repeat([0, 1], 200)]))
    gaps = np.sin(np.arange(400) / 9)
    gaps[::7] = np.nan
    assert moves_gradually(gaps[:, None])
