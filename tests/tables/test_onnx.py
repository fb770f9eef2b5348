"""Models as ONNX graphs: what onnxruntime says of raw rows is what the model says."""

import importlib
from pathlib import Path

import numpy as np
import pytest

import dokl as library
from commands import column_of, dokl, fails, iso, readings, risen, times_file, train_each
from dokl.base.errors import BadInput
from dokl.network.folded import interval_width
from variants import first

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
adapter = importlib.import_module("dokl.tables.export.onnx")
onnx_model, write_onnx = adapter.onnx_model, adapter.write_onnx

GOLDEN = Path(__file__).parents[1] / "golden"
CLOSE = 1e-5  # of the target's standard deviation
LEARNERS = {
    "gradient": ("--method", "gradient", "--components", "60"),
    "cos": ("--method", "gradient", "--components", "61"),
    "squares": ("-p", "experts=one", "--components", "60"),
    "auto": ("--method", "bank", "--components", "60"),
    "network": ("--nodes", "place", "--method", "gradient", "--components", "60"),
    "cooperation": ("--nodes", "place", "--components", "60"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, short_searches_of_module):
    """A stream with gaps, and a model of its number and of its label by every learner."""
    columns = readings(400) | {"std": np.arange(400) % 5 + 1e6}
    with short_searches_of_module():
        return train_each(tmp_path_factory.mktemp("onnx"), LEARNERS, columns, ("network",))


def rows(n=300):
    """Raw rows with missing numbers, and texts that are missing or unknown."""
    columns = readings(n, seed=1) | {"std": np.arange(n) % 7 + 1e6}
    columns["a"][::11] = np.nan
    texts = columns["place"].astype(object)
    texts[::13], texts[5::13] = None, "attic"
    return {**columns, "place": texts}


def run(path, columns):
    """What a graph says of raw columns, by name of the output."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {}
    for entry in session.get_inputs():
        name = entry.name.removeprefix("column ")
        if entry.type == "tensor(string)":
            values = np.array(["" if v is None else v for v in columns[name]], object)
        else:
            kind = np.float32 if "float" in entry.type else np.float64
            values = np.asarray(columns[name], kind)
        given[entry.name] = values[:, None]
    names = [out.name for out in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


@pytest.mark.parametrize("name", LEARNERS)
def test_numbers_are_the_models_own(folder, tmp_path, name):
    out, columns = tmp_path / "m.onnx", rows()
    dokl("export", folder / f"{name}-y.dokl", out, "--std", "-q")
    model, found = library.load(folder / f"{name}-y.dokl"), run(out, columns)
    close = CLOSE * np.std(columns["y"])
    np.testing.assert_allclose(found["prediction"], model.predict(columns), rtol=0, atol=close)
    if not model.has_intervals:
        assert set(found) == {"prediction"}
        return
    if name == "cooperation":  # of which no matrices are written
        check_one_width(found, model, None, 0.9)
        return
    _, std = model.predict(columns, return_std=True)
    lower, upper = model.predict_interval(columns, 0.9)
    for key, value in {"std": std, "lower": lower, "upper": upper}.items():
        np.testing.assert_allclose(found[key], value, rtol=0, atol=close)


def check_one_width(found, model, node, coverage):
    """Intervals of a network: as far as those of the newest rows are on average."""
    assert set(found) == {"prediction", "lower", "upper"}
    k = -1 if node is None else model.estimator.nodes_.tolist().index(node)
    width = interval_width(model.estimator.network_, k, coverage)
    for end in (found["prediction"] - found["lower"], found["upper"] - found["prediction"]):
        np.testing.assert_allclose(end, np.full(len(end), width), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", LEARNERS)
def test_labels_and_probabilities_are_the_models_own(folder, tmp_path, name):
    out, columns = tmp_path / "m.onnx", rows()
    dokl("export", folder / f"{name}-label.dokl", out, "-q")
    model, found = library.load(folder / f"{name}-label.dokl"), run(out, columns)
    assert found["prediction"].tolist() == model.predict(columns).tolist()
    scores = model.decision_function(columns)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-5, atol=CLOSE)
    assert ("probabilities" in found) == hasattr(model.estimator, "predict_proba")
    if "probabilities" in found:
        said = model.predict_proba(columns)
        np.testing.assert_allclose(found["probabilities"], said, rtol=0, atol=CLOSE)


def test_without_matrices_it_is_small_and_has_one_width(folder, tmp_path):
    full, out, columns = tmp_path / "full.onnx", tmp_path / "m.onnx", rows()
    small = tmp_path / "small.dokl"
    dokl("export", folder / "auto-y.dokl", full, "--std", "-q")
    dokl("export", folder / "auto-y.dokl", out, "--interval", "50", "-q")
    dokl("export", folder / "auto-y.dokl", small, "--predict-only", "-q")
    assert out.stat().st_size < 0.5 * full.stat().st_size
    found, model = run(out, columns), library.load(small)
    assert set(found) == {"prediction", "lower", "upper"}
    lower, upper = model.predict_interval(columns, 0.5, steps_ahead=1)  # ONNX: of the next row
    np.testing.assert_allclose(found["lower"], lower, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(found["upper"], upper, rtol=0, atol=CLOSE)
    # What a small copy can say can be written down again.
    dokl("export", small, out, "--interval", "50", "--overwrite", "-q")
    np.testing.assert_allclose(run(out, columns)["upper"], upper, rtol=0, atol=CLOSE)


def test_a_node_of_a_network_predicts_by_its_own_vector(folder, tmp_path):
    out, columns = tmp_path / "m.onnx", rows()
    for name in ("network-y", "network-label", "cooperation-label"):
        dokl("export", folder / f"{name}.dokl", out, "--node", "roof", "-q", "--overwrite")
        told, found = library.load(folder / f"{name}.dokl"), run(out, columns)
        if name == "network-y":
            wanted = told.predict(columns, nodes="roof")
            np.testing.assert_allclose(found["prediction"], wanted, rtol=0, atol=CLOSE)
            continue
        assert found["prediction"].tolist() == told.predict(columns, nodes="roof").tolist()
        said = told.predict_proba(columns, nodes="roof")
        np.testing.assert_allclose(found["probabilities"], said, rtol=0, atol=CLOSE)
    message = fails("export", folder / "network-y.dokl", tmp_path / "n.onnx", "--node", "rof")
    assert "did you mean 'roof'?" in message
    message = fails("export", folder / "auto-y.dokl", tmp_path / "n.onnx", "--node", "roof")
    assert "only a network has nodes to name" in message


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_a_node_has_intervals_of_one_width(folder, tmp_path, coverage):
    out, path, columns = tmp_path / "m.onnx", folder / "cooperation-y.dokl", rows()
    told = dokl("export", path, out, "--node", "roof", "--interval", 100 * coverage).stderr
    assert "intervals have one width in an export of a network" in told
    assert "--node NAME" not in told
    found, model, close = run(out, columns), library.load(path), CLOSE * np.std(columns["y"])
    wanted = model.predict(columns, nodes="roof")
    np.testing.assert_allclose(found["prediction"], wanted, rtol=0, atol=close)
    check_one_width(found, model, "roof", coverage)
    told = dokl("export", path, tmp_path / "s.onnx").stderr
    assert "for an unknown node: --node NAME exports one" in told


@pytest.mark.parametrize("share", ["sums", "rows"])
@pytest.mark.parametrize("rule", first("metropolis", "alone"))
def test_parts_of_a_network_add_up(share, rule):
    """Own bank, network's bank and corrections: three scalings, and distances between nodes."""
    X = np.random.default_rng(0).normal(size=(180, 2))
    y, nodes = X[:, 0] * X[:, 1], np.arange(180) % 3
    few = {"n_nodes": 3, "n_components": 50, "random_state": 0, "rule": rule, "share": share}
    numbers = library.NetworkRegressor("ring", **few)
    numbers.partial_fit(X, np.column_stack([y + nodes, 3 - y]), nodes=nodes)
    classes = library.NetworkClassifier("ring", **few)
    classes.partial_fit(X, np.digitize(y, [-0.5, 0.5]), classes=[0, 1, 2], nodes=nodes)
    far = np.concatenate([X, 100 * X[:20]])
    for model in (numbers, classes):
        for k in (None, 1):
            check_scores(model, k, far)


def check_scores(model, k, X):
    """Predictions and probabilities of a graph of arrays, at a node or at none."""
    node = None if k is None else str(model.nodes_[k])
    made = onnx_model(model, node=node).SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    names = [out.name for out in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": X}), strict=True))
    name = None if k is None else model.nodes_[k]
    said = model.predict(X, nodes=name)
    if "probabilities" not in found:
        np.testing.assert_allclose(found["prediction"], said, rtol=0, atol=CLOSE)
        return found
    assert found["prediction"].tolist() == said.tolist()
    said = model.predict_proba(X, nodes=name)
    np.testing.assert_allclose(found["probabilities"], said, rtol=0, atol=CLOSE)
    return found


def test_networks_of_earlier_versions_are_not_exported(tmp_path):
    model = library.load(GOLDEN / "network-cooperation.safetensors")
    with pytest.raises(BadInput, match="Train it again"):
        write_onnx(model, tmp_path / "m.onnx")


def test_float_is_half_as_large(folder, tmp_path):
    out, columns = tmp_path / "m.onnx", rows()
    dokl("export", folder / "network-y.dokl", out, "--precision", "float", "-q")
    model = library.load(folder / "network-y.dokl")
    told = run(out, columns)
    assert told["prediction"].dtype == np.float32
    np.testing.assert_allclose(told["prediction"], model.predict(columns), rtol=0, atol=1e-2)


def test_several_outputs_and_kinds_of_labels(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    Y = np.column_stack([X[:, 0] * X[:, 1], 5 - X[:, 0]])
    many = library.AutoRegressor(40, random_state=0).fit(X, Y)
    ints = library.AutoClassifier(40, random_state=0).fit(X, (X[:, 0] > 0).astype(int) + 7)
    truths = library.KernelClassifier(n_components=20, random_state=0).fit(X, X[:, 0] > 0)
    floats = library.KernelClassifier(n_components=20, random_state=0, loss="logistic")
    floats.fit(X, np.digitize(X[:, 0], [-0.5, 0.5]) * 1.0)
    early = library.AutoRegressor(random_state=0).partial_fit(X[:9], Y[:9, 0])
    for model in (many, ints, truths, floats, early):
        made = onnx_model(model, std=True).SerializeToString()
        session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
        names = [out.name for out in session.get_outputs()]
        found = dict(zip(names, session.run(None, {"X": X}), strict=True))
        np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=0, atol=CLOSE)
        if "probabilities" in found:
            said = model.predict_proba(X)
            np.testing.assert_allclose(found["probabilities"], said, rtol=0, atol=CLOSE)
        if "lower" in found:
            lower = model.predict_interval(X)[0]
            np.testing.assert_allclose(found["lower"], lower, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("std", [True, False])
def test_inputs_that_have_come_far_count_as_far(std):
    model, X = risen()
    made = onnx_model(model, std=std).SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    found = session.run(["prediction"], {"X": X})[0]
    np.testing.assert_allclose(found, model.predict(X), rtol=0, atol=CLOSE)


def test_what_is_no_model_is_refused(tmp_path):
    features = library.RandomFeatures(n_components=4, sigma=1.0).fit(np.eye(3))
    with pytest.raises(BadInput, match="does not predict"):
        write_onnx(features, tmp_path / "x.onnx")
    with pytest.raises(BadInput, match="has learned nothing"):
        write_onnx(library.AutoRegressor(), tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


@pytest.mark.parametrize("precision", ["double", "float"])
@pytest.mark.parametrize("learner", ["gradient", "auto"])
def test_times_go_in_as_seconds(tmp_path, learner, precision):
    path, seconds = times_file(tmp_path / "t.csv")
    model, out = tmp_path / "t.dokl", tmp_path / "t.onnx"
    dokl("train", path, "--target", "y", "--model", model, "-q", *LEARNERS[learner])
    told = dokl("export", model, out, "--precision", precision).stderr
    assert "seconds since 1970, UTC: when" in told
    columns = {"when": seconds, "a": column_of(path, "a"), "kind": ["u", None, "v"] * 50}
    columns["when"][7] = np.nan
    loaded = library.load(model)
    wanted = loaded.predict({**columns, "when": [*map(iso, seconds)]})
    found = run(out, columns)["prediction"]
    limit = CLOSE if precision == "double" else 1e-3
    assert np.abs(np.ravel(found) - wanted).max() < limit * np.std(column_of(path, "y"))
