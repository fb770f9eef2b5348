"""Files as people have them, through the real commands: what was guessed is said, and right."""

import json
import shlex

import numpy as np
import pytest

from awkward import QUICK, first, german, hourly, numbers, trained, written
from commands import dokl, fails, json_of, rows_of
from dokl.base.errors import BadInput
from dokl.learning.cells.forms import guessed_form
from dokl.live.description import read
from dokl.live.inputs import Inputs
from dokl.live.sources.files import read_file
from dokl.tables.models import TableModel
from dokl.tables.readers import Form


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
    assert "may have a decimal comma, or a thousands separator" in message
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
        (
            [f"2024-03-{1 + i // 24:02} {i % 24:02}:30" for i in range(60)],
            17e8,
            17e11,
            "seconds since 1970",
        ),
    ],
)
def test_live_times_that_are_counted_otherwise_are_refused(tmp_path, sample, good, wrong, words):
    path = written(tmp_path / "t.csv", {"date": sample, "y": np.arange(60) / 7})
    inputs = Inputs(read(new_network(tmp_path, path, "--target", "y")[1]))
    assert inputs.from_json(json.dumps({"date": good, "y": 1.5}).encode()).X.shape[0] == 1
    with pytest.raises(BadInput, match=rf"row 1, column 'date': .* for a time in {words}"):
        inputs.from_json(json.dumps({"date": wrong, "y": 1.5}).encode())


def test_live_dates_of_eight_digits_are_read_as_the_sample_had_them(tmp_path):
    days = [f"{2024 + i // 12}{1 + i % 12:02}15" for i in range(60)]
    path = written(tmp_path / "t.csv", {"date": days, "y": np.arange(60) / 7})
    inputs = Inputs(read(new_network(tmp_path, path, "--target", "y")[1]))
    rows = [inputs.from_json(json.dumps({"date": day, "y": 1.5}).encode()).X
            for day in (20_240_415, "20240415")]  # fmt: skip
    np.testing.assert_array_equal(*rows)
    for wrong in (20_240_231, 17e8, "2024-04-15"):
        with pytest.raises(BadInput, match=r"column .date.: .* as agreed: dates whose digits"):
            inputs.from_json(json.dumps({"date": wrong, "y": 1.5}).encode())


def test_what_describes_times_and_forms_is_checked(tmp_path):
    _, place = new_network(tmp_path, local_shop(tmp_path / "s.csv"), "--target", "price",
                           "--missing", "kaputt")  # fmt: skip
    text = place.read_text()
    assert read(place).fingerprint in text
    for old, new, why in (
        ('"when", ["day"]', '"when", ["month"]', r"\[inputs\] times: each entry is"),
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


# -- what a newcomer brings --------------------------------------------------------------------
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


# -- codes among numbers -----------------------------------------------------------------------
def numbered(path, odd, zeros=False):
    """A file with a column of numbers, of which the last ones are written otherwise."""
    rng = np.random.default_rng(1)
    houses = [f"{i % 40:03d}" if zeros else str(i % 40) for i in range(200)]
    houses[-len(odd) :] = odd
    lines = [
        f"{house},{a:.3f},{2 * a:.3f}"
        for house, a in zip(houses, rng.normal(size=200), strict=True)
    ]
    path.write_text("\n".join(["house,a,y", *lines]) + "\n")
    return "train", path, "--target", "y", *QUICK, "--model", path.with_suffix(".dokl")


@pytest.mark.parametrize(
    ("odd", "zeros"), [(["7A", "9B"], False), (["13A"], True), (["N7"], False)]
)
def test_codes_among_whole_numbers_make_a_column_text(tmp_path, odd, zeros):
    asked = numbered(tmp_path / "houses.csv", odd, zeros)
    said = dokl(*asked).stdout
    assert f"column 'house': whole numbers, and codes like '{odd[0]}', taken as text" in said
    assert "--numeric house or --drop house" in said
    assert f"house={odd[-1]}" in TableModel.load(tmp_path / "houses.dokl").preprocessor.names_out
    assert f"'{odd[0]}' is not a number" in fails(*asked, "--overwrite", "--numeric", "house")


@pytest.mark.parametrize("odd", [["22C"], ["oops", "7A"], ["1.5", "7A", "9B"], ["-3", "N7"]])
def test_what_may_be_a_unit_or_a_mistake_is_no_code(tmp_path, odd):
    message = fails(*numbered(tmp_path / "rooms.csv", odd))
    assert "is not a number" in message
    assert "--text COLUMN" in message


# -- names, long texts, foreign files ----------------------------------------------------------
def test_names_in_a_short_file_are_not_used(tmp_path):
    plain = numbers(24)
    plain |= {"name": [f"car {i}" for i in range(24)], "maker": ["Fiat", "Volvo"] * 12}
    said, model = trained(written(tmp_path / "cars.csv", plain), "y")
    assert "not used: 'name' (24 different texts in 24 rows, like 'car 0')" in said
    assert "maker (2 levels)" in said
    used = TableModel.load(model).preprocessor.names_out
    assert not any(name.startswith("name") for name in used)
    kept, model = trained(tmp_path / "cars.csv", "y", "--chunk", 12)  # more rows may follow
    assert "name (12 levels)" in kept


def test_long_texts_are_shortened_in_messages(tmp_path):
    long = ["word " * 300 + str(i % 30) for i in range(300)]
    path = written(tmp_path / "notes.csv", numbers(300) | {"note": long})
    result = dokl("train", path, "--target", "y", *QUICK, "--chunk", 20, "--model",
                  tmp_path / "m.dokl")  # fmt: skip
    assert "texts are none of the levels that the first rows had" in result.stderr
    assert max(map(len, result.stderr.splitlines())) < 1000


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"ARROW1\0\0", "a Feather file: save it as Parquet"),
        (b"\x80\x04\x95", "a pickle of Python"),
        (b"SQLite format 3\0", "a database of SQLite"),
        ("größe,y\n1,2\n".encode("latin-1"), "iconv -f WINDOWS-1252 -t UTF-8"),
    ],
)
def test_foreign_files_are_named(tmp_path, start, words):
    path = tmp_path / "table.csv"
    path.write_bytes(start + b"\n1,2\n")
    assert words in fails("train", path, "--target", "y", "--model", tmp_path / "m.dokl")


def test_a_unit_beside_numbers_is_no_secret(tmp_path):
    columns = {"a": [f"{i}.5 kg" for i in range(60)], "y": range(60)}
    asked = ("--target", "y", "--model", tmp_path / "m.dokl")
    message = fails("train", written(tmp_path / "w.csv", columns), *asked)
    assert ".5 kg')" in message
    assert "numbers with a unit" in message
