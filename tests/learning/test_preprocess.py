import json
import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from dokl.base.errors import BadInput, UnknownName
from dokl.learning.columns import Preprocessor, are_classes, class_target, numeric_target


def table(n=300, seed=0, offset=0.0, missing=0.1):
    rng = np.random.default_rng(seed)
    numbers = {name: offset + 3 * rng.normal(size=n) for name in ("a", "b", "c")}
    for column in numbers.values():
        column[rng.random(n) < missing] = np.nan
    places = np.array(["roof", "cellar", "garden", None], object)[rng.integers(4, size=n)]
    return {**numbers, "place": places, "y": rng.normal(size=n)}


def rows(columns, start, stop):
    return {name: column[start:stop] for name, column in columns.items()}


def in_chunks(plan, columns, sizes):
    parts, start = [], 0
    while start < len(columns["y"]):
        stop = start + next(sizes)
        parts.append(plan.learn_transform(rows(columns, start, stop)))
        start = stop
    return np.vstack(parts)


def oracle(column):
    """Row by row, from all rows so far, in exact arithmetic."""
    seen, out = [], []
    for value in column.tolist():
        if math.isnan(value):
            out.append(0.0)
            continue
        seen.append(Fraction(value))
        mean = sum(seen) / len(seen)
        variance = sum(x * x for x in seen) / len(seen) - mean * mean
        out.append(float(seen[-1] - mean) / math.sqrt(variance) if variance else 0.0)
    return np.array(out)


def sizes(kind):
    rng = np.random.default_rng(1)
    while True:
        yield kind or int(rng.integers(1, 60))


# -- running standardisation -----------------------------------------------------------------
@pytest.mark.parametrize("offset", [0.0, 1e9, -1e6])
@pytest.mark.parametrize("mode", ["running", "off"])
def test_chunks_do_not_matter_to_the_last_bit(offset, mode):
    columns = table(offset=offset)
    columns["late"] = np.where(np.arange(300) < 100, np.nan, columns["y"])
    whole, cuts = [], [300, 1, 7, None]
    for cut in cuts:
        plan = Preprocessor.plan(columns, exclude=["y"], standardise=mode)
        whole.append((in_chunks(plan, columns, sizes(cut)), plan.transform(columns)))
    for X, after in whole[1:]:
        assert np.array_equal(X, whole[0][0])
        assert np.array_equal(after, whole[0][1])


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_against_a_plain_loop(offset):
    columns = table(offset=offset)
    X = in_chunks(Preprocessor.plan(columns, exclude=["y"]), columns, sizes(64))
    for i, name in enumerate("abc"):
        np.testing.assert_allclose(X[:, i], oracle(columns[name]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("first", [None, 0.0, -1e7])
@pytest.mark.parametrize("offset", [0.0, 1e9, 1e12])
def test_mean_and_variance_at_the_end(offset, first):
    a = offset + np.random.default_rng(0).normal(size=20_000)
    if first is not None:
        a[0] = first  # far from all others
    plan = Preprocessor.plan({"a": a})
    plan.learn_transform({"a": a})
    z = plan.transform({"a": a[1:5]})[:, 0]
    b = a - a[1]  # at 1e12, np.mean of a itself has no digits to spare
    np.testing.assert_allclose(z, (b[1:5] - np.mean(b)) / np.sqrt(np.var(b)), rtol=1e-8, atol=1e-8)


def test_first_row_and_no_spread_give_zeros():
    columns = {"a": np.full(50, 0.1), "b": np.arange(50.0)}
    plan = Preprocessor.plan(columns)
    X = plan.learn_transform(columns)
    assert not X[0].any()
    assert not X[:, 0].any()
    assert X[1, 1] == 1.0
    assert plan.transform({"a": np.array([7.0]), "b": np.array([24.5])}).tolist() == [[0.0, 0.0]]


def test_the_last_row_of_learning_is_what_transform_says():
    columns = table()
    plan = Preprocessor.plan(columns, exclude=["y"])
    X = plan.learn_transform(columns)
    assert np.array_equal(plan.transform(rows(columns, 299, 300)), X[-1:])


def test_transform_learns_nothing():
    columns = table()
    plan = Preprocessor.plan(columns, exclude=["y"])
    plan.learn_transform(rows(columns, 0, 100))
    before = plan.spec()[1]
    plan.transform(rows(columns, 100, 300))
    for name, array in plan.spec()[1].items():
        assert np.array_equal(array, before[name])


def test_missing_numbers_stand_at_the_mean():
    columns = {"a": np.array([np.nan, 2.0, 4.0, np.nan])}
    plan = Preprocessor.plan(columns, standardise="off")
    assert plan.learn_transform(columns)[:, 0].tolist() == [2.0, 2.0, 4.0, 3.0]
    assert plan.transform(columns)[:, 0].tolist() == [3.0, 2.0, 4.0, 3.0]
    assert Preprocessor.plan(columns).learn_transform(columns)[:, 0].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_before_any_number_the_first_of_the_first_rows_stands(cut):
    columns = {"a": np.array([np.nan, np.nan, 300.0, 320.0])}
    known, unknown = (Preprocessor.plan({"a": columns["a"][:n]}, standardise="off") for n in (3, 2))
    for plan, first in ((known, 300.0), (unknown, 0.0)):
        parts = [plan.learn_transform(rows(columns, at, at + cut)) for at in range(0, 4, cut)]
        assert np.concatenate(parts)[:, 0].tolist() == [first, first, 300.0, 320.0]


def test_no_rows():
    columns = table()
    plan = Preprocessor.plan(columns, exclude=["y"])
    assert plan.learn_transform(rows(columns, 0, 0)).shape == (0, 6)


@pytest.mark.parametrize(("value", "what"), [(-np.inf, "infinity"), (1e200, "more than can be")])
def test_too_large_changes_nothing(value, what):
    plan = Preprocessor.plan({"a": np.zeros(1)})
    plan.learn_transform({"a": np.array([0.0, 1.0])})
    before = plan.spec()[1]
    with pytest.raises(BadInput, match=f"column 'a' holds {what}"):
        plan.learn_transform({"a": np.array([1.0, value])})
    assert all(np.array_equal(array, before[name]) for name, array in plan.spec()[1].items())


@pytest.mark.parametrize("mode", ["running", "fixed", "off"])
def test_infinity_is_refused_in_every_mode(mode):
    plan = Preprocessor.plan({"a": np.zeros(1)}, standardise=mode)
    with pytest.raises(BadInput, match="column 'a' holds infinity"):
        plan.transform({"a": np.array([np.inf])})


# -- fixed and off ---------------------------------------------------------------------------
def test_fixed_is_learned_from_the_sample_and_stays():
    columns = table(missing=0.0)
    plan = Preprocessor.plan(rows(columns, 0, 100), exclude=["y"], standardise="fixed")
    X = plan.learn_transform(columns)
    a = columns["a"]
    np.testing.assert_allclose(X[:, 0], (a - a[:100].mean()) / a[:100].std())
    assert np.array_equal(X, plan.transform(columns))


def test_freeze():
    columns = table()
    plan = Preprocessor.plan(columns, exclude=["y"])
    with pytest.raises(BadInput, match="freeze"):
        plan.agreed()
    plan.learn_transform(columns)
    plan.freeze()
    assert plan.standardise == "fixed"
    agreed = json.dumps(plan.agreed())
    plan.learn_transform(rows(columns, 0, 50))
    assert json.dumps(plan.agreed()) == agreed
    sample = Preprocessor.plan(columns, exclude=["y"], standardise="fixed")
    assert json.dumps(sample.agreed()) == agreed
    other = Preprocessor.plan(rows(columns, 0, 299), exclude=["y"], standardise="fixed")
    assert json.dumps(other.agreed()) != agreed


def test_off_can_be_frozen():
    plan = Preprocessor.plan(table(), standardise="off")
    plan.freeze()
    assert plan.agreed()["standardise"] == plan.standardise == "off"


# -- categories ------------------------------------------------------------------------------
def texts(*values):
    return {"place": np.array(values, object)}


def test_one_hot_and_unseen_levels():
    plan = Preprocessor.plan(texts("roof", "cellar", None))
    assert plan.names_out == ("place=cellar", "place=roof")
    assert plan.d == 2
    X = plan.learn_transform(texts("cellar", "attic", None, "roof", "attic"))
    assert X.tolist() == [[1, 0], [0, 0], [0, 0], [0, 1], [0, 0]]
    assert plan.unseen == {"place": 2}
    plan.transform(texts("attic"))
    assert plan.unseen == {"place": 3}


def test_levels_do_not_depend_on_the_order_of_rows():
    places = ["c", "b", "a", "b", "c", "d", "d"] * 3
    one = Preprocessor.plan(texts(*places), max_levels=3)
    two = Preprocessor.plan(texts(*reversed(places)), max_levels=3)
    assert one.names_out == two.names_out == ("place=b", "place=c", "place=d")


def test_levels_can_be_told():
    plan = Preprocessor.plan(texts("roof"), levels={"place": ["roof", "attic"]})
    assert plan.names_out == ("place=roof", "place=attic")


def test_names_and_times_are_no_categories():
    with pytest.raises(BadInput, match="column 'place' holds 100 different texts in 100 rows"):
        Preprocessor.plan(texts(*map(str, range(100))))
    assert Preprocessor.plan(texts(*map(str, range(50)))).d == 50


def test_fixed_width_texts_will_do():
    assert Preprocessor.plan({"p": np.array(["u", "v"])}).names_out == ("p=u", "p=v")


# -- saving ----------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["running", "fixed", "off"])
def test_saved_and_loaded_is_the_same(mode):
    columns = table(offset=1e6)
    plan = Preprocessor.plan(rows(columns, 0, 90), exclude=["y"], standardise=mode)
    plan.learn_transform(rows(columns, 0, 100))
    meta, arrays = plan.spec()
    again = Preprocessor.from_spec(json.loads(json.dumps(meta)), arrays)
    assert again.names_out == plan.names_out
    assert np.array_equal(again.transform(columns), plan.transform(columns))
    rest = rows(columns, 100, 300)
    assert np.array_equal(again.learn_transform(rest), plan.learn_transform(rest))
    assert json.dumps(again.spec()[0]) == json.dumps(plan.spec()[0])


def test_columns_keep_the_order_of_the_table():
    first = {"p": np.array(["u", "v"], object), "y": np.zeros(2), "a": np.zeros(2)}
    plan = Preprocessor.plan(first, exclude=["y"])
    assert plan.columns == ("p", "a")
    assert plan.names_out == ("a", "p=u", "p=v")
    meta, arrays = plan.spec()
    assert Preprocessor.from_spec(meta, arrays).columns == ("p", "a")
    del meta["columns"]  # as the first files were
    assert Preprocessor.from_spec(meta, arrays).columns == ("a", "p")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("numeric", None),
        ("numeric", [1, 2, 3]),
        ("numeric", ["a"]),
        ("levels", 3),
        ("levels", [["place", "roof"]]),
        ("columns", ["a"]),
        ("columns", 3),
        ("standardise", "always"),
        ("shift", np.zeros(2)),
        ("count", np.array([1.0, np.nan, 1.0])),
        ("total", np.array(["x", "y", "z"])),
    ],
)
def test_damaged_spec(part, value):
    meta, arrays = Preprocessor.plan(table(), exclude=["y"]).spec()
    (meta if part in meta else arrays)[part] = value
    with pytest.raises(BadInput, match="damaged"):
        Preprocessor.from_spec(meta, arrays)
    with pytest.raises(BadInput, match="damaged"):
        Preprocessor.from_spec({}, arrays)


# -- what goes wrong -------------------------------------------------------------------------
def test_missing_renamed_and_extra_columns():
    columns = {"temp": np.zeros(2), "place": np.array(["u", "v"], object), "y": np.zeros(2)}
    plan = Preprocessor.plan(columns, exclude=["y"])
    renamed = {"temperature": np.zeros(2), "place": columns["place"]}
    with pytest.raises(BadInput, match=r"'temp' was there .* the nearest is 'temperature'"):
        plan.transform(renamed)
    with pytest.raises(BadInput, match=r"'place' was there .* nearest"):
        plan.transform({"temp": np.zeros(2), "plaice": columns["place"]})
    assert plan.transform({**columns, "more": np.zeros(2)}).shape == (2, 3)
    assert plan.ignored == ("more",)


def test_columns_that_changed_their_kind():
    plan = Preprocessor.plan({"a": np.zeros(2), "p": np.array(["u", "v"], object)})
    with pytest.raises(BadInput, match="'a' held numbers in training and holds text now"):
        plan.transform({"a": np.array(["1", "x"], object), "p": np.array(["u", "v"], object)})
    with pytest.raises(BadInput, match="'p' held text in training and holds numbers now"):
        plan.transform({"a": np.zeros(2), "p": np.zeros(2)})
    with pytest.raises(BadInput, match="'p' is not as long as the others"):
        plan.transform({"a": np.zeros(2), "p": np.array(["u"], object)})


def test_bad_plans():
    columns = {"a": np.zeros(2), "y": np.zeros(2)}
    with pytest.raises(BadInput, match="no column is left"):
        Preprocessor.plan(columns, exclude=["a", "y"])
    with pytest.raises(BadInput, match="column 'target' is not there; the nearest"):
        Preprocessor.plan(columns, exclude=["target"])
    with pytest.raises(UnknownName, match="did you mean 'running'"):
        Preprocessor.plan(columns, standardise="runing")
    with pytest.raises(BadInput, match="'a' holds numbers"):
        Preprocessor.plan(columns, levels={"a": ["x"]})


# -- targets ---------------------------------------------------------------------------------
def test_targets():
    y, keep = numeric_target(np.array([1, 2]))
    assert y.dtype == np.float64
    assert keep.all()
    with pytest.raises(BadInput, match="'yield' holds text"):
        numeric_target(np.array(["x"], object), "yield")
    with pytest.raises(BadInput, match="'yield' holds infinity"):
        numeric_target(np.array([np.inf]), "yield")
    y, keep = class_target(np.array([0.0, np.nan, 1.0]))
    assert y[keep].tolist() == [0, 1]


def test_memory_does_not_grow():
    columns = table(n=1000)
    plan = Preprocessor.plan(columns, exclude=["y"])
    for _ in range(10):  # the interpreter adapts its code, once
        plan.learn_transform(columns)
    tracemalloc.start()
    for _ in range(50):
        plan.learn_transform(columns)
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert left < 10_000, left


# --- classes or numbers -----------------------------------------------------------------------

ROWS = np.arange(200)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array(["ham", "spam"], object), True),
        (np.array(["a", "a"]), True),
        (ROWS > 7, True),
        (np.array([0, 1]), True),
        (np.array([-1.0, 1.0, np.nan]), True),
        (1 + ROWS % 2, True),
        (1.0 + ROWS % 2, True),
        (np.where(ROWS < 3, np.nan, ROWS % 6), True),
        (ROWS % 10, True),
        (ROWS % 11, False),
        (ROWS[:40] % 10, False),
        (np.array([15, 16]), False),
        (ROWS % 2 + 0.5, False),
        (ROWS * 7 % 1325, False),
        (np.full(200, 3), False),
        (np.full(200, np.nan), False),
    ],
)
def test_what_is_taken_for_classes(y, classes):
    assert are_classes(y) is classes
