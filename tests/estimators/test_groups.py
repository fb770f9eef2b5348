"""A column of groups: every level has a place of its own, and its last errors."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_serve import Face

import dokl as library
from commands import dokl, fails, json_of, write_csv
from dokl import AutoClassifier, AutoRegressor
from dokl.base import files
from dokl.base.errors import BadFile, BadInput
from dokl.learning.experts import group_errors

pytestmark = pytest.mark.usefixtures("short_searches")


def growth(animals=30, days=12, seed=0):
    """Animals that grow at their own pace, day by day: inputs (day, animal), and weights."""
    rng = np.random.default_rng(seed)
    pace = rng.normal(1.0, 0.3, animals)
    day, animal = np.divmod(np.arange(animals * days), animals)
    y = 40.0 + 8.0 * pace[animal] * day + rng.normal(size=len(day))
    return np.column_stack([day, animal]).astype(float), y


def table(levels=60, rows=6, seed=0):
    """Columns with a text of many levels, each with an offset of its own."""
    rng = np.random.default_rng(seed)
    n = levels * rows
    number, x = np.arange(n) % levels, rng.normal(size=n).round(4)
    y = (x + rng.normal(0, 3, levels)[number]).round(4)
    return {"x": x, "shop": np.array([f"s{k}" for k in number], object), "y": y}


def small(groups=None, **how):
    return AutoRegressor(n_components=40, random_state=0, groups=groups, **how)


# -- the estimators ------------------------------------------------------------------------------
@pytest.mark.full_searches
def test_groups_are_no_quantities():
    """Seen: 10.9 with the animal as a number, 2.5 as a group."""
    X, y = growth()
    late = np.arange(len(y)) >= len(y) // 5
    error = {
        groups: np.abs(small(groups).prequential(X, y) - y)[late].mean() for groups in (None, 1)
    }
    assert error[1] < 0.5 * error[None]


def test_a_missing_number_of_a_group_is_no_mean_of_numbers():
    X, y = growth(days=6)
    unknown, missing = X[-60:].copy(), X[-60:].copy()
    unknown[:, 1], missing[:, 1] = -1.0, np.nan
    frame = pd.DataFrame({"day": X[:, 0], "animal": X[:, 1], "place": ["a", "b"] * (len(X) // 2)})
    for groups, rows, none, gap in (
        (-1, X, unknown, missing),
        ("animal", frame, frame.assign(animal=-1.0), frame.assign(animal=np.nan)),
    ):
        model = small(groups).fit(rows, y)
        np.testing.assert_array_equal(model.predict(gap), model.predict(none))
        model.partial_fit(gap, y[-len(gap) :])
    X[5, 1] = np.nan
    assert np.isfinite(small(-1).fit(X, y).predict(X)).all()


def test_an_exact_file_goes_on_with_the_same_bits(tmp_path):
    X, y = growth(days=9)
    model = small(-1).partial_fit(X[:200], y[:200])
    other = library.load(library.save(model, tmp_path / "m.dokl", exact=True))
    assert other.groups == -1
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    found = [each.prequential(X[200:], y[200:], return_std=True) for each in (model, other)]
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(model.predict_interval(X), other.predict_interval(X))


def test_how_rows_are_cut_into_calls_does_not_matter():
    X, y = growth(days=6)
    one, other = small(-1), small(-1)
    whole = one.prequential(X, y)
    cuts = [other.prequential(X[i : i + 50], y[i : i + 50]) for i in range(0, len(y), 50)]
    np.testing.assert_allclose(np.concatenate(cuts), whole, rtol=1e-9)


def test_the_place_of_the_column_does_not_matter():
    X, y = growth(days=6)
    last, first = small(-1).fit(X, y), small(0).fit(X[:, ::-1], y)
    np.testing.assert_array_equal(last.predict(X), first.predict(X[:, ::-1]))
    np.testing.assert_array_equal(last.relevance_, first.relevance_[::-1])
    assert last.relevance_.sum() == pytest.approx(1)
    assert (last.relevance_ > 0).all()


def test_a_column_has_a_name():
    pandas = pytest.importorskip("pandas")
    X, y = growth(days=4)
    frame = pandas.DataFrame(X, columns=["day", "animal"])
    named, placed = small("animal").fit(frame, y), small(1).fit(X, y)
    np.testing.assert_array_equal(named.predict(frame), placed.predict(X))
    with pytest.raises(BadInput, match=r"'animl'.*animal"):
        small("animl").fit(frame, y)


def test_an_unknown_group_is_an_average_one_and_less_sure():
    X, y = growth()
    model = small(-1).partial_fit(X, y)
    known, strange = X[-1:], np.array([[X[-1, 0], -1.0], [X[-1, 0], 777.0]])
    f, sd = model.predict(np.vstack([known, strange]), return_std=True)
    assert np.isfinite(f).all()
    assert f[1] == pytest.approx(f[2])
    assert sd[1] > sd[0]
    assert abs(f[1] - y[-30:].mean()) < 2 * y[-30:].std()


def test_classes_of_groups():
    """Each group has its own habit, which no order of the groups tells. Seen: .93 right."""
    rng = np.random.default_rng(0)
    group = np.arange(600) % 30
    habit = rng.permutation(30) % 2
    X = np.column_stack([rng.normal(size=600), group])
    y = np.where(habit[group] == 1, "yes", "no")
    model = AutoClassifier(n_components=40, random_state=0, groups=1)
    said = model.prequential(X, y, classes=["no", "yes"])
    assert np.mean(said[300:] == y[300:]) > 0.85


def test_one_expert_of_groups_can_be_merged():
    X, y = growth()
    first = small(-1, experts="one").fit(X[:200], y[:200])
    both = library.merge(first, first.fresh().partial_fit(X[200:], y[200:]))
    alike = first.freeze().partial_fit(X[200:], y[200:])
    np.testing.assert_allclose(both.predict(X), alike.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("groups", "X", "words"),
    [
        (5, np.ones((40, 2)), "names no column"),
        ("shop", np.ones((40, 2)), "is a name"),
        (1.5, np.ones((40, 2)), "the place or the name"),
        (True, np.ones((40, 2)), "the place or the name"),
        (0, np.ones((40, 1)), "the only input"),
        (1, np.full((40, 2), 0.5), "row 0 has 0.5 in column 1"),
    ],
)
def test_what_cannot_be_a_group_is_refused(groups, X, words):
    with pytest.raises(BadInput, match=words):
        small(groups).fit(X, np.arange(40.0))


def test_errors_of_groups_have_bounded_memory():
    """Who makes room for whom does not depend on how rows are cut into calls."""
    rng = np.random.default_rng(0)
    group, y = rng.integers(0, 9, 200), rng.normal(size=(200, 1))
    f, one = np.zeros((200, 1)), np.ones((200, 1))
    known = other = replace(group_errors.start(1), most=4)
    known, mean, _ = group_errors.learn(known, group, y, f, one)
    parts = []
    for i in range(0, 200, 7):
        part = slice(i, i + 7)
        other, found, _ = group_errors.learn(other, group[part], y[part], f[part], one[part])
        parts.append(found)
    assert len(known.numbers) == 4
    np.testing.assert_array_equal(np.concatenate(parts), mean)
    np.testing.assert_array_equal(known.total, other.total)
    assert set(known.numbers) == set(list(dict.fromkeys(group[::-1]))[:4])


def test_fit_corrects_what_it_has_not_learned():
    """More groups than centres, each with an offset. Seen: .40 of the variance without groups, .08
    by either way.
    """
    rng = np.random.default_rng(0)
    group, offset = rng.integers(0, 150, 900), rng.normal(size=150)
    X = np.column_stack([rng.normal(size=900), group])
    y = X[:, 0] + offset[group] + 0.1 * rng.normal(size=900)
    for learn in ("fit", "partial_fit"):
        model = getattr(small(1), learn)(X[:600], y[:600])
        assert np.mean((model.predict(X[600:]) - y[600:]) ** 2) < 0.15 * y.var(), learn


def test_a_damaged_file_is_refused(tmp_path):
    X, y = growth()
    path = small(-1).partial_fit(X[:60], y[:60]).save(tmp_path / "m.dokl")
    meta, arrays = files.read(path, "model")
    wrong = {
        "bank.group_errors.numbers": arrays["bank.group_errors.numbers"][::-1],
        "bank.group_errors.errors": -arrays["bank.group_errors.errors"],
        "bank.now.maps.0.places.alone": 0 * arrays["bank.now.maps.0.places.alone"],
        "bank.now.maps.0.places.points": arrays["bank.now.maps.0.places.points"][1:],
    }
    for name, array in wrong.items():
        files.write(path, "model", meta, {**arrays, name: np.ascontiguousarray(array)})
        with pytest.raises(BadFile):
            library.load(path)
    params = {**meta["params"], "groups": None}
    files.write(path, "model", {**meta, "params": params}, arrays)
    with pytest.raises(BadFile):
        library.load(path)


# -- tables --------------------------------------------------------------------------------------
def test_a_text_of_many_levels_is_a_group(tmp_path):
    columns = table()
    model = library.fit_table(columns, "y", n_components=40, random_state=0)
    assert model.preprocessor.names_out == ("x", "shop")
    assert model.preprocessor.group_levels["s0"] == 1
    later = {"x": [0.0, 0.0, 0.0], "shop": ["s1", "nobody", None], "y": [1.0, 2.0, 3.0]}
    other = library.load(model.save(tmp_path / "m.dokl"))
    np.testing.assert_array_equal(model.predict(later), other.predict(later))
    assert np.isfinite(model.predict(later)).all()
    assert "nobody" not in model.preprocessor.group_levels  # which predicting does not learn
    for each in (model, other):
        each.partial_fit(later)
        assert each.preprocessor.group_levels["nobody"] == 61
    np.testing.assert_allclose(model.predict(columns), other.predict(columns), atol=1e-6)


def test_what_fails_leaves_the_levels_as_they_were():
    model = library.fit_table(table(), "y", n_components=40, random_state=0)
    before = dict(model.preprocessor.group_levels)
    with pytest.raises(BadInput):
        model.partial_fit({"x": [1.0], "shop": ["new"], "y": [np.inf]})
    model.estimator.partial_fit = model.estimator.prequential = None  # anything that breaks
    with pytest.raises(TypeError):
        model.partial_fit({"x": [1.0], "shop": ["new"], "y": [1.0]})
    assert model.preprocessor.group_levels == before


def test_few_levels_stay_inputs_of_their_own():
    model = library.fit_table(table(5, 40), "y", n_components=40, random_state=0)
    assert model.preprocessor.group is None
    assert model.estimator.groups is None


def test_of_several_texts_the_one_with_most_levels_is_the_group(tmp_path):
    columns = table(80, 5)
    n = len(columns["x"])
    columns["town"] = np.array([f"t{k % 61}" for k in range(n)], object)
    path = write_csv(tmp_path / "r.csv", columns)
    result = dokl("train", path, "--target", "y", "--components", 40, "--model", tmp_path / "m")
    assert "column 'shop': 80 levels in the first rows, each a group" in result.stdout
    assert "town (61 levels, of which the 50 most frequent are inputs)" in result.stdout
    assert "none of the 50 levels that are inputs, the most frequent of the 61" in result.stderr
    assert "--group town" in result.stderr
    assert "but new" not in result.stderr
    inputs = json_of("inspect", tmp_path / "m", "--json")["input_names"]
    assert (len(inputs), inputs[-1]) == (52, "shop")


def test_numbers_that_look_like_names_are_pointed_out(tmp_path):
    X, y = growth(days=6)
    columns = {"day": X[:, 0].astype(int), "animal": X[:, 1].astype(int), "y": y.round(3)}
    path, model = write_csv(tmp_path / "r.csv", columns), tmp_path / "m.dokl"
    told = dokl("train", path, "--target", "y", "--components", 40, "--model", model).stdout
    assert "column 'animal': 30 whole numbers that look like names of things" in told
    assert "--group animal" in told
    assert "column 'day'" not in told
    grouped = ("--target", "y", "--group", "animal", "--components", 40, "--overwrite")
    told = dokl("train", path, *grouped, "--model", model).stdout
    assert "column 'animal': 30 levels in the first rows, each a group" in told
    assert "look like names" not in told
    assert json_of("inspect", model, "--json")["input_names"] == ["day", "animal"]
    assert len(dokl("predict", model, path).stdout.splitlines()) == 1 + len(y)
    assert json_of("evaluate", model, path, "--json")["rows"] == len(y)
    dokl("train", path, "--model", model, "--continue")
    assert json_of("inspect", model, "--json")["rows_read"] == 2 * len(y)
    for out in ("m.onnx", "m.c"):
        assert "column of groups" in fails("export", model, tmp_path / out)
    assert "column of groups" in fails("export", model, tmp_path / "s.dokl", "--predict-only")


def test_a_served_model_has_groups(tmp_path):
    columns, path = table(), tmp_path / "m.dokl"
    library.fit_table(columns, "y", n_components=40, random_state=0).save(path)
    alone = library.load(path)
    row = {"x": 0.5, "shop": "s3"}
    strange = {"x": 0.5, "shop": "nobody"}

    def told():
        return face.predict([row, strange])["predictions"]

    with Face(path) as face:
        np.testing.assert_allclose(told(), alone.predict([row, strange]), rtol=1e-6)
        face.learn([{**row, "y": 3.0}])
        alone.partial_fit([{**row, "y": 3.0}])
        np.testing.assert_allclose(told(), alone.predict([row, strange]), rtol=1e-6)
        face.learn([{**strange, "y": 3.0}])
        assert np.isfinite(told()).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--group", "y"), "is the target"),
        (("--group", "shop", "--method", "gradient"), "only --method bank"),
        (("--group", "shop", "--levels", "shop=a,b"), "leave out --levels"),
        (("--group", "shp"), "'shop'"),
        (("-p", "groups=0"), "--group"),
    ],
)
def test_what_cannot_be_a_column_of_groups_is_refused(tmp_path, options, words):
    path = write_csv(tmp_path / "r.csv", table(5, 10))
    assert words in fails("train", path, "--target", "y", "--model", tmp_path / "m", *options)
