"""Estimators saved and loaded: as if nothing had happened in between."""

import os
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import dokl
from dokl import files, losses, schedules
from dokl.base.errors import BadFile, BadInput, FingerprintMismatch
from dokl.estimators.saving import load_with_extra, save
from dokl.learning.kernels import Custom, Gaussian, Matern
from saved import CASES, NUMBERS, X, close, network, regressor, same_state, scores, started

pytestmark = pytest.mark.usefixtures("short_searches")

HERE = Path(__file__).parents[1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model"


@pytest.mark.parametrize("case", CASES)
def test_loading_goes_on_as_if_never_saved(case, path):
    model, y = CASES[case]
    model = started(model, y)
    assert model.save(path) == path
    loaded = dokl.load(path)
    assert type(loaded) is type(model)
    assert loaded.fingerprint_ == model.fingerprint_
    np.testing.assert_array_equal(scores(loaded), scores(model))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X), strict=True)
    same_state(loaded, model)
    for each in (model, loaded):
        each.partial_fit(X[80:], y[80:])
    if hasattr(model, "network_"):  # of banks, which have covariances
        same_state(loaded, model, single=True)
        close(scores(loaded), scores(model))
    else:
        same_state(loaded, model)
        np.testing.assert_array_equal(scores(loaded), scores(model))


@pytest.mark.parametrize("case", CASES)
def test_what_is_known_of_a_model_is_known_of_the_loaded_one(case, path):
    model = started(*CASES[case])
    model.save(path)
    loaded = dokl.load(path)
    model.predict(X), loaded.predict(X)  # makes the plan
    assert set(vars(loaded)) == set(vars(model))
    known = ("sigma_", "engine_", "dtype_", "n_features_in_", "loss_", "schedule_")
    for name in (
        known if "cooperat" not in case else ("n_features_in_",)
    ):  # which has no such settings
        assert getattr(loaded, name) == getattr(model, name), name
    before, after = model.get_params(), loaded.get_params()
    for name in set(before) - {"graph", "dtype"}:
        assert before[name] == after[name], name
        assert type(before[name]) is type(after[name]) or isinstance(before[name], np.generic)
    assert np.dtype(before.get("dtype")) == np.dtype(after.get("dtype"))


@pytest.mark.parametrize("case", [name for name, (model, _) in CASES.items() if "nodes" in name])
def test_graphs_come_back_with_their_names(case, path):
    model = started(*CASES[case])
    model.save(path)
    loaded = dokl.load(path)
    assert list(loaded.graph.nodes) == list(model.graph.nodes) == loaded.nodes_.tolist()
    assert nx.utils.graphs_equal(loaded.graph, nx.Graph(model.graph.edges))
    for node in model.nodes_:
        expected = model.predict(X[:5], nodes=node)
        np.testing.assert_array_equal(loaded.predict(X[:5], nodes=node), expected)


@pytest.mark.parametrize("case", ["matrix", "named nodes", "uniform rule", "unseeded", "random"])
def test_a_loaded_model_can_be_fitted_anew(case, path):
    model = started(*CASES[case])
    model.save(path)
    loaded, y = dokl.load(path), CASES[case][1]
    if case == "unseeded":
        assert loaded.random_state is None
    else:
        np.testing.assert_array_equal(loaded.fit(X, y).predict(X), model.fit(X, y).predict(X))


def test_a_generator_becomes_its_seed(path):
    model = dokl.KernelRegressor(n_components=8, random_state=np.random.RandomState(5))
    model.fit(X, NUMBERS).save(path)
    loaded = dokl.load(path)
    assert loaded.random_state == model.feature_map_.seed
    np.testing.assert_array_equal(loaded.fit(X, NUMBERS).predict(X), model.predict(X))


def test_strength_of_the_regularization_in_use_is_saved(path):
    model = started(*regressor(alpha=0.01, step=0.5)).set_params(alpha=0.5)
    model.save(path)
    loaded = dokl.load(path)
    assert loaded.alpha == 0.5
    for each in (model, loaded):
        each.partial_fit(X, NUMBERS)
    same_state(loaded, model)


def test_column_names(path):
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "größe", "c"])
    dokl.KernelRegressor(n_components=8, random_state=0).fit(frame, NUMBERS).save(path)
    loaded = dokl.load(path)
    assert loaded.feature_names_in_.dtype == object
    assert loaded.feature_names_in_.tolist() == ["a", "größe", "c"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["c", "a", "größe"]])


@pytest.mark.parametrize(
    "params", [{}, {"kernel": Matern(2.0, 0.7), "features": "cos", "dtype": "float32"}]
)
def test_random_features(params, path):
    model = dokl.RandomFeatures(n_components=10, random_state=np.random.RandomState(1), **params)
    Z = model.fit_transform(X)
    assert model.save(path) == path
    loaded = dokl.load(path)
    np.testing.assert_array_equal(loaded.transform(X), Z, strict=True)
    assert loaded.get_feature_names_out().tolist() == model.get_feature_names_out().tolist()
    assert set(vars(loaded)) == set(vars(model))


# -- size, other processes, other readers ------------------------------------------------------
@pytest.mark.parametrize("case", ["gaussian", "three texts", "network of classifiers"])
def test_size_does_not_depend_on_how_much_was_learned(case, path):
    model, y = CASES[case]
    model, sizes = started(model, y), set()
    for _ in range(4):
        sizes.add(model.save(path).stat().st_size)
        for _ in range(3):
            model.partial_fit(np.tile(X, (30, 1)), np.tile(y, 30))
    assert len(sizes) == 1
    vectors = sum(a.nbytes for a in model.state_.nodes.values())
    assert sizes.pop() < vectors + 4000


def test_the_same_model_gives_the_same_bytes(path):
    model = started(*CASES["three texts"])
    first = model.save(path).read_bytes()
    assert dokl.load(path).save(path).read_bytes() == first


ELSEWHERE = """
import sys
import numpy as np
import dokl
model = dokl.load(sys.argv[1])
np.save(sys.argv[2], model.decision_function(np.load(sys.argv[2])))
"""


def test_another_process_predicts_the_same(path, tmp_path):
    model = started(*CASES["three texts"])
    model.save(path)
    rows = tmp_path / "rows.npy"
    np.save(rows, X)
    command = [sys.executable, "-c", ELSEWHERE, str(path), str(rows)]
    subprocess.run(command, check=True, timeout=300)
    np.testing.assert_array_equal(np.load(rows), model.decision_function(X))


def test_the_documented_reader_reads_it(path):
    """The program printed in docs/format.md, and its formula for predictions."""
    model = started(*CASES["three texts"])
    model.save(path)
    page = (HERE.parent / "docs" / "format.md").read_text()
    space = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), space)
    described, arrays = space["read"](path)
    meta = described["meta"]
    assert described["strings"]["classes"]["values"] == ["a", "bb", "ccc"]
    assert meta["class"] == "KernelClassifier"
    assert meta["exchange"]["average"] == "weighted"
    dtype, shape, values = arrays["state.mean_theta"]
    assert dtype == "F32"
    theta = np.frombuffer(values, "<f4").reshape(shape)[0]
    bias = np.frombuffer(arrays["state.mean_bias"][2], "<f4")
    angles = X @ model.feature_map_.dense_omega()
    z = np.sqrt(2 / 20) * np.hstack([np.cos(angles), np.sin(angles)])
    expected = z @ theta.T + meta["exchange"]["intercept"] * bias
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-5)


def test_documentation_names_everything_that_is_written(path):
    page = (HERE.parent / "docs" / "format.md").read_text()
    for case in ("named nodes", "objects", "three texts", "matrix"):
        meta, arrays = files.read(started(*CASES[case]).save(path), "model")
        for name in (*meta, *arrays, *meta["features"], *meta["exchange"]):
            assert f"`{name}`" in page, name


# -- code does not travel ----------------------------------------------------------------------
def mine():
    return Custom(
        lambda v: np.exp(-0.5 * (v**2).sum(-1)),
        lambda rng, n, d: rng.standard_normal((n, d)),
        name="mine",
    )


def slow(n, q):
    return 0.5 / n**0.6


QUARTIC = losses.Loss("quartic", lambda y, f: (f - y) ** 4 / 4, lambda y, f: (f - y) ** 3)
CUSTOM = {
    "kernel": (regressor(kernel=mine(), engine="reference"), {"mine": mine()}),
    "loss": (regressor(loss=QUARTIC, step=0.01, engine="reference"), {"quartic": QUARTIC}),
    "step": (regressor(step=slow, engine="reference"), {"custom": slow}),
    "schedule": (
        regressor(step=schedules.custom(slow, "slow"), engine="reference"),
        {"slow": schedules.custom(slow, "slow")},
    ),
}


@pytest.mark.parametrize("case", CUSTOM)
def test_objects_of_your_own(case, path):
    (model, y), objects = CUSTOM[case]
    model = started(model, y)
    model.save(path)
    (name,) = objects
    with pytest.raises(BadInput, match=rf"of your own, '{name}': it is Python code.*objects="):
        dokl.load(path)
    with pytest.raises(BadInput, match="must be a"):
        dokl.load(path, objects={name: 3})
    loaded = dokl.load(path, objects)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    for each in (model, loaded):
        each.partial_fit(X, y)
    same_state(loaded, model)


def test_objects_whose_names_collide(path):
    own = losses.Loss("custom", lambda y, f: (f - y) ** 2, lambda y, f: 2 * (f - y))
    model = started(*regressor(step=slow, loss=own, engine="reference"))
    model.save(path)
    loaded = dokl.load(path, {"loss:custom": own, "schedule:custom": slow})
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_another_kernel_of_the_same_name_is_refused(path):
    started(*CUSTOM["kernel"][0]).save(path)
    other = Custom(mine().function, lambda rng, n, d: 2 * rng.standard_normal((n, d)), "mine")
    with pytest.raises(FingerprintMismatch, match="the saved feature map"):
        dokl.load(path, {"mine": other})


def test_a_kernel_class_of_your_own_is_code_even_under_a_known_name(path):
    class Wider(Gaussian):
        def frequencies(self, U):
            return super().frequencies(U) / 2

    started(*regressor(kernel=Wider(1.0), features="paired")).save(path)
    with pytest.raises(BadInput, match="of your own, 'gaussian'"):
        dokl.load(path)
    assert dokl.load(path, {"gaussian": Wider(1.0)}).kernel == Wider(1.0)


# -- what belongs to the model besides ---------------------------------------------------------
def test_extra_comes_back(path):
    meta = {"scaling": {"columns": ["a", "b"], "kind": "running"}}
    arrays = {"mean": np.array([0.5, 1.0]), "names": np.array(["ä", "b"])}
    model = started(*CASES["gaussian"])
    save(model, path, extra=(meta, arrays))
    loaded, (found, found_arrays) = load_with_extra(path)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert found == meta
    assert set(found_arrays) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found_arrays[name], array, strict=True)
    assert type(dokl.load(path)) is type(model)  # what is not a table model's is not looked at


def test_no_extra(path):
    started(*CASES["gaussian"]).save(path)
    assert load_with_extra(path)[1] == ({}, {})


# -- what cannot be saved ----------------------------------------------------------------------
@pytest.mark.parametrize(
    "made",
    [dokl.KernelRegressor, dokl.NetworkClassifier, dokl.DiffusionRegressor, dokl.RandomFeatures],
)
def test_nothing_learned_nothing_saved(made, path):
    with pytest.raises(BadInput, match=f"{made.__name__} that has learned nothing"):
        made().save(path)
    assert not path.exists()


def test_only_our_estimators(path):
    from sklearn.linear_model import LinearRegression

    class Mine(dokl.KernelRegressor):
        pass

    for model in (LinearRegression(), Mine().fit(X, NUMBERS), 3):
        with pytest.raises(BadInput, match="cannot be saved here, only KernelRegressor"):
            dokl.save(model, path)


def test_names_that_no_file_can_hold(path):
    graph = nx.cycle_graph([frozenset([k]) for k in range(3)])
    model = started(*network(graph))
    with pytest.raises(BadInput, match="only text, numbers and tuples"):
        model.save(path)


def test_a_failed_save_leaves_the_old_model(path, monkeypatch):
    model = started(*CASES["gaussian"])
    before = model.save(path).read_bytes()
    model.partial_fit(X, NUMBERS)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadFile, match="the disk is full"):
        model.save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_files_of_classes_make_long_covariances_from_their_rows(path):
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(300, 3)), rng.uniform(0.5, 2.0, size=300)
    classes = np.floor(rows[:, 0] + rows[:, 1] * rows[:, 2]).clip(-1, 1)
    model = dokl.AutoClassifier(200, random_state=0)
    model.partial_fit(rows[:280], classes[:280], np.unique(classes), weight[:280])
    matrices = sum(known.P.size for known in model.bank_.memories if known.P.shape[0] > 150)
    assert model.save(path).stat().st_size < 2 * matrices  # a triangle in single precision
    loaded = dokl.load(path)
    for before, after in zip(model.bank_.memories[:5], loaded.bank_.memories[:5], strict=True):
        np.testing.assert_allclose(after.covariance(), before.covariance(), rtol=1e-6, atol=1e-8)
    for each in (model, loaded):
        each.partial_fit(rows[280:], classes[280:], sample_weight=weight[280:])
    np.testing.assert_allclose(loaded.predict_proba(rows), model.predict_proba(rows), atol=1e-5)


def test_files_of_classes_without_their_rows_are_refused(path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 3))
    model = dokl.AutoClassifier(50, random_state=0).partial_fit(rows, rows[:, 0] > 0, [False, True])
    model.save(path)
    meta, arrays = files.read(path, "model")
    meta["bank"]["kept"]["seen"] = 200
    files.write(path, "model", meta, arrays)
    with pytest.raises(BadFile, match="P "):
        dokl.load(path)
