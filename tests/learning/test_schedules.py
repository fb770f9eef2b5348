import math

import numpy as np
import pytest

from dokl import schedules
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.schedules import check_schedule

BUILTIN = [
    schedules.constant(1),
    schedules.sqrt(0.5),
    schedules.pegasos(1e-3),
    schedules.pegasos(1e-3, n0=100),
    schedules.inverse_power(2.0, 0.75),
    schedules.inverse_power(2.0, 0.0),
    schedules.normalised(),
    schedules.normalised(1.5, eps=0.1),
]


def test_every_name_makes_its_own_schedule():
    assert {schedule.name for schedule in BUILTIN} == set(schedules.BUILTIN)


@pytest.mark.parametrize("schedule", BUILTIN, ids=lambda s: f"{s.name}-{s.scale}-{s.offset}")
def test_interrogation_passes(schedule):
    check_schedule(schedule)


@pytest.mark.parametrize(
    ("schedule", "n", "q", "mu"),
    [
        (schedules.constant(0.3), 7, 1.3, 0.3),
        (schedules.sqrt(0.5), 1, 1.3, 0.5),
        (schedules.sqrt(0.5), 4, 1.3, 0.25),
        (schedules.pegasos(0.01), 1, 1.3, 100.0),
        (schedules.pegasos(0.01), 5, 1.3, 20.0),
        (schedules.pegasos(0.01, n0=10), 1, 1.3, 100 / 11),
        (schedules.pegasos(0.01, n0=10), 90, 1.3, 1.0),
        (schedules.inverse_power(2.0, 0.75), 16, 1.3, 0.25),
        (schedules.inverse_power(2.0, 0.75, n0=8), 8, 1.3, 0.25),
        (schedules.normalised(0.5, eps=0.0), 9, 2.0, 0.25),
        (schedules.normalised(0.5, eps=0.5), 9, 2.0, 0.2),
    ],
)
def test_formulas_by_hand(schedule, n, q, mu):
    assert schedule(n, q) == pytest.approx(mu, rel=1e-14)


def test_an_offset_of_a_tenth_over_lam_caps_the_first_pegasos_step_at_ten():
    lam = 1e-5
    assert schedules.pegasos(lam)(1) == pytest.approx(1 / lam)
    assert schedules.pegasos(lam, n0=0.1 / lam)(1) == pytest.approx(10, rel=1e-3)


def test_a_schedule_works_on_arrays():
    n = np.arange(1, 5)
    np.testing.assert_allclose(schedules.sqrt(2.0)(n), 2 / np.sqrt(n))


# --- names, numbers, callables ----------------------------------------------------------


def test_resolve_takes_a_number_a_name_a_callable_or_a_schedule():
    mine = schedules.sqrt(0.5)
    assert schedules.resolve(mine) is mine
    assert schedules.resolve("sqrt", mu=0.5) == mine
    assert schedules.resolve(0.5) == schedules.constant(0.5)
    assert schedules.resolve(np.float32(0.5)) == schedules.constant(0.5)
    assert schedules.resolve(lambda n, q: 1 / (n + q))(3, 1.0) == 0.25


def test_spec_holds_the_numbers():
    spec = schedules.pegasos(0.01, n0=3).spec()
    assert spec["name"] == "pegasos"
    assert (spec["scale"], spec["offset"], spec["power"]) == (100.0, 3.0, 1.0)
    assert schedules.custom(lambda n, q: 1.0, name="mine").spec() == {"name": "mine"}


@pytest.mark.parametrize("schedule", BUILTIN, ids=lambda s: f"{s.name}-{s.scale}-{s.offset}")
def test_a_description_is_enough_to_make_it_again(schedule):
    assert schedules.from_spec(schedule.spec()) == schedule


def test_a_schedule_of_ones_own_is_not_in_its_description():
    with pytest.raises(BadInput, match="'mine' is a function"):
        schedules.from_spec(schedules.custom(lambda n, q: 1.0, name="mine").spec())


def test_an_unknown_name_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'pegasos'"):
        schedules.resolve("pegassos")


def test_a_missing_or_misspelled_parameter_is_named():
    with pytest.raises(BadInput, match=r"schedule 'pegasos': .*'lam'"):
        schedules.resolve("pegasos")
    with pytest.raises(BadInput, match=r"schedule 'sqrt': .*'rate'"):
        schedules.resolve("sqrt", rate=1.0)


@pytest.mark.parametrize("bad", [0, -0.5, math.nan, math.inf, True, "1", None])
@pytest.mark.parametrize(
    "make",
    [
        schedules.constant,
        schedules.sqrt,
        schedules.pegasos,
        schedules.normalised,
        lambda mu: schedules.inverse_power(mu, 0.5),
    ],
)
def test_a_step_must_be_a_positive_number(make, bad):
    with pytest.raises(BadInput, match="must be a finite number above 0, got"):
        make(bad)


@pytest.mark.parametrize("bad", [-1e-9, math.nan, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda v: schedules.pegasos(1.0, n0=v),
        lambda v: schedules.inverse_power(1.0, v),
        lambda v: schedules.inverse_power(1.0, 1.0, n0=v),
        lambda v: schedules.normalised(1.0, eps=v),
    ],
)
def test_offsets_powers_and_eps_may_be_zero_but_not_less(make, bad):
    make(0)
    with pytest.raises(BadInput, match="of at least 0, got"):
        make(bad)


@pytest.mark.parametrize("bad", [True, 0, -1.0, [0.5]])
def test_a_bare_value_that_is_no_step(bad):
    with pytest.raises(BadInput, match="step mu"):
        schedules.resolve(bad)


# --- schedules of one's own -------------------------------------------------------------


def test_a_good_custom_schedule_passes():
    check_schedule(schedules.custom(lambda n, q: 1 / (n + q)))


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (lambda n, q: 0.1 * n, "'mine' grows with n"),
        (lambda n, q: 1 - 0.1 * n, "not finite and positive"),
        (lambda n, q: 0.0, "not finite and positive"),
        (lambda n, q: math.nan, "not finite and positive"),
        (lambda n, q: 1.0 if n < 50 else math.inf, "not finite and positive"),
    ],
)
def test_interrogation_finds_a_bad_custom_schedule(function, complaint):
    with pytest.raises(BadInput, match=complaint):
        check_schedule(schedules.custom(function, name="mine"))
