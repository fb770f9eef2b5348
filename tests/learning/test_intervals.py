"""The width of intervals, online."""

import math

import numpy as np
import pytest

from dokl.base.errors import BadInput
from dokl.learning import intervals


def drawn(n, seed=0, df=3):
    return np.abs(np.random.default_rng(seed).standard_t(df, size=(n, 1)))


def test_the_formula_as_plain_loops():
    scores, a = drawn(300)[:, 0], 1 - 0.9
    q, energy, expected = 1.6448536269514722, 30 * 0.9 * 0.1, []
    for score in scores.tolist():
        expected.append(q)
        g = a - 1 if score > q else a
        energy = (1 - 1 / 2000) * energy + g * g
        q = max(0.0, q - 2 * g / math.sqrt(3 * energy))
    tracker, used = intervals.follow_scores(intervals.start((0.9,)), scores[:, None])
    np.testing.assert_allclose(used[:, 0, 0], expected, rtol=1e-12)
    assert tracker.width[0, 0] == pytest.approx(q, rel=1e-12)


def test_cuts_do_not_matter_to_the_last_bit():
    scores = np.hstack([drawn(400), drawn(400, seed=1)])
    whole, used = intervals.follow_scores(intervals.start(outputs=2), scores)
    tracker, parts = intervals.start(outputs=2), []
    for rows in np.split(scores, [1, 2, 57, 58, 300]):
        tracker, part = intervals.follow_scores(tracker, rows)
        parts.append(part)
    assert np.array_equal(np.concatenate(parts), used)
    assert np.array_equal(tracker.width, whole.width)
    assert np.array_equal(tracker.energy, whole.energy)


@pytest.mark.parametrize("df", [2, 100])
def test_every_level_is_kept_whatever_the_tails(df):
    scores = drawn(8000, df=df)
    _, used = intervals.follow_scores(intervals.start(), scores)
    covered = (scores[:, :, None] <= used)[1600:, 0].mean(axis=0)
    np.testing.assert_allclose(covered, intervals.LEVELS, atol=0.004)


def test_scores_that_double_late_are_covered_again():
    scores = drawn(16_000, df=100)
    scores[12_000:] *= 2  # the tracker remembers 2,000 rows: later would be the same
    _, used = intervals.follow_scores(intervals.start((0.9,)), scores)
    covered = (scores <= used[:, :, 0])[:, 0]
    assert covered[12_000:14_000].mean() >= 0.87
    assert covered[14_000:].mean() == pytest.approx(0.9, abs=0.01)


def test_no_target_changes_nothing_and_an_infinite_score_is_a_miss():
    tracker, _ = intervals.follow_scores(intervals.start(outputs=2), np.hstack([drawn(50)] * 2))
    after, _ = intervals.follow_scores(tracker, np.array([[math.nan, math.inf]]))
    assert np.array_equal(after.width[0], tracker.width[0])
    assert np.array_equal(after.energy[0], tracker.energy[0])
    assert (after.width[1] > tracker.width[1]).all()
    assert np.isfinite(after.width).all()


def test_widths_between_levels_follow_the_normal_law():
    tracker = intervals.start()
    assert intervals.width_at(tracker, 0.9)[0] == pytest.approx(1.6448536269514722)
    assert intervals.width_at(tracker, 0.7)[0] == pytest.approx(1.0364333894937898)
    assert intervals.width_at(tracker, 0.999)[0] == pytest.approx(3.2905267314919255)


@pytest.mark.parametrize("level", [0.0, 1.0, 90, -0.1, math.nan])
def test_a_coverage_is_between_0_and_1(level):
    with pytest.raises(BadInput, match="between 0 and 1"):
        intervals.start((level,))
