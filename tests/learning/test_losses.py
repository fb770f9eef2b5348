import math

import numpy as np
import pytest

from dokl import losses
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.losses import Loss, check_loss

BUILTIN = [
    losses.squared(),
    losses.hinge(),
    losses.squared_hinge(),
    losses.logistic(),
    losses.huber(0.3),
    losses.huber(1.0),
    losses.huber(2.5),
    losses.absolute(),
    losses.epsilon_insensitive(0.001),
    losses.epsilon_insensitive(0.101),
    losses.epsilon_insensitive(1.0),
    losses.quantile(0.05),
    losses.quantile(0.5),
    losses.quantile(0.9),
]
each_loss = pytest.mark.parametrize("loss", BUILTIN, ids=lambda loss: f"{loss.name}-{loss.p}")


def targets(loss):
    return np.array([-1.0, 1.0] if loss.margin else [-1.5, 0.0, 0.7, 2.0])


# --- the built-in ones ------------------------------------------------------------------


def test_every_name_makes_its_own_loss():
    assert {loss.name for loss in BUILTIN} == set(losses.BUILTIN)
    for name in losses.BUILTIN:
        assert losses.resolve(name).name == name


@each_loss
def test_interrogation_passes(loss):
    check_loss(loss)


@each_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_and_arrays_agree(loss, dtype):
    y, f = np.meshgrid(targets(loss).astype(dtype), np.linspace(-3, 3, 13).astype(dtype))
    for function in (loss.value, loss.slope):
        whole = function(y, f)
        assert whole.shape == y.shape
        for i in np.ndindex(y.shape):
            assert float(function(float(y[i]), float(f[i]))) == pytest.approx(whole[i], rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "y", "f", "value", "slope"),
    [
        (losses.squared(), 1.0, 3.0, 2.0, 2.0),
        (losses.squared(), 1.0, 0.0, 0.5, -1.0),
        (losses.hinge(), 1.0, 0.25, 0.75, -1.0),
        (losses.hinge(), -1.0, 0.25, 1.25, 1.0),
        (losses.hinge(), -1.0, -2.0, 0.0, 0.0),
        (losses.hinge(), 1.0, 1.0, 0.0, 0.0),  # at the kink Pegasos does not move
        (losses.squared_hinge(), 1.0, -1.0, 2.0, -2.0),
        (losses.squared_hinge(), -1.0, -1.5, 0.0, 0.0),
        (losses.logistic(), 1.0, 0.0, math.log(2), -0.5),
        (losses.logistic(), -1.0, math.log(3), math.log(4), 0.75),
        (losses.huber(2.0), 0.0, 1.0, 0.5, 1.0),
        (losses.huber(2.0), 0.0, 5.0, 8.0, 2.0),
        (losses.huber(2.0), 0.0, -5.0, 8.0, -2.0),
        (losses.absolute(), 1.0, -2.0, 3.0, -1.0),
        (losses.absolute(), 1.0, 1.0, 0.0, 0.0),
        (losses.epsilon_insensitive(0.5), 1.0, 3.0, 1.5, 1.0),
        (losses.epsilon_insensitive(0.5), 1.0, 0.6, 0.0, 0.0),
        (losses.quantile(0.9), 0.0, -2.0, 1.8, -0.9),
        (losses.quantile(0.9), 0.0, 2.0, 0.2, 0.1),
        (losses.quantile(0.9), 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_values_by_hand(loss, y, f, value, slope):
    assert float(loss.value(y, f)) == pytest.approx(value)
    assert float(loss.slope(y, f)) == pytest.approx(slope)


@each_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wild_predictions_overflow_nowhere(loss, dtype):
    f = np.array([-1e4, -1e3, 1e3, 1e4], dtype)
    for y in targets(loss).astype(dtype):
        assert np.isfinite(loss.value(y, f)).all()
        assert np.isfinite(loss.slope(y, f)).all()


@each_loss
def test_what_it_says_about_its_slope_holds(loss):
    f = np.linspace(-50, 50, 4001)
    for y in targets(loss):
        slope = loss.slope(y, f)
        assert (np.abs(np.diff(slope)) <= loss.curvature * np.diff(f) + 1e-12).all()
        at_the_end = abs(loss.slope(y, 1e6)) + abs(loss.slope(y, -1e6))
        assert (at_the_end < 10) == loss.bounded


def test_the_quantile_loss_settles_at_the_quantile():
    y = np.random.default_rng(0).exponential(size=2001)
    grid = np.linspace(0, 5, 2001)
    total = [losses.quantile(0.9).value(y, f).sum() for f in grid]
    assert grid[np.argmin(total)] == pytest.approx(np.quantile(y, 0.9), abs=0.01)


# --- names and parameters ---------------------------------------------------------------


def test_resolve_takes_a_name_or_a_loss():
    mine = losses.huber(3.0)
    assert losses.resolve(mine) is mine
    assert losses.resolve("huber", p=3.0) == mine
    assert mine.spec() == {"name": "huber", "p": 3.0}
    assert losses.hinge().spec() == {"name": "hinge"}


@each_loss
def test_a_description_is_enough_to_make_it_again(loss):
    assert losses.from_spec(loss.spec()) == loss


def test_a_loss_of_ones_own_is_not_in_its_description():
    with pytest.raises(UnknownName, match="unknown loss 'mine'"):
        losses.from_spec(Loss("mine", abs, abs).spec())


@pytest.mark.parametrize(
    ("name", "near"), [("hing", "hinge"), ("Squared", "squared"), ("hubber", "huber")]
)
def test_an_unknown_name_names_the_nearest(name, near):
    with pytest.raises(UnknownName, match=f"did you mean '{near}'"):
        losses.resolve(name)


def test_a_name_like_no_other_lists_the_known_ones():
    with pytest.raises(UnknownName, match=r"unknown loss 'xyz': Known: absolute, .*squared_hinge"):
        losses.resolve("xyz")


@pytest.mark.parametrize("p", [0, -1.0, math.nan, math.inf, True, "1", None])
@pytest.mark.parametrize("make", [losses.huber, losses.epsilon_insensitive])
def test_a_width_must_be_a_positive_number(make, p):
    with pytest.raises(BadInput, match="must be a finite number above 0"):
        make(p)


@pytest.mark.parametrize("p", [0, 1, -0.1, 1.5, math.nan, True, "a", None])
def test_a_quantile_level_lies_between_0_and_1(p):
    with pytest.raises(BadInput, match="'quantile': the level must be between 0 and 1"):
        losses.resolve("quantile", p=p)


def test_numpy_numbers_are_numbers():
    assert losses.huber(np.float32(0.5)).p == 0.5
    assert losses.epsilon_insensitive(np.int64(2)).p == 2.0


@pytest.mark.parametrize(("name", "params"), [("squared", {"p": 1.0}), ("huber", {"delta": 1.0})])
def test_a_parameter_it_does_not_take(name, params):
    with pytest.raises(BadInput, match=f"loss '{name}' takes no parameter {next(iter(params))}"):
        losses.resolve(name, **params)


# --- losses of one's own ----------------------------------------------------------------


def test_a_loss_of_ones_own():
    quartic = Loss("quartic", lambda y, f: (f - y) ** 4 / 4, lambda y, f: (f - y) ** 3)
    check_loss(quartic)
    assert quartic.value(1.0, 3.0) == 4.0
    assert quartic.slope(1.0, 3.0) == 8.0
    assert quartic.spec() == {"name": "quartic"}


@pytest.mark.parametrize(
    ("slope", "complaint"),
    [
        (lambda y, f: y - f, "no subgradient"),  # the sign
        (lambda y, f: 2 * (f - y), "no subgradient"),  # the half
        (lambda y, f: 0.9 * (f - y), "no subgradient"),
        (lambda y, f: math.nan, "not finite"),
    ],
)
def test_a_wrong_slope_is_found(slope, complaint):
    with pytest.raises(BadInput, match=complaint):
        check_loss(Loss("wrong", lambda y, f: (f - y) ** 2 / 2, slope))


def test_a_slope_too_little_wrong_for_the_tangents_is_found():
    wrong = Loss("biased", lambda y, f: (f - y) ** 2 / 2, lambda y, f: f - y + 0.005)
    with pytest.raises(BadInput, match="'biased': slope differs from finite differences"):
        check_loss(wrong)


def test_a_loss_that_is_not_convex_is_found():
    def value(y, f):
        return 1 - math.exp(-((f - y) ** 2))

    def slope(y, f):
        return 2 * (f - y) * math.exp(-((f - y) ** 2))

    with pytest.raises(BadInput, match=r"'bell': slope at .* is no subgradient of a convex"):
        check_loss(Loss("bell", value, slope))


def test_any_subgradient_at_a_kink_will_do():
    # The grid of the check meets this kink exactly, at f = y + 0.001 for y = 0.
    for at_kink in (0.0, 0.5, 1.0):
        loss = Loss(
            "shifted",
            lambda y, f: max(0.0, f - y - 0.001),
            lambda y, f, s=at_kink: float(f - y > 0.001) if abs(f - y - 0.001) > 1e-12 else s,
        )
        check_loss(loss)
