"""Estimators of the gradient method: how rows, weights, labels and several outputs reach them."""

import functools
import pickle

import numpy as np
import pandas as pd
import pytest
from gradient_models import (
    EVERY,
    NEW,
    SMALL,
    Classifier,
    Network,
    NetworkOfClassifiers,
    Regressor,
    X,
    same_state,
    scores_of,
    started,
    targets,
    three,
    y,
)
from scipy.sparse import csr_array, random_array

from dokl import (
    KernelRegressor,
    RandomFeatures,
)
from dokl.learning.features import VARIANTS

# -- feeding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("average", ["none", "uniform", "weighted"])
@pytest.mark.parametrize("make", [Regressor, Classifier])
def test_one_call_or_row_by_row_or_chunks(make, average, dtype):
    begin = functools.partial(started, make, average=average, dtype=dtype, intercept=True)
    whole, by_row, chunks = begin(400), begin(1), begin(1)
    for i in range(1, 400):
        by_row.partial_fit(X[i : i + 1], targets(make)[i : i + 1])
    for part in np.split(np.arange(1, 400), [1, 20, 170]):
        chunks.partial_fit(X[part], targets(make)[part])
    assert same_state(whole, by_row)
    assert same_state(whole, chunks)


@pytest.mark.parametrize("make", [Network, NetworkOfClassifiers])
def test_a_network_fed_step_by_step(make):
    nodes = np.arange(400) % 4
    whole, steps = started(make), started(make, 4)
    for i in range(4, 400, 4):
        own = np.random.default_rng(i).permutation(4) + i  # the order of nodes does not matter
        steps.partial_fit(X[own], targets(make)[own], nodes=nodes[own])
    assert same_state(whole, steps)


def test_dealing_goes_on_where_it_stopped():
    model = started(Network, 1)
    for i in range(1, 42):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert model.state_.count.tolist() == [11, 11, 10, 10]


@pytest.mark.parametrize("make", EVERY)
def test_fit_starts_anew(make):
    fresh = make().fit(X, targets(make))
    again = started(make).fit(X, targets(make))
    assert same_state(fresh, again)
    assert fresh.fingerprint_ == again.fingerprint_
    other = make(sigma="scale").fit(X, targets(make))
    assert other.sigma_ != other.fit(3 * X, targets(make)).sigma_


@pytest.mark.parametrize("make", EVERY)
def test_passes_and_shuffle(make):
    plain = make(passes=1, shuffle=False).fit(X, targets(make))
    assert same_state(plain, started(make))
    assert same_state(
        make(passes=3, shuffle=False).fit(X, targets(make)),
        started(make).partial_fit(X, targets(make)).partial_fit(X, targets(make)),
    )
    shuffled = make(passes=1).fit(X, targets(make))
    assert not same_state(plain, shuffled)
    assert shuffled.state_.count.tolist() == plain.state_.count.tolist()
    K = len(plain.state_.count)
    assert make().fit(X, targets(make)).state_.clock == 400 // K * min(100, 10_000 * K // 400)


def test_every_row_of_a_pass_is_seen_once():
    line = np.arange(10.0)[:, None]
    model = KernelRegressor(
        sigma=0.1, features="paired", n_components=4000, passes=1, random_state=3, step=1.0
    ).fit(line, line[:, 0])
    np.testing.assert_allclose(model.predict(line), line[:, 0], atol=0.8)
    assert model.state_.count.tolist() == [10]


@pytest.mark.parametrize("make", EVERY)
def test_seeds(make):
    first, second = (make().fit(X, targets(make)) for _ in range(2))
    assert first.fingerprint_ == second.fingerprint_
    assert same_state(first, second)
    drawn = [make(random_state=None).fit(X, targets(make)) for _ in range(2)]
    assert drawn[0].fingerprint_ != drawn[1].fingerprint_
    states = [np.random.RandomState(5), np.random.RandomState(5)]
    old = [make(random_state=state).fit(X, targets(make)) for state in states]
    assert same_state(*old)
    assert make(random_state=np.int64(0)).fit(X, targets(make)).fingerprint_ == first.fingerprint_


def test_the_fingerprint_covers_what_nodes_must_share():
    def print_of(labels=three, X=X, **parameters):
        return Classifier(**parameters).fit(X, labels).fingerprint_

    base = print_of()
    assert base == print_of()
    assert base == print_of(alpha=0.1, loss="logistic", dtype="float64", step=0.1)
    other = [
        print_of(sigma=1.1),
        print_of(sigma="scale"),
        print_of(kernel="matern"),
        print_of(n_components=52),
        print_of(features="paired"),
        print_of(random_state=1),
        print_of(labels=three + 1),
        print_of(labels=three > 0),
        print_of(labels=np.array(list("abc"))[three]),
        print_of(X=X[:, :1]),
    ]
    assert len({base, *other}) == 11
    assert Regressor().fit(X, y).fingerprint_ == RandomFeatures(**SMALL).fit(X).fingerprint_


@pytest.mark.parametrize("make", EVERY)
def test_the_same_numbers_in_any_form(make):
    t = targets(make)
    labels = t if t.dtype == bool else t.astype(np.float32)
    forms = [
        (X.astype(np.float32), labels),
        (np.asfortranarray(X), t),
        (X.tolist(), t.tolist()),
        (csr_array(X), t),
        (np.repeat(X, 2, axis=1)[:, ::2], np.repeat(t, 2)[::2]),
    ]
    whole = started(make).partial_fit(X, t)
    for rows, labels in forms:
        model = started(make).partial_fit(rows, labels)
        np.testing.assert_allclose(model.state_.theta, whole.state_.theta, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            scores_of(model, rows), scores_of(whole, X), rtol=1e-4, atol=1e-4
        )


def test_names_of_columns_are_held_to():
    frame = pd.DataFrame(X, columns=["east", "north"])
    model = Regressor().partial_fit(frame, pd.Series(y))
    assert same_state(model, started(Regressor))
    assert model.feature_names_in_.tolist() == ["east", "north"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(frame[["north", "east"]], y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.partial_fit(X, y)


def test_changed_parameters_wait_for_fit():
    changed = {"alpha": 0.5, "step": 0.01, "dtype": "float64", "loss": "huber", "engine": "none"}
    plain = started(Regressor).partial_fit(X, y)
    model = started(Regressor).set_params(**changed).partial_fit(X, y)
    assert same_state(plain, model)
    again = pickle.loads(pickle.dumps(started(Regressor).set_params(**changed)))
    assert same_state(plain, again.partial_fit(X, y))


# -- sparse, weights, outputs ---------------------------------------------------------------------


@pytest.mark.parametrize("features", VARIANTS)
@pytest.mark.parametrize("sigma", [2.0, "scale", "median"])
def test_sparse_is_dense(features, sigma):
    sparse = random_array((300, 40), density=0.1, format="csr", rng=np.random.default_rng(0))
    dense = sparse.toarray()
    target = dense.sum(axis=1)
    make = functools.partial(
        KernelRegressor, sigma=sigma, features=features, n_components=64, random_state=0
    )
    a, b = make().partial_fit(sparse, target), make().partial_fit(dense, target)
    assert a.sigma_ == pytest.approx(b.sigma_, rel=1e-6)
    np.testing.assert_allclose(a.predict(sparse), b.predict(dense), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(a.predict(dense), a.predict(sparse), rtol=1e-4, atol=1e-5)
    for form in ("csc", "coo"):
        other = make().partial_fit(sparse.asformat(form), target)
        np.testing.assert_array_equal(other.predict(sparse), a.predict(sparse))


def test_sparse_network_of_classifiers():
    sparse = random_array((200, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    labels = np.digitize(sparse.sum(axis=1), [2.5, 3.5])
    nodes = np.random.default_rng(1).integers(4, size=200)
    models = [
        NetworkOfClassifiers(passes=2).fit(rows, labels, nodes=nodes)
        for rows in (sparse, sparse.toarray())
    ]
    scores = [model.decision_function(sparse, nodes=nodes) for model in models]
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sigma", [1.0, "scale", "median"])
@pytest.mark.parametrize("make", EVERY)
def test_weight_zero_is_a_row_removed(make, sigma):
    weight, t = np.random.default_rng(2).integers(0, 3, size=400) / 2, targets(make)
    kept = weight > 0
    a = make(sigma=sigma).fit(X, t, sample_weight=weight)
    b = make(sigma=sigma).fit(X[kept], t[kept], sample_weight=weight[kept])
    assert same_state(a, b)
    a.partial_fit(X, t, sample_weight=weight)
    b.partial_fit(X[kept], t[kept], sample_weight=weight[kept])
    assert same_state(a, b)
    assert same_state(a, b.partial_fit(X, t, sample_weight=0))


def test_weight_zero_with_nodes_and_with_a_class_of_its_own():
    weight, nodes = np.where(three == 2, 0.0, 1.0), np.random.default_rng(3).integers(4, size=400)
    kept = weight > 0
    a = NetworkOfClassifiers().fit(X, three, nodes=nodes, sample_weight=weight)
    b = NetworkOfClassifiers().fit(X[kept], three[kept], nodes=nodes[kept])
    assert a.classes_.tolist() == b.classes_.tolist() == [0, 1]
    assert same_state(a, b)


def test_a_row_of_weight_zero_has_no_prediction():
    weight = np.where(np.arange(400) % 3 == 1, 0.0, 1.0)
    kept = weight > 0
    for names in (["no", "yes"], [False, True], [0, 1], [3, 4, 5], [1.0, 2.0], ["a", "b", "c"]):
        labels = np.array(names)[three if len(names) == 3 else (y > 0).astype(int)]
        plain = Classifier().prequential(X[kept], labels[kept], classes=names)
        assert plain.dtype == labels.dtype
        found = Classifier().prequential(X, labels, classes=names, sample_weight=weight)
        assert found[kept].tolist() == plain.tolist()
        assert pd.isna(found[~kept]).all()
        assert found.dtype == (labels.dtype if labels.dtype.kind == "f" else object)
    assert np.isnan(Regressor().prequential(X, y, sample_weight=weight)[~kept]).all()


@pytest.mark.parametrize("make", [Regressor, Network])
def test_weights_scale_the_gradient(make):
    heavy = make(step=0.1, dtype="float64").partial_fit(X, y, sample_weight=3.0)
    plain = make(step=0.3, dtype="float64").partial_fit(X, y)
    np.testing.assert_allclose(heavy.state_.theta, plain.state_.theta, rtol=1e-9, atol=1e-12)
    mixed = make(step=0.2, dtype="float64")
    mixed.partial_fit(X, y, sample_weight=np.where(X[:, 0] > 0, 1.0, 0.5))
    by_hand = make(step=lambda n, q: 0.2, dtype="float64", engine="reference")
    for i in range(0, 400, len(mixed.state_.count)):
        part = slice(i, i + len(mixed.state_.count))
        by_hand.partial_fit(X[part], y[part], sample_weight=np.where(X[part, 0] > 0, 1.0, 0.5))
    np.testing.assert_allclose(mixed.predict(NEW), by_hand.predict(NEW), rtol=1e-8, atol=1e-10)


def test_weights_move_a_classifier():
    noise = np.random.default_rng(0).random(400) < 0.5
    weight = np.where(noise, 5.0, 1.0)
    share = [
        Classifier(loss="logistic").fit(X, noise, sample_weight=w).predict(NEW).mean()
        for w in (None, weight)
    ]
    assert share[0] < 0.7
    assert share[1] > 0.95


def test_several_outputs_are_single_ones_side_by_side():
    Y = np.column_stack([y, -2 * y + 1, X[:, 1] ** 2])
    for make in (Regressor, Network):
        together = make(intercept=True).partial_fit(X, Y)
        apart = [make(intercept=True).partial_fit(X, column) for column in Y.T]
        assert together.predict(NEW).shape == (300, 3)
        for i, single in enumerate(apart):
            own, alone = together.state_.theta[:, i], single.state_.theta[:, 0]
            np.testing.assert_allclose(own, alone, rtol=1e-3, atol=1e-4)
        side_by_side = np.column_stack([single.predict(NEW) for single in apart])
        np.testing.assert_allclose(together.predict(NEW), side_by_side, rtol=1e-3, atol=1e-3)
    assert Regressor().fit(X, Y[:, :1]).predict(NEW).shape == (300, 1)
    assert Regressor().fit(X, Y[:, 0]).predict(NEW).shape == (300,)
    assert Regressor().fit(X, Y).score(X, Y) > 0.8


@pytest.mark.parametrize("make", [Classifier, NetworkOfClassifiers])
def test_several_classes_are_each_against_the_rest(make):
    model = make(loss="logistic").partial_fit(X, three, classes=[0, 1, 2])
    scores = model.decision_function(NEW)
    assert scores.shape == (300, 3)
    for c in range(3):
        against = make(loss="logistic").partial_fit(X, three == c, classes=[False, True])
        alone = against.decision_function(NEW)
        assert alone.shape == (300,)
        np.testing.assert_allclose(scores[:, c], alone, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(model.predict(NEW), scores.argmax(axis=1))
    assert make(n_components=200).fit(X, three).score(X, three) > 0.85


@pytest.mark.parametrize("make", [Classifier, NetworkOfClassifiers])
@pytest.mark.parametrize(
    "names", [["ham", "spam"], [False, True], [-1, 1], [2.0, 7.0], np.array(["a", "b"], object)]
)
def test_labels_of_any_kind(make, names):
    names = np.asarray(names)
    labels = names[(y > 0).astype(int)]
    plain = make().fit(X, y > 0)
    model = make().fit(X, labels)
    assert model.classes_.dtype == names.dtype
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(model.decision_function(NEW), plain.decision_function(NEW))
    np.testing.assert_array_equal(model.predict(NEW), names[plain.predict(NEW).astype(int)])
    assert model.score(X, labels) > 0.9
    fed = make().partial_fit(X, labels, classes=names[::-1])
    assert same_state(fed, make().partial_fit(X, y > 0, classes=[True, False]))
    as_list = make().partial_fit(X, labels, classes=names).partial_fit(X, labels.tolist())
    assert same_state(fed.partial_fit(X, labels), as_list)


def test_a_class_that_comes_late():
    early = three < 2
    model = Classifier().partial_fit(X[early], three[early], classes=[0, 1, 2])
    assert set(model.predict(NEW)) <= {0, 1}
    assert set(model.partial_fit(X, three).partial_fit(X, three).predict(NEW)) == {0, 1, 2}
