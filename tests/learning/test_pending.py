"""Pilots in the background: which row adopts a map, who does the work, and what interrupts it."""

import copy
import pickle
import threading
import time
import weakref
from dataclasses import replace

import numpy as np
import pytest

import dokl
from dokl import AutoClassifier, AutoRegressor, NetworkRegressor
from dokl.base import background
from dokl.learning import scales
from dokl.learning.experts import bank as banks
from dokl.learning.experts import learn as learning
from dokl.learning.experts import pending, saving
from dokl.learning.experts.kinds import CLASS_PILOTS, PILOTS, Settings, begin_row, one
from variants import first

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(5)
X = RNG.normal(size=(600, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=600)
LABELS = np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")
SMALL = {"n_components": 30, "random_state": 0}


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """Nobody else's work is under way, or holds memory."""
    background.wait_until_idle()
    monkeypatch.setattr(background._shared, "reserved", weakref.WeakSet())


def regressor(**more):
    return AutoRegressor(**SMALL, **more)


def fed(model, rows, cut=1):
    """What was predicted for rows of the stream before they were learned, so many at a time."""
    rows = np.asarray(rows)
    pieces = [rows[i : i + cut] for i in range(0, len(rows), cut)]
    return np.concatenate([model.prequential(X[piece], Y[piece]) for piece in pieces])


# -- which row ---------------------------------------------------------------------------------
def numbers(n):
    return regressor(experts="one"), {}, Y[:n], PILOTS


def classes(n):
    model = AutoClassifier(experts="one", **SMALL)
    return model, {"classes": ["no", "yes"]}, LABELS[:n], CLASS_PILOTS


@pytest.mark.parametrize("make", [numbers, classes])
@pytest.mark.parametrize("cut", first(7, 64, 300))
def test_the_row_of_a_new_map_depends_on_the_count_alone(make, cut):
    n = 300
    one_by_one, given, y, pilots = make(n)
    maps = []
    for i in range(n):
        one_by_one.partial_fit(X[i : i + 1], y[i : i + 1], **given)
        maps.append(one_by_one.fingerprint_)
    changes = [i + 1 for i in range(1, n) if maps[i] != maps[i - 1]]
    assert changes == [pilot for pilot in pilots if pilot <= n]
    other, given, _, _ = make(n)
    for i in range(0, n, cut):
        other.partial_fit(X[:n][i : i + cut], y[i : i + cut], **given)
        assert other.fingerprint_ == maps[min(n, i + cut) - 1]


@pytest.mark.parametrize("grouped", [False, True])
def test_banks_of_networks_and_of_any_pilots_follow_the_same_rule(grouped):
    rows = np.hstack([X, np.arange(600)[:, None] % 3]) if grouped else X
    settings = Settings(one(), most=20, pilots=(1, 2, 40, 41, 60), kept=50, grouped=grouped)
    known, changes = banks.start(rows.shape[1], 1, settings), []
    for i in range(80):
        after, _ = learning.learn(known, rows[i : i + 1], Y[i : i + 1, None])
        changes += [i + 1] if after.now is not known.now else []
        known = after
    assert changes == [1, 2, 40, 41, 60]
    whole, _ = learning.learn(banks.start(rows.shape[1], 1, settings), rows[:80], Y[:80, None])
    assert banks.fingerprint(whole) == banks.fingerprint(known)
    assert whole.seen == known.seen == 80
    np.testing.assert_array_equal(whole.kept.all()[0], known.kept.all()[0])


@pytest.mark.slow
def test_the_speed_of_the_background_changes_no_bit(monkeypatch):
    expected = fed(regressor(), range(300), 5)
    slow = scales.learn_scales
    with monkeypatch.context() as patch:
        patch.setattr(scales, "learn_scales", lambda *a, **how: time.sleep(0.3) or slow(*a, **how))
        np.testing.assert_array_equal(fed(regressor(), range(300), 5), expected)
    with monkeypatch.context() as patch:
        patch.setattr(pending, "MOST_BYTES", 0.0)  # all work is done when it is needed
        np.testing.assert_array_equal(fed(regressor(), range(300), 5), expected)


def test_a_model_that_begins_late_adopts_at_the_same_row():
    model = regressor().fit(X[:248], Y[:248])  # after the row where the pilot would begin
    before = model.bank_.now
    fed(model, [248])
    assert model.bank_.now is before
    fed(model, [249])
    assert model.bank_.now is not before


# -- who works ---------------------------------------------------------------------------------
def test_row_by_row_the_caller_never_learns_scales_itself(monkeypatch):
    seen, learn = [], scales.learn_scales

    def heard(*given, **how):
        seen.append((len(given[0]), threading.current_thread()))
        return learn(*given, **how)

    monkeypatch.setattr(scales, "learn_scales", heard)
    model = regressor()
    for i in range(300):
        model.predict(X[i : i + 1]) if i else None
        model.partial_fit(X[i : i + 1], Y[i : i + 1])
    rows = [n for n, _ in seen]  # twice each: of inputs, and of their ranks
    assert rows[::2] == rows[1::2] == [begin_row(pilot) for pilot in PILOTS if pilot < 300]
    assert threading.current_thread() not in [thread for _, thread in seen]


def test_new_experts_have_learned_every_row():
    settings = Settings(one(), most=30, pilots=(500,), sums=True)
    known, _ = learning.learn(banks.start(3, 1, settings), X[:499], Y[:499, None])
    assert known.now is None
    assert len(known.pending.X) == 499 - begin_row(500)
    known, _ = learning.learn(known, X[499:500], Y[499:500, None])
    assert known.pending is None
    assert known.sums[0].rows == 500
    Z = banks.features(known, known.now, X[:500], [0])[0]
    zz = known.sums[0].zz
    np.testing.assert_allclose(np.tril(zz), np.tril(Z.T @ Z), rtol=1e-8, atol=1e-8)
    assert not len(background._shared.reserved)  # nothing is held after adoption


def test_memory_of_pending_work_is_bounded(monkeypatch):
    """Beyond the bound, work is done when it is needed, by whoever needs it."""
    monkeypatch.setattr(pending, "MOST_BYTES", 2.5 * banks.matrix_bytes(Settings().kinds, 30))
    models = [regressor() for _ in range(4)]
    for model in models:
        fed(model, range(123), 41)
    begun = [model.bank_.pending.work.holds is not None for model in models]
    assert begun == [True, True, False, False]
    told = [fed(model, range(123, 140)) for model in models]
    for each in told[1:]:
        np.testing.assert_array_equal(each, told[0])


# -- interruptions -----------------------------------------------------------------------------
def test_a_pilot_that_fails_raises_at_adoption_and_changes_nothing(monkeypatch):
    model, expected = regressor(), fed(regressor(), range(150))
    fed(model, range(120))

    def fails(*given, **how):
        raise MemoryError("no room for scales")

    with monkeypatch.context() as patch:
        patch.setattr(scales, "learn_scales", fails)
        np.testing.assert_array_equal(fed(model, range(120, 124)), expected[120:124])
        before = model.bank_
        for _ in range(2):
            with pytest.raises(MemoryError, match="no room for scales"):
                fed(model, [124])
            assert model.bank_ is before
    np.testing.assert_array_equal(fed(model, range(124, 150)), expected[124:])


def test_an_interrupt_while_waiting_leaves_the_model_as_it_was(monkeypatch):
    model, expected = regressor(), fed(regressor(), range(150))
    fed(model, range(122))
    before = model.bank_

    def interrupts(usual):
        def interrupted(*given):
            if threading.current_thread() is threading.main_thread():  # where Ctrl-C arrives
                raise KeyboardInterrupt
            return usual(*given)

        return interrupted

    for name, rows in (("wait", range(122, 124)), ("result", range(122, 130))):
        with monkeypatch.context() as patch:
            patch.setattr(background.Task, name, interrupts(getattr(background.Task, name)))
            with pytest.raises(KeyboardInterrupt):
                fed(model, rows, len(rows))
        assert model.bank_ is before
    np.testing.assert_array_equal(fed(model, range(122, 150)), expected[122:])


def saved(model, tmp_path):
    return dokl.load(dokl.save(model, tmp_path / "m.dokl", exact=True))


@pytest.mark.parametrize("stop", first(245, 123, 470, 499, always=2))
@pytest.mark.parametrize(
    "how",
    [saved, lambda model, _: pickle.loads(pickle.dumps(model)), lambda m, _: copy.deepcopy(m)],
)
def test_a_model_saved_while_a_pilot_is_pending_continues_to_the_same_bits(tmp_path, stop, how):
    model = regressor(experts="one")
    fed(model, range(stop), 50)
    assert model.bank_.pending is not None
    other = how(model, tmp_path)
    assert other.bank_.seen == stop
    expected, found = (fed(each, range(stop, 540), 9) for each in (model, other))
    np.testing.assert_array_equal(found, expected)
    assert other.fingerprint_ == model.fingerprint_


def test_a_full_sample_continues_as_well():
    """Rows in it are written over; those of a pending pilot are not."""
    settings = Settings(one(), most=20, pilots=(30, 200, 400), kept=60)
    known, _ = learning.learn(banks.start(3, 1, settings), X[:390], Y[:390, None])
    read = saving.decode(*saving.encode(known))
    assert len(read.pending.X) == 390 - begin_row(400)
    both = [learning.learn(each, X[390:450], Y[390:450, None]) for each in (known, read)]
    np.testing.assert_array_equal(both[0][1].mean, both[1][1].mean)
    np.testing.assert_array_equal(both[0][0].kept.all()[0], both[1][0].kept.all()[0])


@pytest.mark.parametrize("change", ["seen", "more", "pilots"])
def test_rows_of_a_pilot_that_cannot_be_are_refused(change):
    known, _ = learning.learn(banks.start(3, 1, Settings(one(), 20)), X[:247], Y[:247, None])
    meta, arrays = saving.encode(known)
    if change == "seen":
        meta["kept"]["seen"] = 245
        arrays = {**arrays, "pending.X": np.zeros((9, 3)), "pending.Y": np.zeros((9, 1))}
        arrays["pending.weight"] = np.ones(9)
    elif change == "more":
        arrays = {**arrays, "pending.X": np.zeros((1, 3))}
    else:
        meta["settings"]["pilots"] = [500]
    with pytest.raises(ValueError, match=r"cannot be|pending"):
        saving.decode(meta, arrays)


def test_branches_of_one_bank_are_both_right():
    settings = Settings(one(), most=20)
    known, _ = learning.learn(banks.start(3, 1, settings), X[:470], Y[:470, None])
    y = Y[:, None]
    apart = [learning.learn(copy.deepcopy(known), X[470:], sign * y[470:]) for sign in (1, -1)]
    here = [learning.learn(known, X[470:], sign * y[470:]) for sign in (1, -1)]
    for (_, expected), (_, found) in zip(apart, here, strict=True):
        np.testing.assert_array_equal(found.mean, expected.mean)


def test_a_network_saved_while_pilots_are_pending_continues(tmp_path):
    node = np.arange(390) % 3
    model = NetworkRegressor("ring", n_nodes=3, n_components=20, random_state=0)
    model.partial_fit(X[:369], Y[:369], nodes=node[:369])
    other = dokl.load(dokl.save(model, tmp_path / "network.safetensors", exact=True))
    for each in (model, other):
        before = each.network_.nodes[0].own
        assert before.pending is not None
        each.partial_fit(X[369:390], Y[369:390], nodes=node[369:])
        assert each.network_.nodes[0].own.now is not before.now
    expected, found = (each.predict(X[:30], nodes=node[:30]) for each in (model, other))
    np.testing.assert_array_equal(found, expected)


def test_a_frozen_model_has_no_pilot_any_more():
    model = regressor(experts="one")
    fed(model, range(247), 29)
    assert model.bank_.pending is not None
    mark = model.fresh().fingerprint_
    assert model.bank_.pending is None
    assert model.bank_.seen == 247
    fed(model, range(247, 300))
    assert model.fingerprint_ == mark
    assert replace(model.bank_.settings, pilots=PILOTS) == regressor(experts="one")._settings()
