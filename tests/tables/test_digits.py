"""Compiled reading of numbers: the same doubles as Python's float, or none at all."""

import io
import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from dokl.tables.readers import MISSING, Options, open_table
from dokl.tables.readers.digits import numbers, sparse_rows

ONE = np.array([True])


def read(text):
    """The number in a single cell; None where it declines."""
    found = numbers(text.encode() + b"\n", ",", ONE, 1)
    return None if found is None else float(found[0, 0])


def same(a, b):
    return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["r", ".18e", ".6g", "f"]))
@example(9007199254740993.0, "r")
@example(-0.0, "r")
def test_it_reads_what_python_writes(value, form):
    text = repr(value) if form == "r" else format(value, form)
    found = read(text)
    assert found is None or same(found, float(text))


def decimal(value):
    """A fraction whose denominator is a power of two, in full."""
    places = value.denominator.bit_length() - 1
    whole = str(value.numerator * 5**places).rjust(places + 1, "0")
    return whole[: len(whole) - places] + ("." + whole[-places:] if places else "")


def midpoint(m, e, nudge):
    """Half way between the doubles m 2^e and (m + 1) 2^e, or a last digit beside it."""
    text = decimal(Fraction(2 * m + 1) * Fraction(2) ** (e - 1))
    last = str((int(text[-1]) + nudge) % 10)
    return text[:-1] + last


def sure(text):
    """Whether it has no excuse: 19 digits at most, a moderate size, and no midpoint near."""
    mantissa, _, exponent = text.lstrip("+-").lower().partition("e")
    whole, _, part = mantissa.partition(".")
    if len((whole + part).lstrip("0")) > 19 or abs(int(exponent or 0) - len(part)) > 280:
        return False
    exact, near = abs(Fraction(text)), abs(float(text))
    if not exact:
        return True
    ends = (Fraction(near) + Fraction(math.nextafter(near, to)) for to in (0.0, math.inf))
    return min(abs(exact - end / 2) for end in ends) > exact / 2**90


SIGNS, TAILS = st.sampled_from(["", "-", "+"]), st.sampled_from(["", ".", ".0", ".000000", "0"])
POWERS = st.one_of(st.just(""), st.builds("e{}".format, st.integers(-250, 250)))
WRAPPING = st.builds(lambda k, bits: str(k << bits), st.integers(1, 999), st.integers(50, 70))
LONG = st.integers(10**17, 10**24).map(str)
HALVES = st.builds(
    midpoint, st.integers(1 << 52, (1 << 53) - 1), st.integers(-60, 30), st.integers(-1, 1)
)
HARD = st.one_of(
    st.builds("{}{}{}{}".format, SIGNS, st.one_of(WRAPPING, LONG), TAILS, POWERS),
    st.builds("{}0.{}{}".format, SIGNS, st.one_of(WRAPPING, LONG), POWERS),
    HALVES,
)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(HARD)
@example("18446744073709551616")
@example("9223372036854775808.0")
@example("-9223372036854775808.000000")
@example("9007199254740993")
def test_hard_cases_are_those_of_python_or_declined_with_a_reason(text):
    found = read(text)
    assert same(found, float(text)) if found is not None else not sure(text)


def test_an_exponent_without_end_is_declined():
    assert float("0." + "0" * 10_000 + "1e10001") == 1.0
    assert read("0." + "0" * 10_000 + "1e10001") is None


@settings(max_examples=20, deadline=None, derandomize=True)
@given(texts=st.lists(HARD, min_size=1, max_size=50))
@example(texts=["18446744073709551616", "9223372036854775808.0", "-9223372036854775808.000000"])
def test_hard_cases_in_a_file_are_those_of_python(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("hard") / "t.csv"
    path.write_text("a,b\n1,1\n" + "".join(f"{text},2\n" for text in texts))
    found = [chunk.columns["a"].tolist() for chunk in open_table(path, Options(chunk=1))]
    assert found == [[1.0]] + [[float(text)] for text in texts]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.from_regex(r"\A[-+]?(\d{1,22}\.?\d{0,22}|\.\d{1,22})([eE][-+]?\d{1,3})?\Z"))
@example("9007199254740993")
@example("1e23")
@example("0000000000000000000000000001.5")
@example("8.5e-1")
def test_it_rounds_as_python_does(text):
    found = read(text)
    assert found is None or same(found, float(text))


@pytest.mark.parametrize("digits", ["%.17g", "%.6f", "%.18e", "%r"])
def test_ordinary_numbers_are_never_declined(digits):
    values = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.arange(-10, 10).repeat(100)
    text = "".join(digits % value + "\n" for value in values.tolist())
    found = numbers(text.encode(), ",", ONE, 2000)
    assert found is not None
    assert found[0].tolist() == [float(line) for line in text.splitlines()]


@pytest.mark.parametrize("word", MISSING)
def test_what_is_missing_is_nan(word):
    assert math.isnan(read(word))
    assert math.isnan(read(f"  {word} "))


@pytest.mark.parametrize(
    "text", ["x", "1x", "1_000", "0x10", "inf", "-inf", "1e999", "--1", "1e", "1e+", ".", "e5",
             "1.2.3", "1 2", "NAx", "é", "12345678901234567890123"]
)  # fmt: skip
def test_what_is_unusual_is_declined(text):
    assert read(text) is None


@pytest.mark.parametrize(
    ("data", "n"), [(b"1,2\n3\n", 2), (b"1,2\n3,4,5\n", 2), (b"1,2\n\n3,4\n", 3), (b"1,2\n", 2)]
)
def test_ragged_tables_are_declined(data, n):
    assert numbers(data, ",", np.array([True, True]), n) is None


def test_columns_that_are_not_wanted_may_hold_anything():
    found = numbers("1;ä b;2\r\n3;;4".encode(), ";", np.array([True, False, True]), 2)
    assert found.tolist() == [[1, 3], [2, 4]]


def test_tables_with_texts_and_gaps_read_alike_quickly_and_slowly(tmp_path):
    rng = np.random.default_rng(1)
    lines = [
        f"{rng.normal():.5f},{rng.choice(['roof', ' yard', 'NA', 'Zoë'])},{i if i % 5 else ''}"
        for i in range(300)
    ]
    plain, quoted = tmp_path / "plain.csv", tmp_path / "quoted.csv"
    plain.write_text("\n".join(["a,t,n", *lines]) + "\n")
    # Quotes send lines the slow way.
    lines = ['"' + line.replace(",", '",', 1) for line in lines]
    quoted.write_text("\n".join(["a,t,n", *lines]) + "\n")
    some = Options(chunk=50)
    for left, right in zip(open_table(plain, some), open_table(quoted, some), strict=True):
        assert left.columns["t"].tolist() == right.columns["t"].tolist()
        for name in ("a", "n"):
            assert np.array_equal(left.columns[name], right.columns[name], equal_nan=True)
        assert list(left.lines) == list(right.lines)


# -- LIBSVM ------------------------------------------------------------------------------------
def test_sparse_rows_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    lines = []
    for _ in range(200):
        features = np.flatnonzero(rng.random(30) < 0.2) + 1
        pairs = [f"{i}:{rng.normal():.{rng.integers(1, 17)}g}" for i in features]
        lines.append(" ".join([rng.choice(["+1", "-1", "2.5"]), *pairs]))
    data = ("\n".join(lines) + " \r\n").encode()
    y, values, columns, starts = sparse_rows(data, 200, 1, 30)
    X_true, y_true = load_svmlight_file(io.BytesIO(data), n_features=30)
    assert y.tolist() == y_true.tolist()
    assert values.tolist() == X_true.data.tolist()
    assert columns.tolist() == X_true.indices.tolist()
    assert starts.tolist() == X_true.indptr.tolist()


@pytest.mark.parametrize(
    "line", ["1 2:1 1:1", "1 1:1 1:2", "1 0:1", "1 4:1", "1 1:x", "1 1:", "1 :1", "1 qid:3 1:1",
             "x 1:1", "NA 1:1", "1 1:NA", "1 1:1 # remark", "# remark", "", "1 1:inf", "1\t1:1",
             "1 1:1:1", "1 99999999999999999999:1"]
)  # fmt: skip
def test_unusual_sparse_rows_are_declined(line):
    assert sparse_rows(f"1 1:1 3:2\n{line}\n".encode(), 2, 1, 3) is None


def test_the_number_of_lines_must_be_right():
    assert sparse_rows(b"1 1:1\n", 2, 1, 3) is None
    assert sparse_rows(b"1 1:1\n1 1:1\n", 1, 1, 3) is None
    assert sparse_rows(b"1 0:1 2:1", 1, 0, 3)[2].tolist() == [0, 2]
