"""`dokl backtest` and `dokl.backtest`: rolling origins beside persistence, ridge and LightGBM."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dokl
from commands import dokl as command
from commands import fails, json_of, write_csv
from dokl.tables.jobs import rolling_origin
from variants import first

pytestmark = pytest.mark.usefixtures("short_searches")
SMALL = ("--components", "30")
EVERYBODY = {
    "dokl following", "dokl frozen", "ridge", "LightGBM", "the last value", "a day before",
    "a week before",
}  # fmt: skip


def stations(n=420, seed=0):
    """Hourly temperatures of two places, hour by hour, with a gap here and there."""
    rng = np.random.default_rng(seed)
    when = pd.date_range("2024-01-01", periods=n, freq="h").repeat(2)
    slow = np.zeros((n, 2))
    for hour in range(1, n):
        slow[hour] = 0.9 * slow[hour - 1] + rng.normal(size=2)
    daily = 3 * np.sin(2 * np.pi * np.arange(n) / 24)[:, None]
    temp = (slow + daily + [10, 20]).round(3).ravel()
    temp[rng.random(2 * n) < 0.02] = np.nan
    wind = rng.normal(size=2 * n).round(3)
    return pd.DataFrame({"when": when, "place": ["roof", "yard"] * n, "wind": wind, "temp": temp})


@pytest.fixture
def air(tmp_path):
    table = stations()
    table["when"] = table["when"].astype(str)
    cells = table.astype(object).where(table.notna(), "")
    return write_csv(tmp_path / "air.csv", {name: cells[name] for name in cells})


def whole(found):
    """The scores of all folds together, by predictor."""
    return found[found.fold == "all"].set_index("model")


def test_command_tells_errors_beside_others(air, tmp_path):
    plot, page = tmp_path / "air.png", tmp_path / "air.html"
    asked = ("--target", "temp", "--by", "place", "--horizon", "3", "--folds", 2, *SMALL)
    told = command("backtest", air, *asked, "--plot", plot, "--html", page)
    assert "lags that the first 504 rows propose by 'place'" in told.stdout
    assert all(name in told.stdout for name in EVERYBODY)
    assert "3 rows ahead: dokl frozen is" in told.stdout
    assert plot.stat().st_size > 10_000
    assert all(name in page.read_text() for name in EVERYBODY)
    quiet = command("backtest", air, *asked, "-q")
    assert not quiet.stderr
    assert "propose" not in quiet.stdout


def test_json_has_folds_distances_and_coverage(air):
    found = json_of("backtest", air, "--target", "temp", "--by", "place", "--folds", 3, *SMALL,
                    "--lag", "temp=1,24", "--json")  # fmt: skip
    assert {row["model"] for row in found["scores"]} == EVERYBODY
    assert {row["fold"] for row in found["scores"]} == {"all", 1, 2, 3}
    every = {row["model"]: row for row in found["scores"] if row["fold"] == "all"}
    assert len({row["rows"] for row in every.values()}) == 1  # the same rows for everybody
    best = every["dokl following"]
    assert best["rmse"] < every["the last value"]["rmse"]
    assert best["rmse"] < every["a day before"]["rmse"]
    assert 0.8 < best["coverage"] < 0.99
    assert every["ridge"]["coverage"] is None
    (only,) = found["horizons"]
    assert [each["row"] for each in only["origins"]] == [505, 617, 729]
    assert only["origins"][0]["time"].startswith("2024-01-11T12:00")
    assert "temp lag 24" in only["inputs"]
    assert set(only["error_by_distance"]) == {"rows", *EVERYBODY}
    assert set(only["coverage_by_fold"]) == {"1", "2", "3"}


def test_rows_are_sorted_by_time(air, tmp_path):
    table = stations().sort_values(["place", "when"], kind="stable")
    asked = {"by": "place", "horizon": 2, "folds": 2, "n_components": 30}
    one, other = dokl.backtest(stations(), "temp", **asked), dokl.backtest(table, "temp", **asked)
    pd.testing.assert_frame_equal(one, other)
    lines = air.read_text().splitlines()
    by_place = sorted(lines[1:], key=lambda line: line.split(",")[1])
    (tmp_path / "grouped.csv").write_text("\n".join([lines[0], *by_place]) + "\n")
    told = command("backtest", tmp_path / "grouped.csv", "--target", "temp", "--by", "place",
                   "--folds", 1, *SMALL)  # fmt: skip
    assert "the rows were sorted by column 'when'" in told.stderr


@pytest.mark.parametrize("horizon", first("5h", 0, 3))
def test_nobody_sees_what_is_not_known_yet(horizon):
    asked = {"by": "place", "horizon": horizon, "folds": 2, "n_components": 30}
    table = stations(200)
    one = dokl.backtest(table, "temp", predictions=True, **asked)
    changed = table.copy()
    changed.loc[350:, "temp"] += 100.0  # in the middle of the second fold
    other = dokl.backtest(changed, "temp", predictions=True, **asked)
    ahead = {0: 0, 3: 6, "5h": 10}[horizon]
    before = (one.row < 350 + ahead).to_numpy()  # predicted before anything changed
    assert 0 < before.sum() < len(one)
    same = [name for name in one if name not in ("y", "row")]
    pd.testing.assert_frame_equal(one.loc[before, same], other.loc[before, same])
    assert not np.allclose(one.loc[~before, "dokl following"], other.loc[~before, "dokl following"])


@pytest.mark.parametrize("horizon", [0, 2])
def test_frozen_is_what_a_table_model_predicts(horizon):
    table = stations(200).drop(columns="wind").fillna({"temp": 15.0})
    lags = {"lags": {"temp": [1, 24]}, "by": "place", "horizon": horizon}
    how = {"n_components": 30, "random_state": 0}
    found = dokl.backtest(table, "temp", folds=1, held_out=0.25, predictions=True, **lags, **how)
    model = dokl.fit_table(table[:300], "temp", **lags, **how)
    ahead = {"steps_ahead": np.arange(1, len(table) - 299)}
    said = model.predict(table[300:], **ahead)
    at = found.row.to_numpy() - 2 * horizon - 300
    np.testing.assert_allclose(found["dokl frozen"], said[at], rtol=1e-9)
    lower, upper = model.predict_interval(table[300:], **ahead)
    np.testing.assert_allclose(found["dokl frozen lower"], lower[at], rtol=1e-9)
    np.testing.assert_allclose(found["dokl frozen upper"], upper[at], rtol=1e-9)


def test_persistence_repeats_what_was_known():
    table = stations(200).drop(columns="wind").fillna({"temp": 15.0})
    asked = {"by": "place", "horizon": 3, "folds": 1, "n_components": 30}
    found = dokl.backtest(table, "temp", predictions=True, lags=(), **asked)
    temp = table["temp"].to_numpy()
    np.testing.assert_array_equal(found.y, temp[found.row])
    np.testing.assert_array_equal(found["the last value"], temp[found.row - 6])
    np.testing.assert_array_equal(found["a day before"], temp[found.row - 48])
    np.testing.assert_array_equal(found.group, table["place"].to_numpy()[found.row])
    np.testing.assert_array_equal(found.time, table["when"].to_numpy()[found.row])


def test_several_horizons_are_harder(air, tmp_path):
    picture = tmp_path / "h.svg"
    found = json_of("backtest", air, "--target", "temp", "--by", "place", "--horizon", "1,12h",
                    "--folds", 1, "--rows", 500, *SMALL, "--json", "--plot", picture)  # fmt: skip
    near, far = (
        row["rmse"] for horizon in ("1", "12h") for row in found["scores"]
        if row["horizon"] == horizon and row["fold"] == "all" and row["model"] == "dokl frozen"
    )  # fmt: skip
    assert near < far
    assert len(found["words"]) == 4
    assert picture.exists()


def test_a_series_without_times_or_groups(tmp_path):
    y = np.sin(np.arange(300) / 5) + np.random.default_rng(0).normal(size=300) / 20
    path = write_csv(tmp_path / "y.csv", {"y": y.round(4)})
    told = command("backtest", path, "--target", "y", "--held-out", 20, "--folds", 2, *SMALL)
    assert "the last value" in told.stdout
    assert "a day before" not in told.stdout
    frame = whole(dokl.backtest({"y": y}, "y", held_out=0.2, folds=2, n_components=30))
    assert frame.rows.unique().tolist() == [60]
    newest = command("backtest", path, "--target", "y", "--rows", 200, "--folds", 1, *SMALL)
    assert "80" in newest.stdout


@pytest.mark.slow
def test_long_series_show_coverage_by_month(tmp_path):
    days, rng = pd.date_range("2023-01-01", periods=300), np.random.default_rng(2)
    y = (np.sin(np.arange(300) / 7) + rng.normal(size=300) / 5).round(3)
    path = write_csv(tmp_path / "days.csv", {"day": days.strftime("%Y-%m-%d"), "y": y})
    found = json_of("backtest", path, "--target", "y", *SMALL, "--json")
    (only,) = found["horizons"]
    assert list(only["coverage_by_month"]) == ["2023-07", "2023-08", "2023-09", "2023-10"]
    assert set(only["coverage_by_month"]["2023-09"]) == {"dokl following", "dokl frozen"}


def test_a_model_that_forgets_is_named(tmp_path):
    rng = np.random.default_rng(1)
    steps = np.cumsum(rng.normal(size=400)).round(3)  # a random walk leaves what was learned
    path = write_csv(tmp_path / "walk.csv", {"a": rng.normal(size=400).round(3), "y": steps})
    told = json_of("backtest", path, "--target", "y", "--lags", "none", *SMALL, "--json")
    assert any("-p experts=lasting" in line for line in told["words"])
    assert any("dokl frozen is behind the last value" in line for line in told["words"])
    told = json_of("backtest", path, "--target", "y", "--lags", "none", *SMALL, "--json",
                   "-p", "experts=one")  # fmt: skip
    assert not any("-p experts=lasting" in line for line in told["words"])


def test_benchmark_of_series(capsys, monkeypatch):
    pytest.importorskip("river")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks import time

    monkeypatch.setattr("sys.argv", ["time", "passengers", "--data", "nowhere"])
    time.main()
    told = capsys.readouterr().out
    assert "passengers, monthly" in told
    assert "dokl frozen: at most 5 % behind the best of the others on" in told


def test_what_is_not_installed_is_named(air, monkeypatch):
    monkeypatch.setattr(rolling_origin, "find_spec", lambda name: None)
    told = command("backtest", air, "--target", "temp", "--by", "place", "--folds", 1, *SMALL)
    assert "LightGBM" not in told.stdout
    assert "LightGBM is not installed (pip install lightgbm)" in told.stderr


def test_interrupted_folds_are_left_out(air, monkeypatch):
    calls = []

    def slow(pairs, learn, predict):
        calls.append(len(learn))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return np.zeros(len(predict))

    monkeypatch.setattr(rolling_origin, "peers", lambda: ({"slow": slow}, {}))
    asked = ("backtest", air, "--target", "temp", "--by", "place", *SMALL, "--json")
    result = command(*asked, code=130)
    assert "the folds that were done" in result.stderr
    assert '"fold": 1' in result.stdout
    assert '"fold": 2' not in result.stdout
    calls[:] = [0]  # the next call is the second
    assert fails(*asked, code=130) == "interrupted"


def test_rows_that_are_wrong_are_passed_over_or_end_it(air, tmp_path):
    lines = air.read_text().splitlines()
    lines[700] = lines[698]  # the same place and time once more
    lines[730] = "2024-01-16 04:00:00,yard,strong,1.0"
    path = tmp_path / "spoiled.csv"
    path.write_text("\n".join(lines) + "\n")
    asked = ("backtest", path, "--target", "temp", "--by", "place", "--folds", 1, *SMALL)
    assert "line 731, column 'wind': 'strong' is not a number" in fails(*asked)
    refused = tmp_path / "refused.csv"
    told = command(*asked, "--on-error", "skip", "--refused", refused)
    assert "2 rows that cannot be used were passed over" in told.stderr
    assert len(refused.read_text().splitlines()) == 3
    told = command(*asked, "--on-error", "stop", code=1)
    assert "dokl following" in told.stdout
    assert "The scores are those of the rows before" in told.stderr


def test_wrong_requests_say_what_to_do(air, tmp_path):
    asked = ("backtest", air, "--by", "place", *SMALL)
    assert "temp" in fails(*asked, "--target", "tmp")
    assert "holds no numbers" in fails(*asked, "--target", "when")
    assert "no numbers" in fails("backtest", air, *SMALL, "--target", "place")
    assert "--by COLUMN" in fails("backtest", air, *SMALL, "--target", "temp")
    assert "too few" in fails(*asked, "--target", "temp", "--rows", 90)
    assert "neither a number of rows" in fails(*asked, "--target", "temp", "--horizon", "soon")
    assert "nearest is 'place'" in fails("backtest", air, "--target", "temp", "--by", "plce")
    (tmp_path / "x.svm").write_text("1 1:2\n2 1:3\n")
    assert "LIBSVM" in fails("backtest", tmp_path / "x.svm", "--target", "y")
    with pytest.raises(dokl.errors.BadInput, match="held out"):
        dokl.backtest(stations(100), "temp", by="place", held_out=1.5)


@pytest.mark.parametrize("horizon", [0, 3])
def test_a_short_series_that_grows_is_predicted_frozen(horizon):
    t, rng = np.arange(130), np.random.default_rng(3)
    season = 1 + 0.15 * np.sin(2 * np.pi * t / 12)
    sold = 300 * np.exp(t / 60) * season * np.exp(0.02 * rng.normal(size=130))
    month = pd.date_range("2010-01-01", periods=130, freq="MS")
    table = pd.DataFrame({"month": month, "sold": sold.round(1)})
    found = whole(dokl.backtest(table, "sold", horizon=horizon, folds=1, held_out=0.2))
    error, wide = found.rmse, found.half_width["dokl frozen"]
    assert error["dokl frozen"] < 1.5 * error["ridge"]
    assert error["dokl frozen"] < 0.8 * error["the last value"]
    assert error["dokl frozen"] < wide < 3.0 * error["dokl frozen"]
