"""Model files with numbers that cannot be: refused with one message, before memory is taken."""

import copy
import functools
import json
import math
import struct
import tracemalloc
import zlib
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

import dokl
from dokl import files
from dokl.base.errors import BadFile, BadInput
from dokl.estimators.saving import DAMAGE
from dokl.learning.features import FeatureMap
from dokl.learning.kernels import Gaussian
from dokl.network import saving as networks
from dokl.network import state
from dokl.tables.models import TableModel
from saved import CASES, started

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(150, 2))
TARGETS = ROWS[:, 0] * ROWS[:, 1]
SIDES = np.where(TARGETS > 0, "a", "b")


def auto(n=150, **params):
    model = dokl.AutoRegressor(n_components=30, random_state=0, **params)
    return model.partial_fit(ROWS[:n], TARGETS[:n])


def nodes():
    """A network whose banks all have maps."""
    model = dokl.NetworkRegressor("complete", n_nodes=2, share="rows", n_components=20,
                                  random_state=0)  # fmt: skip
    return model.partial_fit(ROWS[:80], TARGETS[:80])


MODELS = {
    "nodes": nodes,
    **{name: lambda name=name: started(*CASES[name]) for name in (
        "gaussian", "structured", "named nodes", "three texts", "cooperation", "ring")},
    "experts": auto,
    "one expert": lambda: auto(experts="one"),
    "few rows": lambda: auto(5),
    "classes": lambda: dokl.AutoClassifier(n_components=30, random_state=0).partial_fit(
        ROWS, SIDES, classes=["a", "b"]),
    "table": lambda: TableModel(auto(), None, "y", None, 7, 1),
    "features": lambda: dokl.RandomFeatures(n_components=20, random_state=0).fit(ROWS),
}  # fmt: skip

# Any finite number from 0 on is a step, a width or a memory; any whole number a count of rows.
REALS = {"alpha", "intercept", "sigma", "scale", "offset", "power", "eps", "lam", "bound",
         "memory", "ridge", "map", "traffic", "largest", "surprise", "total", "covered", "weight",
         "a", "b", "den", "amplitude", "noise", "linear", "reference", "own",
         "network"}  # fmt: skip
COUNTERS = {"seen", "mended", "every", "seed", "random_state", "delay", "fewest_rows", "steps",
            "rows", "since", "count"}  # fmt: skip
JUNK = (10**9, -5, -1.5, 1e300, 10**30, "x", [], {"$float": "nan"})
HUGE = 10**9, 1e300, 10**30  # what may ask for memory
# Every number in every place, or one of them in turn.
HOW_MANY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])


def hostile(meta, every):
    """(place, what stands there instead)."""
    for i, at in enumerate(numbers(meta)):
        for junk in JUNK if every else JUNK[i % 8 : i % 8 + 1]:
            yield at, junk


def numbers(value, at=()):
    """Every place of a number, of true or false or of null in nested JSON; of long lists the first
    places and the last, inside networks and of experts the last alone. Names of nodes are not
    numbers, even where they look like it.
    """
    if isinstance(value, dict):
        for key, each in value.items():
            yield from numbers(each, (*at, key)) if (*at, key) != ("nodes",) else ()
    elif isinstance(value, list):
        some = sorted({*range(len(value))[:3], *range(len(value))[-2:]})
        many = at[:1] == ("banks",) or at[:2] in (("bank", "memories"), ("bank", "now"))
        for key in some[-1:] if many else some:
            yield from numbers(value[key], (*at, key))
    elif not isinstance(value, str):
        yield at


def changed(meta, at, junk):
    """The same with `junk` in this place; what is beside the way there is shared, not copied."""
    if not at:
        return junk
    made = copy.copy(meta)
    made[at[0]] = changed(meta[at[0]], at[1:], junk)
    return made


def good(at, junk):
    """Whether this number may stand there."""
    name = next(key for key in reversed(at) if isinstance(key, str))
    if isinstance(junk, str | list | dict) or junk < 0:
        return False
    if name in REALS:
        return True
    largest_pilot = name == "pilots" and at[-1] == max(9, at[-1])
    return isinstance(junk, int) and (name in COUNTERS or largest_pilot)


def refused(path):
    """The message, None where the model was loaded."""
    try:
        dokl.load(path)
    except BadInput as error:
        return str(error)
    return None


@contextmanager
def little_memory(most):
    """Fails where more than so many bytes are taken inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """What the file of a case holds, as (meta, arrays); each model is learned once."""
    folder = tmp_path_factory.mktemp("content")

    @functools.cache
    def read(case):
        return files.read(dokl.save(MODELS[case](), folder / "model.dokl"), "model")

    return lambda case: copy.deepcopy(read(case))


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda number: None)  # hundreds of files, none to be kept
    return tmp_path / "model.dokl"


@pytest.mark.parametrize("case", [name for name in MODELS if name not in ("nodes", "table")])
@HOW_MANY
def test_numbers_that_cannot_be_are_refused_before_memory_is_taken(case, path, content, every):
    meta, arrays = content(case)
    accepted = []
    for at, junk in hostile(meta, every):
        files.write(path, "model", changed(meta, at, junk), arrays)
        # Tracing takes four times as long: only where memory may be asked for.
        with little_memory(100e6) if junk in HUGE else nullcontext():
            message = refused(path)
        if message is None and not good(at, junk):
            accepted.append((at, junk))
        assert message is None or (message.startswith(f"{path}: ") and "\n" not in message)
    assert not accepted


@HOW_MANY
def test_numbers_inside_a_network_that_cannot_be_are_refused(every):
    """As above, without the file around it: there are many."""
    meta, arrays = networks.encode(MODELS["nodes"]().network_)
    accepted, whole = [], {"banks": json.loads(json.dumps(meta))}
    for at, junk in hostile(whole, every):
        try:
            networks.decode(changed(whole, at, junk)["banks"], arrays)
        except DAMAGE:
            continue
        accepted += [] if good(at, junk) else [(at, junk)]
    assert not accepted


@pytest.mark.parametrize("case", ["gaussian", "cooperation", "experts", "few rows", "features"])
@pytest.mark.parametrize("value", [10**9, -5, 0, 31, 1e9, "many", None, True])
def test_n_components_are_those_that_were_fitted(case, value, path, content):
    meta, arrays = content(case)
    files.write(path, "model", changed(meta, ("params", "n_components"), value), arrays)
    with pytest.raises(BadFile, match="n_components is"):
        dokl.load(path)


@pytest.mark.parametrize("case", ["gaussian", "cooperation", "experts", "features"])
def test_a_model_whose_size_was_changed_is_not_written(case, path):
    model = MODELS[case]()
    fitted = model.n_components
    with pytest.raises(BadInput, match=rf"n_components is 50.*fitted with {fitted}: set it back"):
        dokl.save(model.set_params(n_components=50), path)
    assert not path.exists()
    dokl.save(model.set_params(n_components=fitted), path)
    dokl.load(path)


@pytest.mark.parametrize(("d", "D"), [(2, 10**12), (10**12, 20)])
def test_features_that_no_machine_can_hold_are_refused_though_their_fingerprint_is_right(
    d, D, path, content
):
    meta, arrays = content("features")
    told = meta["features"]
    kernel = Gaussian(told["kernel"]["sigma"])
    made = FeatureMap(kernel, d, D, told["variant"], told["seed"]).fingerprint
    meta["features"] = told | {"d": d, "D": D, "fingerprint": made}
    meta["params"]["n_components"], meta["fingerprint"] = min(D, files.MOST), made
    files.write(path, "model", meta, arrays)
    with pytest.raises(BadFile, match="more than this machine has"):
        dokl.load(path)


# -- sizes that arrays claim ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("case", "name", "array"),
    [
        ("experts", "bank.now.maps.0.centres", np.zeros((10**6, 0))),
        ("experts", "bank.total.1", np.zeros((10**6, 0))),
        ("experts", "bank.kept.X", np.zeros((0, 10**9))),
        ("experts", "bank.memories.0.W", np.zeros((10**6, 0))),
        ("experts", "bank.drift.counts", np.zeros((2, 10**6, 1, 0))),
        ("experts", "bank.now.inputs.size", np.zeros(2)),
        ("nodes", "banks.bank.now.maps.0.centres", np.zeros((10**6, 0))),
        ("nodes", "banks.bank.now.places.points", np.zeros((10**6, 0))),
        ("nodes", "banks.nodes.1.own.memories.0.P", np.zeros((4, 0))),
        ("nodes", "banks.nodes.1.own.kept.X", np.zeros((0, 10**9))),
        ("nodes", "banks.nodes.1.corrections.size", np.zeros((10**6, 0))),
        ("nodes", "banks.rows.node", np.full(0, 9)),
        ("nodes", "banks.units.1.size", np.zeros((10**6, 0))),
    ],
)
def test_a_size_without_content_takes_no_memory(case, name, array, path, content):
    meta, arrays = content(case)
    assert name in arrays
    files.write(path, "model", meta, arrays | {name: array})
    with little_memory(50e6), pytest.raises(BadFile):
        dokl.load(path)


def test_texts_take_the_memory_of_their_letters():
    text = {"shape": [40_000], "width": 1 << 16, "values": ["a", "b"] * 20_000}
    with little_memory(10e6):
        made = files._strings(text)
    assert made.tolist() == text["values"]
    assert files._strings({"shape": [2], "width": 9, "values": ["a", "b"]}).dtype == "U9"


@pytest.mark.parametrize("shape", [[-1], [2, -3], [10**30], [1.5], ["x"], [True]])
def test_a_stored_state_with_lengths_that_cannot_be(shape):
    packed = state.pack(state.start({"theta": state.Slot((1, 4))}, K=1))
    body = packed[:-4].replace(b"[1,1,4]", str(shape).replace("'", '"').encode())
    length = len(body) - len(packed[:-4])
    head = struct.pack("<8sI", body[:8], struct.unpack("<I", body[8:12])[0] + length)
    body = head + body[12:]
    with pytest.raises(BadInput, match="damaged"):
        state.unpack(body + struct.pack("<I", zlib.crc32(body)))


@pytest.mark.parametrize("rows", [[-1, 0], [5, -2], [1], [1, 2, 3], [0.5, 1.0]])
def test_counts_of_rows(rows, path, content):
    meta, arrays = content("table")
    files.write(path, "model", meta, arrays | {"extra.rows": np.array(rows)})
    with pytest.raises(BadFile):
        dokl.load(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "1", True, None, 10**400])
def test_real_numbers(value):
    with pytest.raises(BadInput, match=r"x is .*: a finite number of at least 0 is expected"):
        files.real("x", value)
    assert files.real("x", np.float32(0.5)) == 0.5
    assert files.real("x", math.inf, above=True, infinite=True) == math.inf
