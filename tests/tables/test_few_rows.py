"""Files of a few dozen rows: the written model is made from all of them."""

import numpy as np
import pytest

import dokl as package
from awkward import written
from commands import dokl
from dokl import AutoRegressor


def plane(n):
    """Columns of a nearly linear function, (n,) each."""
    rng = np.random.default_rng(5)
    a, b = rng.uniform(0, 10, n).round(3), rng.uniform(0, 10, n).round(3)
    return {"a": a, "b": b, "y": (2 * a - b + 0.1 * rng.normal(size=n)).round(3)}


def inputs(columns):
    return np.column_stack([columns["a"], columns["b"]])


@pytest.mark.parametrize("n", [12, 45, 124])
def test_a_short_file_gives_the_model_of_fit(tmp_path, n):
    rows, later = plane(n), plane(300)
    path, file = written(tmp_path / "few.csv", rows), tmp_path / "few.dokl"
    said = dokl("train", path, "--target", "y", "--no-shuffle", "--model", file).stderr
    assert f"few rows: the model is a fit of all {n}, better than" in said
    found = package.load(file).predict(later)
    whole = AutoRegressor(random_state=0).fit(inputs(rows), rows["y"])
    assert np.allclose(found, whole.predict(inputs(later)), atol=1e-5)
    assert np.mean((found - later["y"]) ** 2) < 0.1 * np.var(later["y"])
    model = package.fit_table(rows, "y", shuffle=False, random_state=0)
    assert np.allclose(model.predict(later), found, atol=1e-5)


def test_rows_are_still_scored_before_they_are_learned(tmp_path):
    model = package.fit_table(plane(20), "y", random_state=0)
    figures = model.tally.figures()
    assert figures["rows"] == 20
    assert figures["r2"] < 0.2  # up to then there was a mean and nothing else


def test_a_short_file_can_be_continued(tmp_path):
    columns, file = plane(90), tmp_path / "m.dokl"
    parts = [{name: v[some] for name, v in columns.items()} for some in np.split(np.arange(90), 3)]
    dokl("train", written(tmp_path / "0.csv", parts[0]), "--target", "y", "--model", file, "-q")
    for i in (1, 2):
        path = written(tmp_path / f"{i}.csv", parts[i])
        dokl("train", path, "--model", file, "--continue", "-q")
    model, later = package.load(file), plane(300)
    assert model.rows_read == 90
    assert model.score(later) > 0.95


def test_from_125_rows_on_a_file_is_learned_row_by_row(tmp_path):
    rows = plane(125)
    model = package.fit_table(rows, "y", shuffle=False, random_state=0)
    stream = AutoRegressor(random_state=0).partial_fit(inputs(rows), rows["y"])
    assert np.allclose(model.predict(rows), stream.predict(inputs(rows)), atol=1e-9)
