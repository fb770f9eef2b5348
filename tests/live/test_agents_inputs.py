"""What arrives at an agent: samples, inputs that wait, labels; everything else is refused."""

import json
import time
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dokl.base.errors import BadInput
from dokl.estimators.learner import Classification
from dokl.learning.columns import Preprocessor
from dokl.live.description import AgreedInputs
from dokl.live.inputs import Arrival, Inputs
from dokl.live.inputs.bodies import from_lines
from dokl.live.inputs.targets import Targets

SAMPLE = {
    "temp": np.array([18.0, 20.0, 22.0, 24.0]),
    "wind": np.array([0.0, 1.0, np.nan, 3.0]),
    "place": np.array(["roof", "cellar", "roof", None], object),
}


def columns_of(prepared):
    """A plan of columns, as [inputs] has it."""
    names = ("shift", "count", "total", "square")
    sums = {name: tuple(prepared.agreed()[name]) for name in names}
    levels = tuple(prepared.levels.items())
    return {"numeric": prepared.numeric, "levels": levels, **sums}


def inputs(labels=(), drop=("note",), standardise="fixed", queue_rows=1000, sample=SAMPLE,
           believed=(), ranges=(), outside="refuse"):  # fmt: skip
    prepared = Preprocessor.plan(sample, standardise=standardise)
    prepared.freeze()
    agreed = AgreedInputs(
        "y", "classification" if labels else "regression", labels, drop=drop, ranges=ranges,
        target_range=believed, outside=outside, **columns_of(prepared),
    )  # fmt: skip
    limits = SimpleNamespace(queue_rows=queue_rows)
    return Inputs(SimpleNamespace(inputs=agreed, preprocessor=lambda: prepared, limits=limits))


@pytest.fixture(scope="module")
def some():
    return inputs()


def body(value):
    return json.dumps(value).encode()


def row(**changes):
    cells = {"temp": 20.5, "wind": 1.5, "place": "roof", "y": 7.0} | changes
    return {name: cell for name, cell in cells.items() if cell is not ...}


def scaled(temp=20.5, wind=1.5, place="roof"):
    """X (1, d) as the preprocessor makes it."""
    columns = {"temp": np.array([temp]), "wind": np.array([wind])}
    prepared = Preprocessor.plan(SAMPLE, standardise="fixed")
    return prepared.transform(columns | {"place": np.array([place], object)})


def refused(call, *words):
    with pytest.raises(BadInput) as caught:
        call()
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert len(str(caught.value)) < 600


# -- forms ---------------------------------------------------------------------------------------
ROWS = [row(), row(temp=30, place="cellar", y=8), row(wind=None, y=-1.5)]
NAMES = ["temp", "wind", "place", "y"]
CELLS = [[one[name] for name in NAMES] for one in ROWS]
X = np.concatenate([scaled(), scaled(temp=30.0, place="cellar"), scaled(wind=np.nan)])
FORMS = {
    "list": body(ROWS),
    "rows": body({"rows": ROWS}),
    "columns": body({"columns": NAMES, "data": CELLS}),
    "lines": b"\n".join(map(body, ROWS)),
    "lines with blanks": b"\r\n\n".join(map(body, ROWS)) + b"\n\n",
    "indented": json.dumps(ROWS, indent=2).encode(),
    "with a byte order mark": b"\xef\xbb\xbf" + body(ROWS),
}
CSV = "temp,wind,place,y\n20.5,1.5,roof,7\n30,1.5,cellar,8\n20.5,,roof,-1.5\n"
TABLES = {
    "commas": CSV,
    "semicolons": CSV.replace(",", ";"),
    "tabs": CSV.replace(",", "\t"),
    "another order": "y,place,note,wind,temp\n7,roof,a,1.5,20.5\n8,cellar,,1.5,30\n"
    "-1.5,roof,,NA,20.5",
    "blank lines and quotes": '\n"temp", wind ,place,y\r\n\r\n20.5,1.5,"roof",7\r\n'
    '30,1.5,cellar ,"8"\r\n 20.5 ,?,roof,-1.5\r\n',
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_json(some, form):
    arrival = some.from_json(FORMS[form])
    assert np.array_equal(arrival.X, X)
    assert arrival.Y.tolist() == [[7.0], [8.0], [-1.5]]
    assert (arrival.waiting, arrival.labels, arrival.rows) == ((), (), 3)
    assert np.array_equal(some.rows_json(FORMS[form]), X)


@pytest.mark.parametrize("form", TABLES)
def test_forms_of_csv(some, form):
    arrival = some.from_csv(TABLES[form].encode())
    assert np.array_equal(arrival.X, X)
    assert arrival.Y.tolist() == [[7.0], [8.0], [-1.5]]
    assert np.array_equal(some.rows_csv(TABLES[form].encode()), X)


def test_one_object_is_one_row(some):
    arrival = some.from_json(body(row()))
    assert np.array_equal(arrival.X, scaled())
    assert arrival.Y.tolist() == [[7.0]]


def test_columns_may_be_called_like_the_forms():
    sample = {"rows": np.array([0.0, 2.0]), "columns": np.array([1.0, 3.0])}
    some = inputs(sample=sample, standardise="off")
    assert some.from_json(body({"rows": 5, "columns": 6, "y": 1})).X.tolist() == [[5.0, 6.0]]


# -- cells ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("missing", [None, "", " ", "NA", "NaN", "nan", "null", "None", "?", ...])
def test_missing_inputs_stand_at_the_mean(some, missing):
    arrival = some.from_json(body(row(wind=missing, place=missing)))
    assert np.array_equal(arrival.X, scaled(wind=np.nan, place=None))
    assert arrival.X[0, 1] == 0.0


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity"])
@pytest.mark.parametrize(
    "form",
    [b'{"temp": %s, "y": 1}', b'{"id": 1, "temp": 1, "y": %s}', b'[{"temp": [%s]}]',
     b'{"columns": ["temp", "wind", "place", "y"], "data": [[%s, 1, "roof", 1]]}'],
)  # fmt: skip
def test_literals_that_are_no_json_are_refused_in_bodies(some, form, literal):
    for read in (some.from_json, some.rows_json):
        refused(lambda: read(form % literal), literal.decode(), "not JSON", "null")  # noqa: B023
    lines = body(row()) + b"\n" + form % literal
    refused(lambda: some.from_json(lines), "row 2", "not JSON", "null")


def test_the_literal_nan_in_a_file_is_a_missing_input_and_no_target(some):
    nan = '{"temp": NaN, "wind": 1.5, "place": "roof", "y": 1}'
    assert np.array_equal(some.arrival(from_lines([nan], 1)).X, scaled(temp=np.nan))
    for literal in ("NaN", "Infinity", "-Infinity", "1e999"):
        line = f'{{"id": 1, "temp": 1, "y": {literal}}}'
        refused(lambda: some.arrival(from_lines([line], 1)), "row 1", "'y'")  # noqa: B023
    for literal in (b"1e400", b'"inf"'):
        refused(lambda: some.from_json(b'{"temp": %s, "y": 1}' % literal), "row 1", "'temp'")  # noqa: B023


def test_texts_and_truth_values_where_numbers_are_expected(some):
    assert np.array_equal(some.from_json(body(row(temp="20.5"))).X, scaled())
    for wrong in (True, False, "warm", "1_000", "20,5", [1], {"a": 1}, [], "0x10"):
        refused(lambda: some.from_json(body([row(), row(temp=wrong)])), "row 2", "'temp'")  # noqa: B023
        refused(lambda: some.from_json(body([row(), row(y=wrong)])), "row 2", "'y'")  # noqa: B023


@pytest.mark.parametrize("value", [True, False])
def test_truth_values_are_no_numbers_in_bodies(some, value):
    word = str(value).lower()
    for read in (some.from_json, some.rows_json):
        refused(lambda: read(body(row(wind=value))), "row 1", "'wind'", f"{word} is not a number")  # noqa: B023
    refused(lambda: some.from_json(body(row(y=value))), "row 1", "'y'", f"{word} is not a number")
    numbers = inputs(labels=(0, 1))
    refused(lambda: numbers.from_json(body(row(y=value))), "row 1", "'y'", word)
    line = json.dumps(row(wind=value, y=value))  # of a file, as `dokl train` reads it
    assert some.arrival(from_lines([line], 1)).Y.tolist() == [[float(value)]]


def test_numbers_where_texts_are_expected():
    sample = {"floor": np.array(["1", "2", "true"], object)}
    some = inputs(sample=sample)
    assert some.rows_json(body([{"floor": 2}, {"floor": True}, {"floor": "9"}])).tolist() == [
        [0.0, 1.0, 0.0],
        [0.0, 0.0, 1.0],
        [0.0, 0.0, 0.0],  # a level that was not agreed
    ]
    refused(lambda: some.rows_json(body({"floor": ["1"]})), "row 1", "'floor'", "a list")


@pytest.mark.parametrize("large", [1e39, -1e39, 1e300, 10**400, "1e39"])
def test_what_float32_cannot_hold_is_refused(large):
    some = inputs(standardise="off")
    refused(lambda: some.from_json(body(row(temp=large))), "row 1", "'temp'")
    refused(lambda: some.from_json(body(row(y=large))), "row 1", "'y'")


# -- kinds of rows -------------------------------------------------------------------------------
def test_inputs_wait_and_labels_come_later(some):
    arrival = some.from_json(
        body([row(id="a", y=...), row(), {"id": 7, "y": 2.5}, row(id="b", y=None), row(id="c")])
    )
    assert [name for name, _ in arrival.waiting] == ["a", "b"]
    assert all(np.array_equal(x, scaled()[0]) for _, x in arrival.waiting)
    assert [(name, y.tolist()) for name, y in arrival.labels] == [("7", [2.5])]
    assert (arrival.X.shape, arrival.Y.shape, arrival.rows) == ((2, 4), (2, 1), 5)


def test_inputs_and_labels_in_one_csv(some):
    table = "id,temp,wind,place,y\n1,20.5,1.5,roof,\n,20.5,1.5,roof,3\n9,,NA,,4\n"
    arrival = some.from_csv(table.encode())
    assert [name for name, _ in arrival.waiting] == ["1"]
    assert [(name, y.tolist()) for name, y in arrival.labels] == [("9", [4.0])]
    assert arrival.Y.tolist() == [[3.0]]
    labels = some.from_csv(b"y,id\n1,a\n2,b\n").labels
    assert [(name, y.tolist()) for name, y in labels] == [("a", [1.0]), ("b", [2.0])]


def test_inputs_that_are_all_missing_are_inputs_without_an_id(some):
    arrival = some.from_json(body({"temp": None, "y": 1}))
    assert np.array_equal(arrival.X, scaled(np.nan, np.nan, None))
    assert [name for name, _ in some.from_json(body({"temp": None, "id": 1})).waiting] == ["1"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"y": 1}, ["target but no inputs", "no id"]),
        (row(y=None), ["no target 'y'", "no id"]),
        ({"id": 3}, ["neither inputs", "nor a target"]),
        ({}, ["neither inputs"]),
        ({"note": "x"}, ["neither inputs"]),
        (row(tmp=1), ["'tmp'", "not an input", "'temp'", "drop"]),
        (row(id=1.5), ["an id is", "1.5"]),
        (row(id=True), ["an id is"]),
        (row(id=["a"]), ["an id is", "a list"]),
        (row(id="i" * 256), ["too long"]),
        (row(id="\ud800"), ["not plain text"]),
        (row(id="a\0b"), ["not plain text"]),
        ([1], ["an object", "a list"]),
        (None, ["null"]),
        ("text", ["'text'"]),
    ],
)
def test_rows_that_are_refused_by_name(some, bad, words):
    refused(lambda: some.from_json(body([row(), bad, row()])), "row 2", *words)


def test_ids(some):
    names = [" a b ", "7", 7, -1, 10**30, "ü", "i" * 255, "NA", "", None]
    waiting = some.from_json(body([row(id=name) for name in names])).rows
    assert waiting == len(names)  # complete rows make no use of it
    found = some.from_json(body([row(id=name, y=...) for name in names[:7]])).waiting
    assert [name for name, _ in found] == ["a b", "7", "7", "-1", str(10**30), "ü", "i" * 255]
    refused(lambda: some.from_json(body(row(id="NA", y=...))), "no id")


def test_an_id_that_was_dropped_is_not_used():
    some = inputs(drop=("id",))
    assert some.from_json(body(row(id=[1]))).rows == 1
    refused(lambda: some.from_json(body(row(id=1, y=...))), "no id")


# -- bodies --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"", ["empty"]),
        (b" \n\t", ["empty"]),
        (b"[]", ["no rows"]),
        (b'{"rows": []}', ["no rows"]),
        (b'{"columns": ["temp"], "data": []}', ["no rows"]),
        (b"null", ["null"]),
        (b"3", ["3"]),
        (b"{", ["not JSON"]),
        (b"{'temp': 1}", ["not JSON"]),
        (b'{"temp": 1, "temp": 2, "y": 1}', ["'temp'", "twice"]),
        (b'{"temp": 1} {"temp": 2}', ["row 1", "one JSON object a line"]),
        (b'{"temp": 1, "y": 1}\n{"temp": }', ["row 2", "not JSON"]),
        (b'{"temp": 1, "y": 1}\n[{"temp": 1, "y": 1}]', ["row 2", "a list"]),
        (b'{"temp": \xff}', ["0xff", "UTF-8"]),
        ('{"temp": 1}'.encode("utf-16"), ["UTF-8"]),
        (b"[" * 100_000, ["deeply nested"]),
        (b'{"temp":' * 100_000, ["deeply nested"]),
        (b'{"temp": ' + b"[" * 400 + b"]" * 400 + b', "y": 1}', ["'temp'", "a list"]),
        (b'{"temp": ' + b"9" * 5000 + b', "y": 1}', ["digits"]),
        (b'{"temp": ' + b"9" * 4000 + b', "y": 1}', ["'temp'"]),
        (b'{"columns": ["temp", "temp"], "data": [[1, 2]]}', ["two columns", "'temp'"]),
        (b'{"columns": ["temp", 5], "data": [[1, 2]]}', ["names"]),
        (b'{"columns": "temp", "data": [[1]]}', ["names"]),
        (b'{"columns": ["temp"], "data": {}}', ["list of rows"]),
        (b'{"columns": ["temp"], "data": [5]}', ["row 1", "list of cells"]),
        (b'{"columns": ["temp", "y"], "data": [[1, 2]]}', ["no column 'wind'"]),
        (b'{"columns": ["temp"], "data": [[1, 2]]}', ["row 1", "1 cells", "2 are there"]),
        (b'{"rows": 5}', ["'rows'", "not an input"]),
    ],
)
def test_bad_json(some, bad, words):
    refused(lambda: some.from_json(bad), *words)
    refused(lambda: some.rows_json(bad))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("", ["empty"]),
        ("\n\n", ["empty"]),
        ("temp,wind,place,y\n", ["no rows"]),
        ("temp,wind,place,y\n1,2,roof\n", ["row 1", "4 cells", "3 are there"]),
        ("temp,wind,place,y\n1,2,roof,1\n1,warm,roof,1\n", ["row 2", "'wind'", "'warm'"]),
        ("temp,wind,y\n1,2,3\n", ["no column 'place'"]),
        ("temp,temp,place,y\n1,2,a,3\n", ["two columns", "'temp'"]),
        ("temp,wind,place,extra,y\n1,2,a,3,4\n", ["'extra'", "not an input"]),
        ('temp,wind,place,y\n1,2,"roof,3\n', ["not CSV"]),
        ("1,2,roof,3\n1,2,roof,3\n", ["'1'", "not an input"]),
        ("temp,wind,place,y\n1,2,roof,inf\n", ["row 1", "'y'"]),
        ("temp,wind,place,y\n1,2," + "x" * 200_000 + ",1\n", ["not CSV"]),
    ],
)
def test_bad_csv(some, bad, words):
    refused(lambda: some.from_csv(bad.encode()), *words)


def test_too_many_rows():
    some = inputs(queue_rows=3)
    assert some.from_json(body([row()] * 3)).rows == 3
    for many in (body([row()] * 4), b"\n".join([body(row())] * 4)):
        refused(lambda: some.from_json(many), "4 rows", "3 is the most")  # noqa: B023
    refused(lambda: some.from_csv(("temp,wind,place,y\n" + "1,1,a,1\n" * 4).encode()), "4 rows")


def test_questions_need_inputs(some):
    refused(lambda: some.rows_json(body([row(y=...), {"id": 1}])), "row 2", "no inputs")
    refused(lambda: some.rows_csv(b"y\n1\n"), "no column 'temp'")
    assert some.rows_json(body({"temp": 20.5, "id": [1], "y": "?!"})).shape == (1, 4)


any_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["temp", "wind", "place", "y", "id", "rows", "columns", "data", "z"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(any_json)
def test_any_json_is_taken_or_refused(value):
    for some in (SOME, CLASSES):
        for call in (some.from_json, some.rows_json):
            try:
                found = call(body(value))
            except BadInput as error:
                str(error).encode()  # what says so can be sent
            else:
                arrays = [found.X, found.Y] if isinstance(found, Arrival) else [found]
                assert all(np.isfinite(array.astype(np.float32)).all() for array in arrays)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.binary(max_size=200) | st.text("temp,wind;place\ty\n\"'0123456789.-", max_size=200))
def test_any_bytes_are_taken_or_refused(data):
    data = data if isinstance(data, bytes) else ("temp,wind,place,y\n" + data).encode()
    for call in (SOME.from_json, SOME.rows_json, SOME.from_csv, SOME.rows_csv):
        try:
            call(data)
        except BadInput as error:
            str(error).encode()


SOME, CLASSES = inputs(), inputs(labels=("a", "b", "c"))


# -- targets -------------------------------------------------------------------------------------
def estimated(labels, y):
    """Y as the estimators make it."""
    estimator = Classification.__new__(Classification)
    estimator.classes_ = np.unique(np.array(labels))
    return estimator._targets(np.array(y))


@pytest.mark.parametrize(
    ("labels", "y"),
    [
        (("ham", "spam"), ["spam", "ham", "spam"]),
        ((0, 1), [1, 0, 1]),
        ((-1.0, 1.0), [-1.0, 1.0, -1.0]),
        (("a", "b", "c"), ["c", "a", "b"]),
        ((0, 1, 2, 7), [7, 2, 0]),
    ],
)
def test_targets_are_those_of_the_estimators(labels, y):
    some = inputs(labels=labels)
    found = some.from_json(body([row(y=label) for label in y])).Y
    assert np.array_equal(found, estimated(labels, y))
    assert some.m == found.shape[1] == (1 if len(labels) == 2 else len(labels))
    texts = "\n".join(["temp,wind,place,y", *(f"20.5,1.5,roof,{label}" for label in y)])
    assert np.array_equal(some.from_csv(texts.encode()).Y, found)


def test_labels_that_were_not_agreed():
    numbers, texts = inputs(labels=(0, 1)), inputs(labels=("no", "yes"))
    refused(lambda: numbers.from_json(body([row(y=1), row(y=2)])), "row 2", "'y'", "2", "0, 1")
    refused(lambda: numbers.from_json(body(row(y="yes"))), "row 1", "'y'", "'yes'")
    refused(lambda: numbers.from_json(body(row(y=0.5))), "row 1", "0.5")
    refused(lambda: texts.from_json(body(row(y="maybe"))), "row 1", "'maybe'", "'no', 'yes'")
    refused(lambda: texts.from_json(body(row(y=["no"]))), "row 1", "a list")
    refused(lambda: texts.from_json(b'{"id": 1, "y": NaN}'), "NaN is not JSON")
    many = inputs(labels=tuple(range(1000)))
    refused(lambda: many.from_json(body(row(y=1000))), "row 1", "...")


def test_numbers_as_labels_may_be_written_in_many_ways():
    some = inputs(labels=(0, 1))
    ways = [1, 1.0, "1", " 1.0 ", "1e0"]
    assert some.from_json(body([row(y=way) for way in ways])).Y.tolist() == [[1.0]] * len(ways)
    assert Targets("y", ("1", "2")).encoded([1, "1 ", "2"], 3)[0].tolist() == [[-1], [-1], [1]]


def test_labels_wait_like_numbers():
    some = inputs(labels=("a", "b", "c"))
    arrival = some.from_json(body([row(id=1, y=None), {"id": 1, "y": "b"}]))
    assert [(name, y.tolist()) for name, y in arrival.labels] == [("1", [-1.0, 1.0, -1.0])]


# -- hostile bodies ------------------------------------------------------------------------------
MANY = [f"c{i}" for i in range(60_000)]
HOSTILE = {
    "many columns": body({"columns": MANY, "data": [[0] * len(MANY)]}),
    "one twice of many": body(dict.fromkeys(MANY, 0)).replace(b'"c59999"', b'"c59998"'),
    "a long name": body({"xyz1 " * 700_000: 1}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_strange_body_is_refused_before_it_costs_much(some, case):
    began = time.process_time()
    refused(lambda: some.from_json(HOSTILE[case]))
    assert time.process_time() - began < 2


def test_rows_with_keys_of_their_own_do_not_become_a_square_of_cells():
    wide = body([{f"c{i}": 0} for i in range(5000)])
    some = inputs(queue_rows=5000)
    tracemalloc.start()
    try:
        refused(lambda: some.from_json(wide), "row 1: column 'c0' is not an input")
        assert tracemalloc.get_traced_memory()[1] < 200 * len(wide)
    finally:
        tracemalloc.stop()


def test_a_target_outside_the_agreed_range_is_refused():
    bounded = inputs(believed=(-30.0, 30.0))
    assert bounded.from_json(b'{"temp": 1, "wind": 2, "place": "roof", "y": 30}').Y[0, 0] == 30
    with pytest.raises(BadInput, match=r"row 2, column 'y': -9999.* is outside -30 to 30"):
        bounded.from_json(b'[{"temp": 1, "y": 1}, {"temp": 1, "y": -9999}]')


# -- ranges --------------------------------------------------------------------------------------
RANGES = ((-20.0, 60.0), (-30.0, 30.0))  # of temp and wind


def test_numbers_outside_their_range_are_refused_and_counted():
    strict = inputs(believed=(-5, 5), ranges=RANGES)
    assert strict.outside.counts == {"temp": 0, "wind": 0, "y": 0}  # counts rise from somewhere
    assert inputs().outside.counts == {}
    good = {"temp": 20, "wind": 1, "place": "roof", "y": 1}
    assert strict.from_json(body(good)).rows == 1
    assert strict.from_json(body({**good, "wind": None})).rows == 1  # missing is not outside
    for wrong in ({"temp": -9999}, {"temp": 1e38}, {"wind": 30.5}):
        (name,) = wrong
        with pytest.raises(BadInput, match=f"row 2, column '{name}': .* is outside"):
            strict.from_json(body([good, {**good, **wrong}]))
        with pytest.raises(BadInput, match="ranges in the description"):
            strict.rows_json(body({**good, **wrong}))
    with pytest.raises(BadInput, match="target_range"):
        strict.from_json(body({**good, "y": -9999}))
    assert strict.outside.counts == {"temp": 4, "wind": 2, "y": 1}


def test_numbers_outside_their_range_are_clipped_by_rule_and_counted():
    mild, plain = inputs(believed=(-5, 5), ranges=RANGES, outside="clip"), inputs()
    row = {"temp": -9999, "wind": 1e38, "place": "roof", "y": 7}
    clipped = mild.from_json(body(row))
    wanted = plain.from_json(body({"temp": -20, "wind": 30, "place": "roof", "y": 5}))
    assert np.array_equal(clipped.X, wanted.X)
    assert clipped.Y.tolist() == [[5.0]]
    assert mild.outside.counts == {"temp": 1, "wind": 1, "y": 1}
