"""Files as people have them, through the real commands: what was guessed is said, and right."""

import json
import shlex
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from commands import dokl, fails, json_of, rows_of, write_csv
from dokl import fit_table
from dokl.agents.description import read
from dokl.agents.inputs import Inputs
from dokl.agents.sources.files import read_file
from dokl.errors import BadInput
from dokl.models import TableModel
from dokl.readers import Form, Options, open_table
from dokl.readers.forms import guessed_form
from dokl.readers.times import seconds

QUICK = ("--learner", "gradient", "--components", "40")


def german(value):
    """1234.5 as 1.234,500"""
    return f"{value:,.3f}".translate(str.maketrans(",.", ".,"))


def numbers(n=120, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n).round(3), rng.integers(0, 9000, n)
    return {"a": a, "b": b, "y": (np.sin(2 * a) + b / 4500).round(3)}


def written(path, columns, mark=","):
    return write_csv(path, columns, mark)


def first(path, **options):
    with open_table(path, Options(**options)) as reader:
        return reader.first


def trained(path, target, *more):
    """What train says on stdout, and the model."""
    model = path.parent / "m.dokl"
    options = (*QUICK, "--overwrite", "--model", model, *more)
    return dokl("train", path, "--target", target, *options).stdout, model


# -- numbers -----------------------------------------------------------------------------------
def test_decimal_commas_and_thousands_give_the_numbers_that_points_give(tmp_path):
    plain = numbers()
    local = {name: [german(v) for v in values] for name, values in plain.items()}
    path = written(tmp_path / "german.csv", local, ";")
    said, model = trained(path, "y")
    assert "CSV, ';' between cells; --delimiter" in said
    assert "column 'b': decimal commas, points between thousands, like '" in said
    assert "--decimal . or --text b" in said
    assert "target 'y': " in said
    assert "taken as a quantity; --task classification" in said
    predicted = dokl("predict", model, path).stdout
    ours = written(tmp_path / "plain.csv", plain)
    _, other = trained(ours, "y")
    assert predicted == dokl("predict", other, ours).stdout
    loaded = TableModel.load(trained(path, "y")[1])
    rows = [{name: local[name][i] for name in ("a", "b")} for i in range(3)]
    want = [{name: plain[name][i] for name in ("a", "b")} for i in range(3)]
    np.testing.assert_array_equal(loaded.predict(rows), loaded.predict(want))


@pytest.mark.parametrize(
    ("cells", "form", "value"),
    [
        (["$326", "$1,204", "-$5.5"], Form(thousands=",", unit="$"), 326),
        (["3,5 €", "1.000 €"], Form(decimal=",", thousands=".", unit="€"), 3.5),
        (["12.5%", "7 %"], Form(unit="%"), 12.5),
        (["1 234,5", "2,25"], Form(decimal=",", thousands=" "), 1234.5),
        (["1'234.5", "8"], Form(thousands="'"), 1234.5),
        (["1,234,567", "12"], Form(thousands=","), 1234567),
        (["0,125", "3,500"], Form(decimal=","), 0.125),
        (["red", "1,5", "green"], Form("text"), None),
        (["1_000", "2_000"], Form("text"), None),
        (["10.0.0.1", "10.0.0.2"], Form("text"), None),
    ],
)
def test_forms_of_numbers(cells, form, value):
    found = guessed_form([*cells, "NA"])
    assert found == form
    if value is not None:
        read, bad = found.read(cells)
        assert (read[0], bad) == (value, [])
        assert Form.from_spec(found.spec()) == found


def test_money_and_percent_are_numbers_and_said(tmp_path):
    plain = numbers()
    dear = {**plain, "b": [f"${v:,}" for v in plain["b"]], "s": [f"{v}%" for v in plain["b"]]}
    said, model = trained(written(tmp_path / "money.csv", dear), "y")
    assert "column 'b': amounts in $, commas between thousands, like '$" in said
    assert "column 's': percentages, like '" in said
    found = json_of("inspect", model, "--json")
    assert found["input_names"] == ["a", "b", "s"]


def test_a_target_of_money_is_no_class(tmp_path):
    plain = numbers()
    path = written(tmp_path / "t.csv", {"a": plain["a"], "price": [f"${v:,}" for v in plain["b"]]})
    said, model = trained(path, "price")
    assert "taken as a quantity" in said
    assert json_of("evaluate", model, path, "--json")["rows"] == 120


def test_what_can_be_read_in_two_ways_is_refused_or_told(tmp_path):
    b = [f"{v // 1000 + 1},{v % 1000:03}" for v in numbers()["b"]]
    path = written(tmp_path / "t.tsv", {"b": b, "y": range(120)}, "\t")
    start = ("train", path, "--target", "y", *QUICK, "--model", tmp_path / "m.dokl")
    message = fails(*start)
    assert "column 'b'" in message
    assert "may have a decimal comma, or one that parts thousands" in message
    assert "--decimal . or --decimal ," in message
    dokl(*start, "--decimal", ",")
    assert first(path, decimal=",").columns["b"].max() < 11
    assert first(path, decimal=".").columns["b"].min() >= 1000
    other = written(tmp_path / "t.csv", {"b": b, "c": ["0,5"] * 120, "y": range(120)}, ";")
    assert first(other).columns["b"].max() < 11  # column c tells
    mixed = written(tmp_path / "u.csv", {"b": ["$5", "€6"] * 60, "y": range(120)})
    assert "different units" in fails("train", mixed, *start[2:-1], tmp_path / "u.dokl")


def test_a_column_of_thousands_where_commas_are_decimal(tmp_path):
    path = written(tmp_path / "t.csv", {"a": ["0,5", "1,25"], "b": ["1.234", "12.000"]}, ";")
    chunk = first(path)
    assert chunk.columns["b"].tolist() == [1234.0, 12000.0]
    assert first(written(tmp_path / "u.csv", {"a": ["0.5"], "b": ["1.234"]})).columns["b"] == 1.234


def test_texts_of_a_target_that_nobody_can_read_are_no_classes(tmp_path):
    path = written(tmp_path / "t.csv", {"a": range(200), "y": [f"about {i}" for i in range(200)]})
    message = fails("train", path, "--target", "y", "--model", tmp_path / "m.dokl")
    assert "200 different texts in 200 rows" in message


def test_unquoted_decimal_commas_between_commas_get_a_hint(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,5,2\n")
    assert "Numbers with commas" in fails("train", tmp_path / "t.csv", "--target", "y", "--model",
                                          tmp_path / "m.dokl")  # fmt: skip


# -- missing values, delimiters, levels, tasks -------------------------------------------------
def test_pipes_and_spellings_of_missing_values(tmp_path):
    plain = numbers()
    words = ["-", "N/A", "#N/A", "null"]
    b = [words[i % 4] if i % 5 == 0 else v for i, v in enumerate(plain["b"])]
    path = written(tmp_path / "t.txt", plain | {"b": b}, "|")
    said, _ = trained(path, "y")
    assert "CSV, '|' between cells" in said
    assert "taken as missing: 'N/A' (6), '#N/A' (6), 'null' (6), '-' (6); --missing" in said


def test_missing_spellings_of_ones_own_are_remembered(tmp_path):
    plain = numbers()
    b = [-999 if i % 5 == 0 else v for i, v in enumerate(plain["b"])]
    path = written(tmp_path / "t.csv", plain | {"b": b})
    _, model = trained(path, "y", "--missing", "-999,bad")
    gone = written(tmp_path / "u.csv", plain | {"b": ["" if v == -999 else v for v in b]})
    assert dokl("predict", model, path).stdout == dokl("predict", model, gone).stdout
    (tmp_path / "t.jsonl").write_text('{"a": 1, "b": -999}\n{"a": 1, "b": null}\n')
    one, two = rows_of(dokl("predict", model, tmp_path / "t.jsonl").stdout)
    assert one == two


def test_the_task_is_said_and_one_option_away(tmp_path):
    plain = numbers()
    path = written(tmp_path / "t.csv", {"a": plain["a"], "class": plain["b"] % 6})
    said, model = trained(path, "class")
    assert "target 'class': 6 whole numbers, taken as classes; --task regression" in said
    assert json_of("inspect", model, "--json")["classes"] == [0, 1, 2, 3, 4, 5]
    said, model = trained(path, "class", "--task", "regression")
    assert "target 'class'" not in said
    assert "classes" not in json_of("inspect", model, "--json")


def test_all_commands_say_the_same_guesses(tmp_path):
    plain = numbers(200)
    columns = {"a": plain["a"], "place": ["roof", "yard"] * 100, "class": plain["b"] % 3}
    path = written(tmp_path / "t.csv", columns)
    line = "target 'class': 3 whole numbers, taken as classes; --task regression"
    for command in (
        ("train", path, "--target", "class", "--model", tmp_path / "m.dokl", *QUICK),
        ("plan", path, "--target", "class", "--components", 30),
        ("bench", "--data", path, "--target", "class", "--only", "sgd"),
        ("network", "new", tmp_path / "n.toml", "--nodes", 2, "--sample", path, "--target",
         "class", "--insecure-loopback", "--components", 20, "--graph", "complete"),
    ):  # fmt: skip
        said = dokl(*command).stdout
        assert line in said, command
        assert "CSV, ',' between cells" in said
        assert line not in dokl(*(word for word in command), "--quiet",
                                *(["--overwrite"] if command[0] in ("train", "network") else [])
                                ).stdout  # fmt: skip


def test_a_new_level_is_named(tmp_path):
    path = written(tmp_path / "t.csv", {"p": ["roof", "yard"] * 50, "y": range(100)})
    said, model = trained(path, "y")
    assert "taken as text: p (2 levels); --levels COLUMN=A,B,... or --numeric COLUMN" in said
    new = written(tmp_path / "u.csv", {"p": ["roof", "attic", "moon", "attic"], "y": range(4)})
    for command in ("predict", "evaluate"):
        told = dokl(command, model, new).stderr
        assert "column 'p': 3 texts are none of the levels that the first rows had" in told
        assert "but new: 'attic', 'moon'" in told


# -- times -------------------------------------------------------------------------------------
def hourly(n=240):
    """A target that follows the hour of the day and the day of the week."""
    start = datetime(2020, 1, 30)
    when = [start + timedelta(hours=3 * i) for i in range(n)]
    y = [np.sin(2 * np.pi * t.hour / 24) + (t.weekday() >= 5) for t in when]
    return when, np.round(y, 3)


STYLES = {
    "iso": ("%Y-%m-%dT%H:%M:%S", "dates, year first"),
    "zulu": ("%Y-%m-%d %H:%MZ", "dates, year first"),
    "german": ("%d.%m.%Y %H:%M", "dates, day first"),
    "english": ("%d/%m/%Y %H:%M", "dates, day first"),
    "american": ("%m/%d/%Y %I:%M %p", "dates, month first"),
    "named": ("%d %b %Y %H:%M", "dates, year first"),
    "letter": ("%B %d, %Y %H:%M:%S", "dates, year first"),
}


def test_times_become_circles_and_days_however_they_are_written(tmp_path):
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
        "when: days since the start",
        "when: time of day cos", "when: time of day sin",
        "when: time of week cos", "when: time of week sin",
    ]  # fmt: skip
    _, model = trained(path, "y", "--passes", 20)
    assert json_of("evaluate", model, path, "--json")["r2"] > 0.8


def test_what_does_not_vary_of_a_time_is_left_out(tmp_path):
    when, _ = hourly(60)
    days = [t.strftime("%Y-%m-%d") for t in when]
    _, model = trained(written(tmp_path / "d.csv", {"day": days, "y": range(60)}), "y")
    names = json_of("inspect", model, "--json")["input_names"]
    assert names[1:] == ["day: time of week cos", "day: time of week sin"]
    clocks = [t.strftime("%H:%M") for t in when]
    said, model = trained(written(tmp_path / "c.csv", {"at": clocks, "y": range(60)}), "y")
    assert "column 'at': times of day" in said
    names = json_of("inspect", model, "--json")["input_names"]
    assert names == ["at: time of day cos", "at: time of day sin"]


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


# -- live nodes --------------------------------------------------------------------------------
def local_shop(path, n=60, mark=";"):
    """Times, decimal commas, an amount and a word of its own for what is missing."""
    when, y = hourly(n)
    when = [f"{t:%d.%m.%Y %H:%M}" for t in when]
    rain = ["kaputt" if i % 9 == 4 else german(1000.5 + i) for i in range(n)]
    price = [f"{german(100 * v)} €" for v in y]
    return written(
        path, {"when": when, "rain": rain, "price": price, "kind": ["a", "b"] * (n // 2)}, mark
    )


def new_network(folder, sample, *more):
    start = ("network", "new", folder / "n.toml", "--nodes", 2, "--graph", "complete",
             "--sample", sample, "--insecure-loopback", "--components", 30)  # fmt: skip
    return dokl(*start, *more), folder / "n.toml"


def test_live_nodes_read_their_sources_as_the_sample_was_read(tmp_path):
    path = local_shop(tmp_path / "shop.csv")
    said, place = new_network(tmp_path, path, "--target", "price", "--missing", "kaputt")
    assert "column 'when': dates, day first, like " in said.stdout
    assert "column 'rain': decimal commas, points between thousands, like " in said.stdout
    network = read(place)
    inputs, options = Inputs(network), ("--missing", "kaputt", "--standardise", "fixed")
    (rows,) = read_file(path, inputs, strict=True)
    _, model = trained(path, "price", *options)
    X = TableModel.load(model).preprocessor.transform(
        first(path, missing=("kaputt",), drop=("price",)).columns
    )
    np.testing.assert_array_equal(rows.X, X)
    np.testing.assert_allclose(rows.Y[:, 0], 100 * hourly(60)[1], atol=1e-6)
    row = {"when": 1580342400, "rain": 1000.5, "price": 12.5, "kind": "a"}  # of a program
    np.testing.assert_array_equal(inputs.from_json(json.dumps(row).encode()).X, X[:1])
    for name, cell, why in (("rain", "1.5", "decimal commas"), ("when", "yesterday", "day first"),
                            ("price", "12 USD", "not a number")):  # fmt: skip
        with pytest.raises(BadInput, match=rf"row 1, column '{name}': '{cell}.*{why}"):
            inputs.from_json(json.dumps(row | {name: cell}).encode())


@pytest.mark.parametrize(
    ("sample", "good", "wrong", "words"),
    [
        ([45_000 + i / 4 for i in range(60)], 45_010.25, 1_679_000_000, "days as spreadsheets"),
        ([1_700_000_000_000 + 36e5 * i for i in range(60)], 17e11, 17e8, "milliseconds since"),
        ([1_700_000_000 + 3600 * i for i in range(60)], "1700000000", 17e11, "seconds since 1970"),
        ([f"2024-03-01 {i % 24:02}:30" for i in range(60)], 17e8, 17e11, "seconds since 1970"),
    ],
)
def test_live_times_that_are_counted_otherwise_are_refused(tmp_path, sample, good, wrong, words):
    path = written(tmp_path / "t.csv", {"date": sample, "y": np.arange(60) / 7})
    inputs = Inputs(read(new_network(tmp_path, path, "--target", "y")[1]))
    assert inputs.from_json(json.dumps({"date": good, "y": 1.5}).encode()).X.shape[0] == 1
    with pytest.raises(BadInput, match=rf"row 1, column 'date': .* for a time in {words}"):
        inputs.from_json(json.dumps({"date": wrong, "y": 1.5}).encode())


def test_what_describes_times_and_forms_is_checked(tmp_path):
    _, place = new_network(tmp_path, local_shop(tmp_path / "s.csv"), "--target", "price",
                           "--missing", "kaputt")  # fmt: skip
    text = place.read_text()
    assert read(place).fingerprint in text
    for old, new, why in (
        ('"week", "since"]', '"month"]', r"\[inputs\] times: each entry is"),
        ('"number", ",", "."', '"number", ";", "."', r"\[inputs\] forms: each entry is"),
        ('forms = [["when"', 'forms = [["wen"', "column 'wen' is not among times"),
    ):
        assert old in text
        place.write_text(text.replace(old, new))
        with pytest.raises(BadInput, match=why):
            read(place)


def test_a_plan_writes_the_network_line_of_an_awkward_file(tmp_path):
    path = local_shop(tmp_path / "shop.csv", 80)
    asked = ("plan", path, "--target", "price", "--missing", "kaputt", "--components", 20)
    line = json_of(*asked, "--json")["commands"]["as a live network"]
    words = shlex.split(line.replace("network.toml", str(tmp_path / "n.toml")))[1:]
    assert words[words.index("--missing") + 1] == "kaputt"
    dokl(*words, "--insecure-loopback")
    assert read(tmp_path / "n.toml").inputs.times[0][0] == "when"


# -- rows that are wrong -----------------------------------------------------------------------
def spoiled(folder):
    plain = numbers(300)
    a = [*map(str, plain["a"])]
    a[20] = a[250] = "oops"
    path = written(folder / "bad.csv", plain | {"a": a})
    with path.open("a") as file:
        file.write("1,2\n")
    return path


def test_bad_rows_are_skipped_counted_and_written_with_reasons(tmp_path):
    path, model = spoiled(tmp_path), tmp_path / "m.dokl"
    start = ("train", path, "--target", "y", *QUICK, "--model", model)
    assert "line 302" in fails(*start)
    assert not model.exists()
    said = dokl(*start, "--on-error", "skip")
    refused = tmp_path / "m.dokl.refused.csv"
    assert f"3 rows that cannot be used were passed over; they are in {refused}" in said.stderr
    rows = rows_of(refused.read_text())
    assert sorted(int(row["line"]) for row in rows) == [22, 252, 302]
    assert "'oops' is not a number" in {row["line"]: row["reason"] for row in rows}["22"]
    assert TableModel.load(model).rows_read == 298
    place = tmp_path / "why.csv"
    score = dokl("evaluate", model, path, "--on-error", "skip", "--refused", place, "--json")
    assert json.loads(score.stdout)["rows"] == 298
    assert len(place.read_text().splitlines()) == 4
    out = tmp_path / "p.csv"
    dokl("predict", model, path, "-o", out, "--on-error", "skip")
    assert len(out.read_text().splitlines()) == 299
    assert (tmp_path / "p.csv.refused.csv").exists()


def test_stopping_at_a_bad_row_keeps_what_was_learned(tmp_path):
    path, model = spoiled(tmp_path), tmp_path / "m.dokl"
    start = ("train", path, "--target", "y", *QUICK, "--model", model)
    result = dokl(*start, "--on-error", "stop", code=1)
    assert f"{path}, line 22: column 'a': 'oops' is not a number" in result.stderr
    assert "--continue --skip 20" in result.stderr
    assert TableModel.load(model).rows_read == 20
    path.write_text(path.read_text().replace("oops", "0").removesuffix("1,2\n"))
    dokl("train", path, "--model", model, "--continue", "--skip", 20)
    whole = tmp_path / "whole.dokl"
    dokl("train", path, "--target", "y", *QUICK, "--model", whole, "--sigma", 1)
    assert TableModel.load(model).rows_read == TableModel.load(whole).rows_read == 300
    bad, out = spoiled(tmp_path), tmp_path / "p.csv"
    said = dokl("predict", model, bad, "-o", out, "--on-error", "stop", code=1).stderr
    assert "The rows before it were predicted" in said
    assert len(out.read_text().splitlines()) == 21
    scored = dokl("evaluate", model, bad, "--on-error", "stop", code=1)
    assert "The scores are those of the rows before" in scored.stderr
    assert "20" in scored.stdout


def test_labels_never_seen_can_be_skipped(tmp_path):
    columns = {"a": numbers()["a"], "label": ["x", "y"] * 60}
    _, model = trained(written(tmp_path / "t.csv", columns), "label")
    columns["label"][7] = "novel"
    path = written(tmp_path / "u.csv", columns)
    assert "line 9: label 'novel' was never seen" in fails("evaluate", model, path)
    place = tmp_path / "r.csv"
    more = ("--on-error", "skip", "--refused", place)
    assert json_of("evaluate", model, path, "--json", *more)["rows"] == 119
    assert "label 'novel' was never seen" in place.read_text()
    dokl("train", path, "--model", model, "--continue", *more)
    assert TableModel.load(model).tally.n == 120 + 119


@pytest.mark.parametrize("kind", ["jsonl", "svm", "latin"])
def test_bad_lines_of_other_files(tmp_path, kind):
    good = {"jsonl": '{"a": %d, "y": 1.5}', "svm": "1.5 1:%d", "latin": "%d,1.5"}[kind]
    bad = {"jsonl": '{"a": 1, "y"', "svm": "1.5 x:2", "latin": "1,\xe4"}[kind]
    lines = [good % i for i in range(40)]
    lines[9] = bad
    text = ("a,y\n" if kind == "latin" else "") + "\n".join(lines) + "\n"
    path = tmp_path / f"t.{'csv' if kind == 'latin' else kind}"
    path.write_bytes(text.encode("latin-1"))
    target = () if kind == "svm" else ("--target", "y")
    start = ("train", path, *target, "--task", "regression", *QUICK, "--model", tmp_path / "m")
    assert f"line {10 + (kind == 'latin')}" in fails(*start)
    dokl(*start, "--on-error", "skip")
    assert TableModel.load(tmp_path / "m").rows_read == 39


def test_two_halves_of_an_object_are_no_two_rows(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"a": 1, "y": [2}\n{"x": 3]}\n')
    (tmp_path / "u.jsonl").write_text('{"a": [1\n2], "y": 2}\n{"a": 1, "y": 1}, {"a": 1, "y": 1}\n')
    for name in "tu":
        message = fails("train", tmp_path / f"{name}.jsonl", "--target", "y", "--model",
                        tmp_path / "m.dokl")  # fmt: skip
        assert "line 1: this is not JSON" in message


# -- the order of rows -------------------------------------------------------------------------
def test_a_file_sorted_by_its_label_is_told_in_words(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.permutation(np.repeat(["no", "yes"], 200))
    a = rng.normal(size=400).round(3)
    order = np.argsort(label, kind="stable")
    path = written(tmp_path / "t.csv", {"a": a, "label": label[order]})
    model = ("--model", tmp_path / "m.dokl")
    said = dokl("train", path, "--target", "label", *model).stdout
    assert "the rows are sorted by their label" in said
    assert "shuffle the rows before training" in said
    path = written(tmp_path / "u.csv", {"a": a, "label": label})
    said = dokl("train", path, "--target", "label", *model, "--overwrite").stdout
    assert "sorted" not in said


def test_the_error_of_a_bad_row_says_how_to_pass_over_it(tmp_path):
    path = written(tmp_path / "w.csv", {"a": [*range(30), "oops"], "y": range(31)})
    told = fails("train", path, "--target", "y", "--model", tmp_path / "m.dokl", *QUICK)
    assert "'oops' is not a number" in told
    assert "--on-error skip" in told
    asked = ("train", path, "--target", "y", "--model", tmp_path / "m.dokl", *QUICK)
    assert fails(*asked, "--on-error", "fail") == told
    assert not (tmp_path / "m.dokl").exists()
    assert "1 row that cannot be used was passed" in dokl(*asked, "--on-error", "skip").stderr


# -- what a newcomer brings --------------------------------------------------------------------
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
    assert fit_table(table, target, learner="gradient", n_components=20).target == target


def test_days_of_a_spreadsheet_are_the_days_that_it_shows():
    values, bad = Form("time", order="days").read(["45000.75", "", "x"])
    assert values[0] == seconds("2023-03-15 18:00", "ymd")
    assert np.isnan(values[1])
    assert bad == [2]


def test_columns_that_say_nothing_are_named(tmp_path):
    plain = numbers(60)
    columns = {"a": plain["a"], "one": [7] * 60, "same": ["x"] * 60, "gone": [""] * 60}
    said, _ = trained(written(tmp_path / "t.csv", columns | {"y": plain["y"]}), "y")
    assert "no value in gone, one value only in one, same, in the rows looked at; --drop" in said
    assert "value in" not in trained(written(tmp_path / "p.csv", plain), "y")[0]


def test_newcomers_are_told_what_to_do(tmp_path):
    plain = numbers(30)
    blanks = written(tmp_path / "blanks.txt", plain, " ")
    asked = ("--target", "y", "--model", tmp_path / "m.dokl", *QUICK)
    assert "--delimiter ' '" in fails("train", blanks, *asked)
    dokl("train", blanks, *asked, "--delimiter", " ")
    odd = {**plain, "a": [*plain["a"][:20], "--", *plain["a"][21:]]}
    dashes = written(tmp_path / "dashes.csv", odd)
    assert "--missing A,B,..." in fails("train", dashes, *asked, "--overwrite")
    dokl("train", dashes, *asked, "--overwrite", "--missing", "--,NA")
    remarks = tmp_path / "remarks.csv"
    remarks.write_text("# a logger\n" + written(tmp_path / "p.csv", plain).read_text())
    assert "looks like a remark" in fails("train", remarks, *asked, "--overwrite")
    twice = tmp_path / "twice.csv"
    twice.write_text("a,a,y\n1,2,3\n")
    assert "rename one" in fails("train", twice, *asked, "--overwrite")
    single = tmp_path / "single.csv"
    single.write_text("a,y\n1,2\n")
    assert (
        "target 'y': 1 whole number, taken" in dokl("train", single, *asked, "--overwrite").stdout
    )
