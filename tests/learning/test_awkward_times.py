"""Times as people write or count them, through the real commands."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

import dokl as dokl_
from awkward import QUICK, hourly, trained, written
from commands import dokl, fails, json_of, rows_of
from dokl import fit_table
from dokl.learning.cells.times import seconds
from dokl.learning.columns import Preprocessor, TimeParts
from dokl.tables.models import TableModel
from dokl.tables.readers import Form

STYLES = {
    "iso": ("%Y-%m-%dT%H:%M:%S", "dates, year first"),
    "zulu": ("%Y-%m-%d %H:%MZ", "dates, year first"),
    "german": ("%d.%m.%Y %H:%M", "dates, day first"),
    "english": ("%d/%m/%Y %H:%M", "dates, day first"),
    "american": ("%m/%d/%Y %I:%M %p", "dates, month first"),
    "named": ("%d %b %Y %H:%M", "dates, months by name"),
    "letter": ("%B %d, %Y %H:%M:%S", "dates, months by name"),
    "two digits": ("%d-%b-%y %H:%M", "dates, months by name"),
    "name within": ("%Y-%b-%d %H:%M", "dates, year first"),
}


def test_times_become_circles_however_they_are_written(tmp_path):
    when, y = hourly()
    outputs = set()
    for name, (style, words) in STYLES.items():
        columns = {"when": [t.strftime(style) for t in when], "y": y}
        path = written(tmp_path / f"{name}.csv", columns)
        said, model = trained(path, "y", "--sigma", "1")
        assert f"column 'when': {words}, like '" in said
        assert "--text when or --drop when" in said
        outputs.add(dokl("predict", model, path).stdout)
    assert len(outputs) == 1
    found = json_of("inspect", model, "--json")
    assert found["input_names"] == [
        "when: time of day cos", "when: time of day sin",
        "when: time of week cos", "when: time of week sin",
    ]  # fmt: skip
    _, model = trained(path, "y", "--passes", 20)
    assert json_of("evaluate", model, path, "--json")["r2"] > 0.8


def test_what_does_not_vary_of_a_time_is_left_out(tmp_path):
    when, _ = hourly(240)
    days = [t.strftime("%Y-%m-%d") for t in when]
    _, model = trained(written(tmp_path / "d.csv", {"day": days, "y": range(240)}), "y")
    names = json_of("inspect", model, "--json")["input_names"]
    assert names == ["day: time of week cos", "day: time of week sin"]
    when = when[:60]
    clocks = [t.strftime("%H:%M") for t in when]
    said, model = trained(written(tmp_path / "c.csv", {"at": clocks, "y": range(60)}), "y")
    assert "column 'at': times of day" in said
    names = json_of("inspect", model, "--json")["input_names"]
    assert names == ["at: time of day cos", "at: time of day sin"]


def daily(n, start="2020-01-01"):
    """Days whose target has a year, and no trend."""
    day = np.datetime64(start) + np.arange(n)
    turn = 2 * np.pi * (day - np.datetime64("2020-01-01")).astype(int) / 365.2425
    noise = np.random.default_rng(0).normal(size=n)
    return {"day": [str(d) for d in day], "x": noise.round(3), "y": (np.sin(turn) + 0.1 * noise)}


@pytest.mark.usefixtures("short_searches")
def test_a_year_is_a_circle_where_the_rows_cover_two():
    year = ["day: time of year cos", "day: time of year sin"]
    rows = daily(1000)
    model = fit_table(rows, "y", n_components=60, random_state=0)
    assert model.preprocessor.names_out[-2:] == tuple(year)
    later = daily(365, "2022-09-27")
    assert model.score(later) > 0.9  # the year that comes
    half = fit_table({k: v[:180] for k, v in rows.items()}, "y", n_components=60, random_state=0)
    week = ("day: time of week cos", "day: time of week sin")
    assert half.preprocessor.names_out == ("x", *week)  # neither a year nor a trend
    apart = half.predict({**later, "x": np.zeros(365)})
    assert np.ptp(apart) < 1.0  # which goes nowhere, however far ahead


def test_how_long_a_file_is_decides_and_not_its_first_rows(tmp_path):
    path = written(tmp_path / "d.csv", daily(1000))
    _, model = trained(path, "y", "--chunk", "200")
    assert "day: time of year cos" in json_of("inspect", model, "--json")["input_names"]
    _, model = trained(written(tmp_path / "e.csv", daily(220)), "y", "--chunk", "200")
    assert "day: time of year cos" not in json_of("inspect", model, "--json")["input_names"]


def test_files_with_days_since_the_start_predict_as_they_did(tmp_path):
    """Models of earlier versions took them as an input."""
    day = 86_400.0 * np.arange(40)
    prepared = Preprocessor((), {}, "off", times={"day": TimeParts(("week", "since"), 0.0)})
    model = TableModel(dokl_.AutoRegressor(20, random_state=0), prepared, "y")
    model.partial_fit({"day": day}, np.arange(40.0))
    again = dokl_.load(model.save(tmp_path / "old.dokl"))
    assert again.preprocessor.names_out[0] == "day: days since the start"
    wanted = model.predict({"day": day})
    assert wanted[-1] > 30
    np.testing.assert_array_equal(again.predict({"day": day}), wanted)


def months(style, n=72, start=1949):
    """(n,) months as they are written, and a target that has a year."""
    at = [datetime(start + i // 12, 1 + i % 12, 1) for i in range(n)]
    cosines = [np.cos(2 * np.pi * t.month / 12).round(3) for t in at]
    return {"when": [t.strftime(style) for t in at], "y": cosines}


@pytest.mark.parametrize(
    ("style", "words"),
    [
        ("%Y-%m", "year first, like '1949-01'"),
        ("%Y/%m", "year first, like '1949/01'"),
        ("%YM%m", "year first, like '1949M01'"),
        ("%Y-%b", "year first, like '1949-Jan'"),
        ("%b %Y", "months by name, like 'Jan 1949'"),
        ("%B-%Y", "months by name, like 'January-1949'"),
    ],
)
def test_months_are_dates_and_series_of_them_have_a_year(tmp_path, style, words):
    path = written(tmp_path / "m.csv", months(style))
    said, model = trained(path, "y", "--lags", "auto")
    assert f"column 'when': dates, {words}, taken as time of" in said
    assert "y lag 12" in said
    assert "lags count rows in the order of column 'when'" in said
    assert "when: time of year cos" in json_of("inspect", model, "--json")["input_names"]


def test_quarters_are_dates(tmp_path):
    cells = [f"{1990 + i // 4}Q{1 + i % 4}" for i in range(40)]
    path = written(tmp_path / "q.csv", {"quarter": cells, "y": np.tile([1, 2, 4, 3], 10) / 7})
    said, model = trained(path, "y")
    assert "column 'quarter': dates, year first, like '1990Q1'" in said
    assert seconds("1990Q4", "ymd") == seconds("Q4 1990", "ymd") == seconds("1990-10-01", "ymd")
    assert "quarter: time of year cos" in json_of("inspect", model, "--json")["input_names"]


@pytest.mark.parametrize(
    "cells",
    [
        [f"{2000 + i}-{1 + i:02d}" for i in range(11)],  # seasons
        [f"2012-{1 + i:02d}" for i in range(15)],  # numbers of cases, twelve of them like months
        [f"Marathon {2000 + i}" for i in range(11)],
        [f"1{i}00-07" for i in range(5)],
        [f"2100-{1 + i}" for i in range(3)],  # parts of one thing
    ],
)
def test_codes_that_look_like_months_stay_texts(tmp_path, cells):
    path = written(tmp_path / "c.csv", {"code": cells * 6, "y": np.arange(6 * len(cells)) / 7})
    assert f"taken as text: code ({len(cells)} levels)" in trained(path, "y")[0]


def test_times_that_never_come_back_are_no_inputs(tmp_path):
    rows = {k: v for k, v in daily(12).items() if k != "x"}
    path = written(tmp_path / "d.csv", rows)
    message = fails("train", path, "--target", "y", *QUICK, "--model", tmp_path / "m.dokl")
    assert "no column is left to learn from: the times in day cover no day" in message


def test_day_or_month_first_is_asked_where_nothing_tells(tmp_path):
    days = [f"{1 + i % 12}/{1 + i % 11}/2020" for i in range(60)]
    path = written(tmp_path / "t.csv", {"day": days, "y": range(60)})
    start = ("train", path, "--target", "y", *QUICK, "--model", tmp_path / "m.dokl")
    assert "--dates dmy or --dates mdy" in fails(*start)
    dokl(*start, "--dates", "dmy")
    assert json_of("inspect", tmp_path / "m.dokl", "--json")["input_names"]
    late = written(tmp_path / "u.csv", {"day": ["12/31/2020"], "y": [1]})
    message = fails("predict", tmp_path / "m.dokl", late)
    assert "line 2, column 'day': '12/31/2020' is not a time like those before" in message
    assert "day first" in message


def test_times_in_python_and_in_parquet_are_the_same(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pandas = pytest.importorskip("pandas")
    when, y = hourly()
    _, model = trained(written(tmp_path / "t.csv", {"when": when, "y": y}), "y")
    text = dokl("predict", model, tmp_path / "t.csv", "--keep", "when").stdout
    assert rows_of(text)[1]["when"] == "2020-01-30T03:00:00"
    wanted = [float(row["prediction"]) for row in rows_of(text)]
    loaded = TableModel.load(model)
    for rows in ({"when": when}, pandas.DataFrame({"when": when}), {"when": np.array(when, "M8")},
                 [{"when": str(t)} for t in when]):  # fmt: skip
        np.testing.assert_allclose(loaded.predict(rows), wanted, rtol=1e-6)
    parquet.write_table(arrow.table({"when": when, "y": y}), tmp_path / "t.parquet")
    out = tmp_path / "p.parquet"
    dokl("predict", model, tmp_path / "t.parquet", "-o", out)
    np.testing.assert_allclose(parquet.read_table(out)["prediction"], wanted, rtol=1e-6)


def test_offsets_are_taken_off_and_told(tmp_path):
    when, y = hourly(80)
    utc = written(tmp_path / "utc.csv", {"when": [f"{t:%Y-%m-%dT%H:%M}Z" for t in when], "y": y})
    zones = [timezone(timedelta(hours=1 + i % 2)) for i in range(80)]
    local = [t.replace(tzinfo=UTC).astimezone(z) for t, z in zip(when, zones, strict=True)]
    path = written(tmp_path / "local.csv", {"when": [t.isoformat() for t in local], "y": y})
    said, model = trained(path, "y")
    assert "brought to UTC (+01:00 is taken off), taken as time of day" in said
    told = dokl("predict", model, path).stdout
    said, model = trained(utc, "y")
    assert "brought to UTC" not in said
    assert told == dokl("predict", model, utc).stdout


def test_clocks():
    assert seconds("2013-03-01T14", "ymd") % 86400 == 14 * 3600
    assert seconds("2013-03-01 14:30:15.5+01:00", "ymd") % 86400 == 13.5 * 3600 + 15.5
    assert seconds("2013-03-01 00:30-0130", "ymd") == seconds("2013-03-01 02:00Z", "ymd")
    assert seconds("00:30 +02:00", "clock") == 22.5 * 3600
    assert seconds("2013-03-01 14:30+15:00", "ymd") is None  # nowhere
    noon = datetime(2013, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert seconds(noon, "ymd") == seconds("2013-03-01T10", "ymd")
    assert seconds("12:05 am", "clock") == 300
    assert seconds("31-12-69", "dmy") - seconds("2069-12-31", "ymd") == 0
    for wrong in ("2013-02-30", "2013-13-01", "2013-03-01 25:00", "13:61", "foo 12, 2013", 7):
        assert seconds(wrong, "ymd") is None


def test_a_target_of_times_is_refused_and_texts_stay_texts(tmp_path):
    when, y = hourly(60)
    path = written(tmp_path / "t.csv", {"when": when, "y": y})
    refused = fails("train", path, "--target", "when", "--model", tmp_path / "m.dokl")
    assert "holds times" in refused
    assert "--numeric when" in refused
    assert "60 different texts" in fails("train", path, "--target", "y", "--text", "when",
                                         "--model", tmp_path / "m.dokl")  # fmt: skip


# -- counted times -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("ts", [1_700_000_000 + 3600 * i for i in range(60)], "seconds since 1970"),
        ("start_time", [1_700_000_000_000 + 36e5 * i for i in range(60)], "milliseconds since"),
        ("Date", [45_000 + i / 4 for i in range(60)], "days as spreadsheets count them"),
    ],
)
def test_counted_times_are_times_where_the_name_says_so(tmp_path, name, values, words):
    y = np.sin(np.arange(60)).round(3)
    path = written(tmp_path / "t.csv", {name: values, "y": y})
    said, model = trained(path, "y")
    assert f"column '{name}': {words}" in said
    assert f"--numeric {name} or --drop {name}" in said
    loaded = TableModel.load(model)
    assert any("time of day" in each for each in loaded.preprocessor.names_out)
    assert len(rows_of(dokl("predict", model, path).stdout)) == 60
    said, model = trained(path, "y", "--numeric", name)
    assert "1970" not in said
    assert TableModel.load(model).preprocessor.numeric == (name,)
    other = written(tmp_path / "o.csv", {"mass": values, "y": y})  # the same numbers by themselves
    assert "column 'mass'" not in trained(other, "y")[0]


def test_dates_of_eight_digits_are_dates_where_the_name_says_so(tmp_path):
    rows = daily(1000)
    digits = [day.replace("-", "") for day in rows["day"]]
    path = written(tmp_path / "d.csv", {**rows, "day": digits})
    said, model = trained(path, "y")
    assert "column 'day': dates whose digits are one number, year first, like '20200101'" in said
    assert "--numeric day or --drop day" in said
    told = dokl("predict", model, path).stdout
    assert told == dokl("predict", trained(written(tmp_path / "e.csv", rows), "y")[1],
                        tmp_path / "e.csv").stdout  # fmt: skip
    wrong = written(tmp_path / "w.csv", {"day": ["20230230"], "x": [0.0]})
    _, model = trained(path, "y")
    message = fails("predict", model, wrong)
    assert "line 2, column 'day': '20230230' is not a time like those before" in message
    said, _ = trained(path, "y", "--numeric", "day")
    assert "column 'day'" not in said
    for name, cells in (("id", digits), ("day", [*digits[:-1], "20209999"])):
        path = written(tmp_path / "o.csv", {name: cells, "x": rows["x"], "y": rows["y"]})
        assert f"column '{name}'" not in trained(path, "y")[0]


def test_seconds_of_the_day_are_no_days_of_a_spreadsheet(tmp_path):
    columns = {"time": np.linspace(30_600, 48_540, 60).round(), "y": np.arange(60) / 7}
    said, model = trained(written(tmp_path / "t.csv", columns), "y")
    assert "column 'time'" not in said
    assert TableModel.load(model).preprocessor.numeric == ("time",)


@pytest.mark.parametrize(("target", "first"), [("delivery_day", 40_000), ("arrival_time", 1.7e9)])
def test_a_target_of_numbers_is_no_time_whatever_its_name(tmp_path, target, first):
    columns = {"a": np.arange(60) % 7, target: first + np.arange(60) / 7}
    path = written(tmp_path / "t.csv", columns)
    said, model = trained(path, target)
    assert f"target '{target}': 60 different numbers, taken as a quantity" in said
    assert "1970" not in said
    assert "spreadsheets" not in said
    assert json_of("evaluate", model, path, "--json")["rows"] == 60
    dokl("train", path, "--model", model, "--continue")
    table = {name: list(map(float, column)) for name, column in columns.items()}
    how = {"method": "gradient", "n_components": 20, "shuffle": False}
    assert fit_table(table, target, **how).target == target


def test_days_of_a_spreadsheet_are_the_days_that_it_shows():
    values, bad = Form("time", order="days").read(["45000.75", "", "x"])
    assert values[0] == seconds("2023-03-15 18:00", "ymd")
    assert np.isnan(values[1])
    assert bad == [2]
