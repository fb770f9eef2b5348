"""Models as C99: compiled without a warning, they predict and learn as the model does."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import dokl as library
from commands import column_of, dokl, fails, iso, readings, risen, times_file, train_each
from dokl.base.errors import BadInput
from dokl.network.folded import interval_width
from dokl.tables.export.c_parts import quoted
from dokl.tables.export.c_source import c_source, write_c
from variants import first

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
FLAGS = ("-Wall", "-Wextra", "-Werror", "-std=c99", "-O2")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc) here")
N = 10_000
EXACT = {"engine": "reference", "dtype": "float64"}
CLOSE = {"double": 1e-5, "float": 1e-3}  # of the target's standard deviation
LEARNERS = {
    "gradient": ("--method", "gradient", "--components", "60"),
    "squares": ("-p", "experts=one", "--components", "60"),
    "auto": ("--method", "bank", "--components", "60"),
    "cooperation": ("--nodes", "place", "--components", "60"),
}
PLACE = ", row.place = (int)raw[2]"  # of a network it says the node, and is no input
# Reads rows of (a, b, place), and writes what each function says.
NUMBERS = """#include "m.h"
void run(const double *raw, long n, double *out);
void run(const double *raw, long n, double *out)
{
    long t;
    for (t = 0; t < n; t++, raw += 3, out += 3) {
        m_row row;
        %INTERVAL%
        row.a = raw[0], row.b = raw[1], row.place = (int)raw[2];
        out[0] = m_predict(%STATE%&row);
        %ENDS%
    }
}
"""
LABELS = """#include "m.h"
void run(const double *raw, long n, double *out);
void run(const double *raw, long n, double *out)
{
    long t;
    for (t = 0; t < n; t++, raw += 3, out += 3) {
        m_row row;
        m_real p[M_CLASSES];
        row.a = raw[0], row.b = raw[1], row.place = (int)raw[2];
        out[0] = m_predict(%STATE%&row);
        m_probabilities(%STATE%&row, p);
        out[1] = p[0], out[2] = p[1];
    }
}
"""
LEARN = """#include "m.h"
static m_state state;
void begin(void);
double learn(const double *raw, long n, const double *y);
void run(const double *raw, long n, double *out);
static m_row row_of(const double *raw)
{
    m_row row;
    row.a = raw[0], row.b = raw[1], row.place = (int)raw[2];
    return row;
}
void begin(void) { state = m_learned; }
double learn(const double *raw, long n, const double *y)
{
    long t;
    for (t = 0; t < n; t++, raw += 3) {
        m_row row = row_of(raw);
        m_learn(&state, &row, y[t]);
    }
    return (double)state.count;
}
void run(const double *raw, long n, double *out)
{
    long t;
    for (t = 0; t < n; t++, raw += 3, out += 3) {
        m_row row = row_of(raw);
        out[0] = m_predict(&state, &row);
    }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, short_searches_of_module):
    """A stream with gaps, and models of its number and of its label."""
    with short_searches_of_module():
        return train_each(tmp_path_factory.mktemp("c"), LEARNERS, readings(400), ("gradient",))


def rows(n=N, seed=1):
    columns = readings(n, seed)
    columns["a"][::11] = np.nan
    texts = columns["place"].astype(object)
    texts[::13], texts[5::13] = None, "attic"
    return {**columns, "place": texts}


def compiled(folder, main):
    """The functions of m.c and main.c, as a library."""
    (folder / "main.c").write_text(main)
    command = [COMPILER, *FLAGS, "-shared", "-fPIC", "m.c", "main.c", "-o", "m.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "m.so"))


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def raw_of(columns):
    """Rows as the little programs read them; levels are in alphabetical order."""
    code = {"cellar": 0.0, "roof": 1.0, "yard": 2.0}
    place = [code.get(value, -1.0) for value in columns["place"]]
    return np.ascontiguousarray(np.column_stack([columns["a"], columns["b"], place]), np.float64)


def told(code, columns):
    raw = raw_of(columns)
    out = np.full((len(raw), 3), np.nan)
    code.run(pointer(raw), ctypes.c_long(len(raw)), pointer(out))
    return out.T


@pytest.mark.parametrize("precision", ["double", "float"])
@pytest.mark.parametrize("name", LEARNERS)
def test_numbers_are_the_models_own(folder, tmp_path, name, precision):
    columns = rows()
    dokl("export", folder / f"{name}-y.dokl", tmp_path / "m.c", "--precision", precision, "-q")
    model, plain = library.load(folder / f"{name}-y.dokl"), name == "gradient"
    main = NUMBERS.replace("%STATE%", "&m_learned, " if name == "gradient" else "")
    main = main.replace("%INTERVAL%", "" if plain else "m_real lower[1], upper[1];")
    main = main.replace(PLACE, "" if name == "cooperation" else PLACE)
    ends = "m_interval(&row, lower, upper), out[1] = lower[0], out[2] = upper[0];"
    found, lower, upper = told(
        compiled(tmp_path, main.replace("%ENDS%", "" if plain else ends)), columns
    )
    close = CLOSE[precision] * np.std(columns["y"])
    np.testing.assert_allclose(found, model.predict(columns), rtol=0, atol=close)
    if name == "cooperation":
        width = interval_width(model.estimator.network_, -1, 0.9)
        np.testing.assert_allclose(upper - found, np.full(len(found), width), rtol=0, atol=close)
    elif not plain:
        small = model.predict_only().predict_interval(columns)
        np.testing.assert_allclose((lower, upper), small, rtol=0, atol=close)


@pytest.mark.parametrize("precision", ["double", "float"])
@pytest.mark.parametrize("name", LEARNERS)
def test_labels_and_probabilities_are_the_models_own(folder, tmp_path, name, precision):
    columns = rows()
    dokl("export", folder / f"{name}-label.dokl", tmp_path / "m.c", "--precision", precision, "-q")
    model = library.load(folder / f"{name}-label.dokl")
    main = LABELS.replace("%STATE%", "&m_learned, " if name == "gradient" else "")
    main = main.replace(PLACE, "" if name == "cooperation" else PLACE)
    number, *probabilities = told(compiled(tmp_path, main), columns)
    said, wanted = model.predict_proba(columns), model.predict(columns)
    np.testing.assert_allclose(np.transpose(probabilities), said, rtol=0, atol=CLOSE[precision])
    sure = np.abs(said[:, 1] - 0.5) > CLOSE[precision]
    assert (model.classes_[number.astype(int)] == wanted)[sure].all()


@pytest.mark.parametrize("precision", ["double", "float"])
def test_it_learns_as_the_model_does(folder, tmp_path, precision):
    """10,000 rows: scaling goes along, gaps and all, and the vector with it."""
    columns, later = rows(), rows(500, seed=2)
    dokl("export", folder / "gradient-y.dokl", tmp_path / "m.c", "--precision", precision, "-q")
    model, code = library.load(folder / "gradient-y.dokl"), compiled(tmp_path, LEARN)
    y = columns["y"].copy()
    y[7::50] = np.nan  # rows without a target are passed over
    code.begin()
    code.learn.restype = ctypes.c_double
    count = code.learn(pointer(raw_of(columns)), ctypes.c_long(N), pointer(y))
    model.partial_fit(columns, y)
    assert count == model.estimator.state_.count[0]
    close = 10 * CLOSE[precision] * np.std(y[np.isfinite(y)])
    np.testing.assert_allclose(told(code, later)[0], model.predict(later), rtol=0, atol=close)


@pytest.mark.parametrize("how", [
    {"loss": "hinge"}, {"loss": "squared_hinge", "average": "uniform"}, {"loss": "logistic"},
])  # fmt: skip
def test_every_margin_loss_learns(tmp_path, how):
    X = np.random.default_rng(0).normal(size=(600, 2))
    label = np.digitize(X[:, 0] * X[:, 1], [-0.3, 0.3])
    model = library.KernelClassifier(
        n_components=30, random_state=0, engine="reference", dtype="float64", **how
    )
    check_learning(tmp_path, model.partial_fit(X[:100], label[:100], classes=[0, 1, 2]), X, label)


@pytest.mark.parametrize("how", [
    {"loss": "squared", "intercept": 2.0, "features": "cos"}, {"loss": "huber", "alpha": 0.01},
    {"loss": "absolute"}, {"loss": "epsilon_insensitive"},
    {"loss": "quantile", "average": "weighted"},
    {"loss": "squared", "step": library.schedules.inverse_power(0.5, 0.3, 2.0)},
    {"loss": "squared", "step": library.schedules.normalised(0.7)},
])  # fmt: skip
def test_every_loss_and_schedule_learns(tmp_path, how):
    X = np.random.default_rng(0).normal(size=(600, 2))
    y = X[:, 0] * X[:, 1]
    model = library.KernelRegressor(
        n_components=30, random_state=0, engine="reference", dtype="float64", **how
    )
    check_learning(tmp_path, model.partial_fit(X[:100], y[:100]), X, y)


def check_learning(tmp_path, model, X, y):
    """Rows after the first 100, by the model and by its C, from X alone."""
    write_c(model, tmp_path / "m.c")
    main = LEARN.replace("row.a = raw[0], row.b = raw[1], row.place = (int)raw[2];",
                         "row.x[0] = raw[0], row.x[1] = raw[1];")  # fmt: skip
    kind = "(int)y[t]" if hasattr(model, "classes_") else "y[t]"
    code = compiled(tmp_path, main.replace("y[t]", kind))
    raw = np.ascontiguousarray(np.column_stack([X, np.zeros(len(X))]))
    targets = np.ascontiguousarray(y[100:], np.float64)
    code.begin()
    code.learn(pointer(raw[100:].copy()), ctypes.c_long(len(targets)), pointer(targets))
    model.partial_fit(X[100:], y[100:])
    out = np.empty((len(X), 3))
    code.run(pointer(raw), ctypes.c_long(len(X)), pointer(out))
    if hasattr(model, "classes_"):
        assert (out[:, 0] == model.predict(X)).mean() > 0.998  # a score may lie on the edge
    else:
        np.testing.assert_allclose(out[:, 0], model.predict(X), rtol=0, atol=1e-6)


def test_one_header_has_it_all(folder, tmp_path):
    for name in ("gradient-y", "auto-label"):
        dokl("export", folder / f"{name}.dokl", tmp_path / "one.h", "--overwrite", "-q")
        predict = "one_predict(&one_learned, &row)" if name == "gradient-y" else "one_predict(&row)"
        (tmp_path / "m.c").write_text(
            '#include "one.h"\nint main(void)\n{\n    one_row row;\n    row.a = row.b = 0;\n'
            '    row.place = one_place_level("roof");\n'
            f"    return row.place + ({predict} > 9);\n}}\n"
        )
        command = [COMPILER, *FLAGS, "m.c", "-o", "m", "-lm"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert subprocess.run([tmp_path / "m"]).returncode == 1  # the level of "roof"


def test_nodes_combine(tmp_path):
    """Two boards that learn alone, then mix: the mean of their vectors."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    few = {"n_nodes": 3, "n_components": 8, "random_state": 0}
    model = library.DiffusionRegressor("ring", **few).fit(X, X[:, 0])
    write_c(model, tmp_path / "m.c", node="1")
    code = compiled(tmp_path, """#include "m.h"
double mixed(void);
double mixed(void)
{
    m_state a = m_learned, b = m_learned;
    b.theta[0][0] += 1;
    m_combine(&a, 0.25, &b);
    return a.theta[0][0] - m_learned.theta[0][0];
}
""")  # fmt: skip
    code.mixed.restype = ctypes.c_double
    assert code.mixed() == pytest.approx(0.25)
    assert not c_source(model, "m").learns, "the mean of nodes is nobody who learns"


@pytest.mark.parametrize("precision", first("double", "float"))
@pytest.mark.parametrize("share", ["sums", "rows"])
def test_parts_of_a_network_add_up(tmp_path, precision, share):
    """Own bank, network's bank and corrections: three scalings, and distances between nodes. Large
    heights of both signs cancel each other, which costs digits in floats.
    """
    X = np.random.default_rng(0).normal(size=(180, 3))
    nodes = np.arange(180) % 3
    y = X[:, 0] * X[:, 1] + X[:, 2] * nodes
    few = {"n_nodes": 3, "n_components": 50, "random_state": 0, "share": share}
    model = library.NetworkRegressor("ring", **few).partial_fit(X, y, nodes=nodes)
    far = np.concatenate([X, 100 * X[:20]])
    for k in (None, 1):
        found, lower, upper = numbers_of(tmp_path / str(k), model, k, far, precision)
        close = {"double": 1e-5, "float": 5e-3}[precision] * np.std(y)
        np.testing.assert_allclose(found, model.predict(far, nodes=k), rtol=0, atol=close)
        width = interval_width(model.network_, -1 if k is None else k, 0.9)
        np.testing.assert_allclose(found - lower, np.full(len(far), width), rtol=0, atol=close)
        np.testing.assert_allclose(upper - found, np.full(len(far), width), rtol=0, atol=close)


@pytest.mark.parametrize("precision", ["double", "float"])
def test_experts_by_ranks_are_exported(tmp_path, precision):
    rng = np.random.default_rng(0)
    X = np.exp(2 * rng.normal(size=(300, 3)))
    X[:, 1] = np.ceil(X[:, 1])  # ties
    y = np.sin(np.log(X[:, 0])) + np.log(X[:, 1])
    model = library.AutoRegressor(50, random_state=0).partial_fit(X, y)
    assert sum(row["weight"] for row in model.experts_ if "ranks" in row["expert"]) > 0.1
    far = np.concatenate([X, 100 * X[:20], -X[:20]])
    found = numbers_of(tmp_path / "m", model, None, far, precision)[0]
    close = CLOSE[precision] * np.std(y)
    np.testing.assert_allclose(found, model.predict(far), rtol=0, atol=close)


def numbers_of(folder, model, k, X, precision, ends=True):
    """What the C of a node says of rows X: (n, 3), and the ends of intervals."""
    folder.mkdir()
    node = None if k is None else str(model.nodes_[k])
    assert not c_source(model, "m", node=node).learns
    write_c(model, folder / "m.c", node=node, precision=precision)
    d = X.shape[1]
    given = ", ".join(f"row.x[{j}] = raw[{j}]" for j in range(d))
    main = NUMBERS.replace("row.a = raw[0], row.b = raw[1], row.place = (int)raw[2]", given)
    main = main.replace("raw += 3", f"raw += {d}").replace("%STATE%", "")
    main = main.replace("%INTERVAL%", "m_real lower[1], upper[1];" if ends else "")
    both = "m_interval(&row, lower, upper), out[1] = lower[0], out[2] = upper[0];"
    code, out = (
        compiled(folder, main.replace("%ENDS%", both if ends else "")),
        np.empty((len(X), 3)),
    )
    code.run(pointer(np.ascontiguousarray(X)), ctypes.c_long(len(X)), pointer(out))
    return out.T


@pytest.mark.parametrize("precision", ["double", "float"])
def test_inputs_that_have_come_far_count_as_far(tmp_path, precision):
    model, X = risen()
    found = numbers_of(tmp_path / "far", model, None, X, precision, False)[0]
    close = CLOSE[precision] * np.std(model.predict(X))
    np.testing.assert_allclose(found, model.predict(X), rtol=0, atol=close)


def test_awkward_names_become_c(tmp_path):
    """Columns and labels that are no identifiers, and texts that would end strings or comments."""
    columns = {
        "wind */ speed": np.arange(60.0),
        "int": np.arange(60) % 7.0,
        "2nd??/": np.arange(60),
    }
    columns["*/ é"] = np.array(['a"b', "c\\d", "??=", "日本"] * 15, object)
    prepared = library.preprocess.Preprocessor.plan(columns, standardise="fixed")
    model = library.TableModel(library.AutoClassifier(20, random_state=0), prepared, "what ??/")
    model.partial_fit(columns, columns["*/ é"], classes=['a"b', "c\\d", "??=", "日本"])
    write_c(model, tmp_path / "m.c")
    code = compiled(tmp_path, '#include "m.h"\nint level(const char *t);\n'
                    "int level(const char *t) { return m_column_level(t); }\n")  # fmt: skip
    levels = list(prepared.levels["*/ é"])
    assert [code.level(text.encode()) for text in levels] == [0, 1, 2, 3]
    assert code.level(b"attic") == -1
    labels = (ctypes.c_char_p * 4).in_dll(code, "m_labels")
    assert [label.decode() for label in labels] == model.classes_.tolist()


def test_what_is_said_where_it_cannot_be(folder, tmp_path):
    with pytest.raises(BadInput, match="cannot begin the names of C functions"):
        write_c(library.load(folder / "auto-y.dokl"), tmp_path / "2nd.c")
    (tmp_path / "m.h").write_text("")
    message = fails("export", folder / "auto-y.dokl", tmp_path / "m.c")
    assert "--overwrite replaces it" in message
    assert quoted('a"b\n?') == r'"a\042b\012\077"'
    mine = library.Loss("mine", lambda y, f: (f - y) ** 2 / 2, lambda y, f: f - y)
    X = np.random.default_rng(0).normal(size=(50, 2))
    own = library.KernelRegressor(n_components=10, loss=mine, engine="reference", random_state=0)
    own.fit(X, X[:, 0])
    assert not c_source(own, "m").learns, "a loss that is Python code is no C"


@pytest.mark.parametrize("name", ["gradient", "auto"])
def test_times_go_in_as_seconds(tmp_path, name):
    path, seconds = times_file(tmp_path / "t.csv")
    model, y = tmp_path / "t.dokl", column_of(path, "y")
    dokl("train", path, "--target", "y", "--model", model, "-q", *LEARNERS[name])
    told_of = dokl("export", model, tmp_path / "m.c").stderr
    assert "seconds since 1970, UTC: when" in told_of
    row = "row.when = raw[0], row.a = raw[1], row.kind = (int)raw[2]"
    main = LEARN if name == "gradient" else NUMBERS
    main = main.replace("row.a = raw[0], row.b = raw[1], row.place = (int)raw[2]", row)
    for mark in ("%STATE%", "%INTERVAL%", "%ENDS%"):
        main = main.replace(mark, "")
    code, seconds[7] = compiled(tmp_path, main), np.nan
    columns = {"when": seconds, "a": column_of(path, "a"), "kind": ["u", None, "v"] * 50}
    levels = [{"u": 0, "v": 1}.get(kind, -1) for kind in columns["kind"]]
    raw = np.ascontiguousarray(np.column_stack([seconds, columns["a"], levels]))
    ours, given = library.load(model), {**columns, "when": [*map(iso, seconds)]}
    if name == "gradient":
        code.begin()
        code.learn(pointer(raw), ctypes.c_long(len(raw)), pointer(np.ascontiguousarray(y)))
        ours.partial_fit(given, y)
    out = np.full((len(raw), 3), np.nan)
    code.run(pointer(raw), ctypes.c_long(len(raw)), pointer(out))
    close = CLOSE["float"] * np.std(y) if name == "gradient" else CLOSE["double"] * np.std(y)
    np.testing.assert_allclose(out[:, 0], ours.predict(given), rtol=0, atol=close)
