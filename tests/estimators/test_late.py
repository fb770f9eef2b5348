"""Targets that come later: predict with keys now, learn by key then."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import dokl
from dokl import AutoClassifier, AutoRegressor, NetworkClassifier, NetworkRegressor
from dokl.base.errors import BadFile, BadInput
from dokl.estimators import late

pytestmark = pytest.mark.usefixtures("short_searches")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
Y = X[:, 0] + 2 * X[:, 1]
FRAME = pd.DataFrame({"x": X[:, 0], "place": np.array(["roof", "yard", None])[np.arange(120) % 3]})
FRAME.loc[::5, "x"] = np.nan
GAPS = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
SMALL = {"n_components": 20, "random_state": 0}
NODES = np.array(["north", "south"])[np.arange(120) % 2]
MADE = [
    (AutoRegressor(**SMALL), {}),
    (AutoClassifier(**SMALL), {}),
    (NetworkRegressor("complete", **SMALL), {"nodes": NODES}),
    (NetworkClassifier("complete", **SMALL), {"nodes": NODES}),
]


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1e9

        def time(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(late, "time", made)
    return made


def started(estimator=MADE[0][0], rows=X, how=MADE[0][1]):
    y = Y > 0 if estimator._classifying else Y
    some = {name: values[:60] for name, values in how.items()}
    return clone(estimator).fit(rows[:60], y[:60], **some)


@pytest.mark.parametrize("rows", [X, GAPS, FRAME], ids=["numbers", "gaps", "frame"])
@pytest.mark.parametrize(("estimator", "how"), MADE, ids=lambda x: type(x).__name__)
def test_late_targets_are_learned_as_if_they_had_come_at_once(estimator, how, rows):
    y = Y > 0 if estimator._classifying else Y
    at_once, later = (started(estimator, rows, how) for _ in range(2))
    some = slice(60, 90)
    owner = {name: values[some] for name, values in how.items()}
    before = later.predict(rows[some], **owner)
    told = later.predict(rows[some], keys=range(60, 90), **owner)
    np.testing.assert_array_equal(told, before)
    assert len(later.waiting_) == 30
    at_once.partial_fit(rows[some], y[some], **owner)
    assert later.learn(np.arange(60, 90), y[some]) == late.LateTargets(30)
    assert len(later.waiting_) == 0
    np.testing.assert_array_equal(later.predict(rows), at_once.predict(rows))


def test_keys_that_wait_in_vain_are_told(clock):
    model = started().keep_waiting(most=4, hours=2)
    model.predict(X[:3], keys=["a", "b", "c"])
    clock.now += 3600
    model.predict(X[3:6], keys=["d", "e", "a"])  # "a" again takes the place of the first
    assert list(model.waiting_.rows) == ["c", "d", "e", "a"]
    assert model.waiting_.expired == 1
    clock.now += 3601
    found = model.learn(["a", "b", "c", "never", "a"], Y[[5, 1, 2, 3, 5]])
    assert found == late.LateTargets(1, expired=("b", "c"), unknown=("never", "a"))
    assert model.waiting_.expired == 2
    assert list(model.waiting_.rows) == ["d", "e"]
    assert model.bank_.seen == 61
    assert model.learn(["d"], [Y[3]], sample_weight=[2.0]).learned == 1


def test_the_order_is_that_of_the_keys():
    forward, back = started(), started()
    for model in (forward, back):
        model.predict(X[60:63], keys=["a", "b", "c"])
    forward.partial_fit(X[[62, 60]], Y[[62, 60]])
    back.learn(["c", "a"], Y[[62, 60]])
    np.testing.assert_array_equal(forward.predict(X), back.predict(X))


@pytest.mark.parametrize(("estimator", "how"), MADE, ids=lambda x: type(x).__name__)
def test_files_and_pickles_have_the_rows_that_wait(estimator, how, tmp_path):
    model = started(estimator, FRAME, how).keep_waiting(most=10)
    owner = {name: values[60:72] for name, values in how.items()}
    model.predict(FRAME[60:72], keys=[*range(11), "last"], **owner)
    y = (Y > 0 if estimator._classifying else Y)[70:72]
    for again in (dokl.load(model.save(tmp_path / "m.dokl")), pickle.loads(pickle.dumps(model))):
        assert again.waiting_.most == 10
        assert again.waiting_.expired == 2
        assert again.learn([10, "last"], y).learned == 2
        assert again.learn([0], y[:1]).expired == (0,)
    assert len(model.waiting_) == 10
    assert not hasattr(clone(model), "waiting_")


def test_fit_forgets_the_rows_of_the_model_before():
    model = started().keep_waiting(most=7)
    model.predict(X[:2], keys=["a", "b"])
    model.fit(X, Y)
    assert (len(model.waiting_), model.waiting_.most) == (0, 7)


def test_what_fails_changes_nothing():
    model = started()
    model.predict(X[:2], keys=["a", "b"])
    before = model.bank_
    for keys, y, said in (
        (["a"], [1.0, 2.0], "1 keys and 2 targets"),
        (["a"], [np.nan], "NaN"),
        ([1.5], [1.0], "a key is a text or a whole number, not 1.5"),
        ([True], [1.0], "a key is a text"),
    ):
        with pytest.raises(ValueError, match=said):
            model.learn(keys, y)
    for keys, said in ((["a"], "2 rows and 1 keys"), (3.5, "keys are texts"), ([None, 1], "a key")):
        with pytest.raises(BadInput, match=said):
            model.predict(X[:2], keys=keys)
    with pytest.raises(BadInput, match="at least one row may wait"):
        model.keep_waiting(most=0)
    assert model.bank_ is before
    assert list(model.waiting_.rows) == ["a", "b"]
    assert model.learn("a", Y[0]).learned == 1


def test_rows_of_a_node_and_of_none_are_learned_apart():
    model = started(*[MADE[2][0], X, MADE[2][1]])
    model.predict(X[:1], keys=["a"], nodes="north")
    model.predict(X[1:2], keys=["b"])
    with pytest.raises(BadInput, match="in two calls"):
        model.learn(["a", "b"], Y[:2])
    assert [model.learn([key], [1.0]).learned for key in "ab"] == [1, 1]


def test_models_of_tables(tmp_path):
    rows = FRAME.assign(y=Y)
    model = dokl.fit_table(rows[:60], "y", **SMALL)
    model.predict(FRAME[60:62], keys=["a", "b"])
    model = dokl.load(model.save(tmp_path / "m.dokl"))
    assert model.learn(["b", "c"], [1.0, 2.0]) == late.LateTargets(1, unknown=("c",))
    assert model.rows_read == 61
    with pytest.raises(BadInput, match="missing"):
        model.learn(["a"], [None])
    gradient = dokl.fit_table(rows[:60], "y", method="gradient")
    with pytest.raises(BadInput, match="cannot learn targets that come later"):
        gradient.predict(FRAME[:1], keys=["a"])


def test_damaged_files_are_refused(tmp_path):
    model = started()
    model.predict(X[:2], keys=["a", "b"])
    _, x, node = model.waiting_.rows["a"]
    model.waiting_.rows["a"] = (np.inf, x, node)
    with pytest.raises(BadFile, match="do not fit"):
        dokl.load(model.save(tmp_path / "m.dokl"))
