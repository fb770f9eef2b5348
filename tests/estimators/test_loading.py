"""Model files that must not load, and those of earlier versions, which must."""

import copy
import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest

import dokl
from dokl import files, schedules
from dokl.base.errors import BadFile, BadInput, DoklError, FingerprintMismatch
from dokl.learning.kernels import Matern
from saved import CASES, X, scores, started, stations

pytestmark = pytest.mark.usefixtures("short_searches")

HERE = Path(__file__).parents[1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model"


def test_a_file_of_another_kind(path):
    files.write(path, "checkpoint", {}, {})
    with pytest.raises(BadFile, match="kind 'checkpoint', and not a 'model'"):
        dokl.load(path)


class Trap:
    """Makes a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_and_not_run(path, tmp_path):
    path.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(BadFile, match="not a file of dokl's"):
        dokl.load(path)
    assert not (tmp_path / "sprung").exists()


def test_truncated_models(path):
    whole = started(*CASES["named nodes"]).save(path).read_bytes()
    for tenth in range(10):
        path.write_bytes(whole[: len(whole) * tenth // 10])
        with pytest.raises(BadFile, match=r"truncated|empty"):
            dokl.load(path)


def test_flipped_bits_never_give_another_model(path):
    model = started(*CASES["network of classifiers"])
    whole = bytearray(model.save(path).read_bytes())
    expected, rng = scores(model), np.random.default_rng(3)
    for at in rng.integers(len(whole), size=300):
        damaged = whole.copy()
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            loaded = dokl.load(path)
        except BadInput:
            continue
        np.testing.assert_array_equal(scores(loaded), expected)


def places(value, at=()):
    """Every place in nested JSON."""
    yield at
    inside = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    for key, each in inside:
        yield from places(each, (*at, key))


def changed(meta, at, junk):
    meta = copy.deepcopy(meta)
    target = meta
    for key in at[:-1]:
        target = target[key]
    if junk is places:
        del target[at[-1]]
    else:
        target[at[-1]] = junk
    return meta


@pytest.mark.parametrize("case", ["named nodes", "objects"])
def test_any_nonsense_in_a_well_formed_file_is_an_error_of_ours(case, path, monkeypatch):
    """Files that pass the checksum and yet make no sense: by a bug elsewhere, or by malice."""
    monkeypatch.setattr("os.fsync", lambda number: None)  # two thousand files, none to be kept
    meta, arrays = files.read(started(*CASES[case]).save(path), "model")
    for at in list(places(meta))[1:]:
        for junk in (places, None, -1, "x", [], {}, {"$tuple": 3}, 0.5, 2**40):
            files.write(path, "model", changed(meta, at, junk), arrays)
            try:
                dokl.load(path).predict(X)
            except DoklError:
                continue
    for name in arrays:
        for junk in (None, np.zeros(0), np.full(arrays[name].shape, -1), np.array(["x"])):
            others = {key: value for key, value in arrays.items() if key != name}
            files.write(path, "model", meta, others if junk is None else others | {name: junk})
            try:
                dokl.load(path).predict(X)
            except DoklError:
                continue


def test_another_seed_is_a_mismatch(path):
    meta, arrays = files.read(started(*CASES["gaussian"]).save(path), "model")
    files.write(path, "model", changed(meta, ("features", "seed"), 4), arrays)
    with pytest.raises(FingerprintMismatch, match=r"model: the saved feature map.*mixed"):
        dokl.load(path)


def test_other_classes_are_a_mismatch(path):
    meta, arrays = files.read(started(*CASES["text"]).save(path), "model")
    files.write(path, "model", meta, arrays | {"classes": np.array(["ham", "spam"])})
    with pytest.raises(FingerprintMismatch, match="the saved model"):
        dokl.load(path)


def test_a_parameter_of_the_future(path):
    meta, arrays = files.read(started(*CASES["gaussian"]).save(path), "model")
    files.write(path, "model", changed(meta, ("params", "momentum"), 0.9), arrays)
    with pytest.raises(BadFile, match=r"no parameter momentum here.*upgrade"):
        dokl.load(path)


def test_an_estimator_of_the_future(path):
    meta, arrays = files.read(started(*CASES["gaussian"]).save(path), "model")
    files.write(path, "model", changed(meta, ("class",), "KernelRanker"), arrays)
    with pytest.raises(BadFile, match=r"a KernelRanker is unknown to this dokl: upgrade"):
        dokl.load(path)


def test_keys_of_the_future_are_ignored(path):
    model = started(*CASES["gaussian"])
    meta, arrays = files.read(model.save(path), "model")
    for at in (("new",), ("features", "new"), ("exchange", "new")):
        meta = changed(meta, at, {"a": 1})
    files.write(path, "model", meta, arrays | {"new": np.zeros(3)})
    np.testing.assert_array_equal(dokl.load(path).predict(X), model.predict(X))


# -- files written by earlier versions ---------------------------------------------------------
GOLDEN = HERE / "golden" / "model-v1.safetensors"
GOLDEN_HASH = "8f9f02443e10627fefd28b3eca8e2f667af7828f27922f40300e844e01b7254d"
GOLDEN_ROWS = np.array([[0.5, -1.0], [-0.25, 0.75], [1.75, -1.5], [0.0, 0.0]])
GOLDEN_LABELS = ["ferner", "näher", "mitten", "näher"]
GOLDEN_SCORES = {
    None: [
        [0.570202, -2.60964, -0.808377],
        [-0.513841, -3.266994, 0.7176],
        [-0.91358, 0.581988, -2.342842],
        [-3.147576, -3.246323, 3.138079],
    ],
    "c": [
        [0.578977, -2.670611, -0.758723],
        [-0.497772, -3.328707, 0.762356],
        [-0.905569, 0.521018, -2.292356],
        [-3.139603, -3.305846, 3.186942],
    ],
}


def golden_model():
    """What tests/golden/model-v1.safetensors was made from; never write that file again."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3000, 2))
    y = np.array(["näher", "ferner", "mitten"])[np.digitize((rows**2).sum(1), [1.0, 2.5])]
    model = dokl.DiffusionClassifier(
        stations(), kernel=Matern(1.25, nu=1.5), n_components=30, features="paired",
        loss="logistic", step=schedules.inverse_power(2.0, 0.3, n0=2.0), alpha=1e-3,
        average="uniform", intercept=True, order="cta", every=2, random_state=11,
    )  # fmt: skip
    return model.partial_fit(rows, y, classes=np.unique(y))


def test_the_golden_file_is_as_it_was():
    assert hashlib.sha256(GOLDEN.read_bytes()).hexdigest() == GOLDEN_HASH


def test_models_of_format_1_stay_readable():
    model = dokl.load(GOLDEN)
    assert model.classes_.tolist() == ["ferner", "mitten", "näher"]
    assert model.nodes_.tolist() == ["a", "b", "c", "d"]
    assert model.fingerprint_ == "b259108ce69e8eca"
    assert model.predict(GOLDEN_ROWS).tolist() == GOLDEN_LABELS
    for node, expected in GOLDEN_SCORES.items():
        found = model.decision_function(GOLDEN_ROWS, nodes=node)
        np.testing.assert_allclose(found, expected, atol=2e-5)
    assert model.kernel == Matern(1.25, nu=1.5)
    assert model.schedule_ == schedules.inverse_power(2.0, 0.3, n0=2.0)
    assert (model.state_.clock, model.state_.count.tolist()) == (750, [750] * 4)
    model.partial_fit(GOLDEN_ROWS, GOLDEN_LABELS)
    assert model.state_.clock == 751


def test_what_old_readers_need_is_still_written(path):
    """If this fails on purpose, raise files.FORMAT, and add a golden file beside the old one."""
    old, old_arrays = files.read(GOLDEN, "model")
    new, new_arrays = files.read(golden_model().save(path), "model")
    assert set(places(old)) <= set(places(new))
    assert old["params"] == {name: new["params"][name] for name in old["params"]}
    for name, array in old_arrays.items():
        assert (array.shape, array.dtype) == (new_arrays[name].shape, new_arrays[name].dtype), name


# -- files from the time when NetworkRegressor was two algorithms ---------------------------------
# Made by the last commit that had `learner=`, from these rows; never write these files again.
ROWS = np.random.default_rng(5).normal(size=(40, 1))
TARGETS = np.sin(2 * ROWS[:, 0]) + np.arange(40) % 2
ASKED = np.array([[0.5], [-0.25], [1.75]])
OLD_HASHES = {
    "gradient": "d8793485e7fb82cecfa23520e886c6d695195164954d2f3f9e944112a3acc487",
    "cooperation": "3ec7c8c0af1b7d3e02079fa652cb233c7d3cb2cf2231f673e3cdd2a55f9cd219",
    "classes": "2db784d05e3acb81f6d4c322e597b2c46fb05588dfa2f7914d638df6064abffc",
}


def old_network(name):
    """NetworkRegressor(path_graph("ab"), random_state=4).partial_fit, rows in turn: of "gradient"
    with learner="gradient"; of "cooperation", and of "classes" with labels, with n_components=3.
    """
    path = HERE / "golden" / f"network-{name}.safetensors"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == OLD_HASHES[name]
    return dokl.load(path)


def test_an_old_network_by_gradients_is_a_diffusion(path):
    model = old_network("gradient")
    assert type(model) is dokl.DiffusionRegressor
    assert (model.n_components, model.every, model.alpha) == (500, 1, 0.0)  # two were "auto"
    assert (model.nodes_.tolist(), model.state_.clock) == (["a", "b"], 20)
    assert model.fingerprint_ == "52ce8769d3811f81"
    expected = [1.13654983, 0.118008144, 0.556027472]
    np.testing.assert_allclose(model.predict(ASKED, nodes="b"), expected, atol=2e-5)
    new = dokl.DiffusionRegressor(model.graph, random_state=4)
    new.partial_fit(ROWS, TARGETS, nodes=list("ab") * 20)
    np.testing.assert_allclose(new.predict(ASKED), model.predict(ASKED), atol=2e-5)
    again = dokl.load(model.save(path))
    assert type(again) is dokl.DiffusionRegressor
    assert repr(again.get_params()["n_components"]) == "500"
    model.partial_fit(ROWS[:4], TARGETS[:4], nodes=list("abab"))
    again.partial_fit(ROWS[:4], TARGETS[:4], nodes=list("abab"))
    np.testing.assert_array_equal(again.predict(ASKED), model.predict(ASKED))


def test_an_old_network_that_cooperates_is_a_network():
    model = old_network("cooperation")
    assert type(model) is dokl.NetworkRegressor
    assert (model.n_components, model.every) == (3, 1)  # one was "auto"
    assert model.fingerprint_ == "ca9d663fcc15bb00"
    expected = [0.924257764, 0.446771799, 2.116549009]
    np.testing.assert_allclose(model.predict(ASKED, nodes="b"), expected, atol=1e-6)
    together = [0.961784008, 0.398798873, 1.973654638]
    np.testing.assert_allclose(model.predict(ASKED), together, atol=1e-6)
    # Its nodes had other learners, which are no more.
    learn = {"X": ROWS[:4], "y": TARGETS[:4], "nodes": list("abab")}
    for what in (lambda: model.partial_fit(**learn), lambda: model.predict_interval(ASKED),
                 lambda: model.prequential(**learn), lambda: model.cooperation_):  # fmt: skip
        with pytest.raises(BadInput, match=r"by an earlier version of dokl.*Train it again from"):
            what()
    np.testing.assert_allclose(model.predict(ASKED, nodes="b"), expected, atol=1e-6)
    assert not dokl.TableModel(model).has_intervals
    fresh = model.fit(ROWS, TARGETS, nodes=list("ab") * 20)
    assert np.isfinite(fresh.predict_interval(ASKED)).all()


def test_old_networks_of_classifiers():
    model = old_network("classes")
    assert type(model) is dokl.NetworkClassifier
    assert model.classes_.tolist() == ["down", "up"]
    expected = [[0.635408819, 0.364591181], [0.769113126, 0.230886874], [0.181190566, 0.818809434]]
    np.testing.assert_allclose(model.predict_proba(ASKED, nodes="b"), expected, atol=1e-6)
    assert type(dokl.load(GOLDEN)) is dokl.DiffusionClassifier
    table = dokl.load(HERE / "golden" / "table-network-v1.dokl")
    assert type(table.estimator).__name__.startswith("Diffusion")


# -- banks from before there was one codec --------------------------------------------------------
# Made by the last commit with names of its own for the arrays of banks; never write these again.
BANK_HASHES = {
    "numbers": "db9318f05af38b8eb9c733c4da1fede95efcb39b0bc7b037b050dcabe6515cd5",
    "classes": "f52371df1961bfd522d6a63976667cf91720b110a35ed6e6cf05e5483fd63dd2",
    "groups": "c5f1ae8f21a6914d576878ff2b12e35be5f44e2bb15c7294e22174da24ac0308",
    "sums": "d5020bf0e21c035650b01d7fec6c8171c9dc27e12c2f7711c38fa3c5ba2ee7a2",
}
BANK_ANSWERS = {
    "numbers": [-0.196078939, 0.236153652, -0.415019974],
    "classes": [0.577049729, 0.184164042, 0.223703927],
    "groups": [-1.229625268, 4.076473667, 2.491652438],
    "sums": [-0.158708629, 0.268850452, -0.452164767],
}
BANK_ROWS = {"numbers": 123, "classes": 70, "groups": 90, "sums": 64}


@pytest.mark.parametrize("name", BANK_HASHES)
def test_banks_of_earlier_versions_predict_and_learn_on(name):
    """AutoRegressor(4, random_state=2).partial_fit on BANK_ROWS; "numbers" while a pilot was
    pending, "groups" with groups=2, "sums" with experts="one"; "classes": an AutoClassifier.
    """
    path, seen = HERE / "golden" / f"bank-{name}.safetensors", BANK_ROWS[name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == BANK_HASHES[name]
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(170, 2))
    y = np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.1 * rng.normal(size=170)
    asked = np.array([[0.5, -1.0], [-0.25, 0.75], [1.75, 0.0]])
    if name == "groups":
        rows, asked = (np.column_stack(p) for p in ((rows, np.arange(170) % 5), (asked, [0, 3, 9])))
        y = y + rows[:, 2]
    if name == "classes":
        y = np.where(y > 0.5, "up", np.where(y < -0.5, "down", "level"))
    model = dokl.load(path)
    assert model.bank_.seen == seen
    assert (model.bank_.pending is not None) is (name == "numbers")
    found = model.predict_proba(asked)[:, 0] if name == "classes" else model.predict(asked)
    np.testing.assert_allclose(found, BANK_ANSWERS[name], atol=1e-6)
    model.partial_fit(rows[seen:], y[seen:])
    assert model.bank_.seen == 170
    assert model.score(rows, y) > 0.6


def test_networks_that_hold_whole_matrices_predict_and_learn_on():
    """Made by the last commit whose files of networks had every matrix and room in lists; never
    write it again. NetworkRegressor(path_graph("ab"), n_components=2, random_state=4), by sums.
    """
    path = HERE / "golden" / "network-banks.safetensors"
    digest = "f6f1b5189b78fd14c2ecda60c847e88181c823f680a60f57fbe78b13269488a1"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    model = dokl.load(path)
    expected = [1.654141881, 0.745216659, 1.244757955]
    np.testing.assert_allclose(model.predict(ASKED, nodes="b"), expected, atol=1e-6)
    together = [0.677789034, -0.080838433, 1.343080971]
    np.testing.assert_allclose(model.predict(ASKED), together, atol=1e-6)
    rows = np.random.default_rng(8).normal(size=(30, 1))
    model.partial_fit(rows, np.sin(2 * rows[:, 0]), nodes=list("ab") * 15)
    assert model.network_.seen.tolist() == [75, 75]
    assert np.isfinite(model.predict_interval(rows, nodes="b")).all()
