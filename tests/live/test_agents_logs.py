"""Small parts of an agent: the curve of its error, its log, its clock."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from dokl.base.errors import UnknownName
from dokl.learning.metrics import MOST_BINS
from dokl.live.agent import logs
from dokl.live.agent.clock import Clock, JumpWatch
from dokl.live.agent.curve import LossCurve
from dokl.live.agent.logs import KINDS, Log
from memory_agents import Lines


def test_the_curve_is_bounded_and_keeps_the_mean():
    curve, rng = LossCurve(), np.random.default_rng(0)
    losses = rng.uniform(size=200_000)
    for start_ in range(0, len(losses), 70):
        piece = losses[start_ : start_ + 70]
        curve.add(piece, start_ + len(piece))
    assert MOST_BINS / 2 - 1 <= len(curve.points) < MOST_BINS
    learned, values = zip(*curve.points, strict=True)
    assert list(learned) == sorted(learned)
    assert abs(np.mean(values) - losses.mean()) < 0.01
    np.testing.assert_allclose(values[0], losses[: learned[0]].mean())
    assert abs(curve.recent - 0.5) < 0.1


def test_a_curve_forgets_old_errors():
    curve = LossCurve()
    curve.add(np.full(1000, 100.0), 1000)
    curve.add(np.full(400, 1.0), 1400)
    assert curve.recent == 1.0
    curve.add(np.zeros(0), 1400)
    curve.add(np.array([np.inf]), 1401)
    assert curve.recent == 1.0


class Later(Clock):
    """A clock by which every line is a minute after the one before."""

    minutes = 0

    def now(self):
        self.minutes += 1
        return 60.0 * self.minutes


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("info", ["started", "neighbour lost", "not stored"]),
        ("warning", ["neighbour lost", "not stored"]),
        ("error", ["not stored"]),
    ],
)
def test_lines_have_a_level_and_lesser_ones_are_left_out(level, written):
    lines = Lines()
    log = Log("a", Later(), lines, level)
    log("started")
    log("neighbour lost", neighbour="b")
    log("not stored", often=True, reason="the disk is full")
    assert lines.events() == written
    levels = [json.loads(line)["level"] for line in lines.getvalue().splitlines()]
    assert levels == ["info", "warning", "error"][-len(written) :]
    with pytest.raises(UnknownName, match="did you mean 'warning'"):
        Log("a", Clock(), lines, "warn")


def test_every_event_that_has_a_level_is_one_that_is_written():
    texts = [path.read_text() for path in Path(logs.__file__).parents[1].rglob("*.py")]
    source = "\n".join(text for text in texts if "_LEVEL" not in text)
    for events in logs.EVENTS.values():
        assert [event for event in events if f'"{event}"' not in source] == []


def curve_of(losses):
    """A curve of 50 s of usual losses around 1, and then of these: 20 rows every half second."""
    curve, rng = LossCurve(), np.random.default_rng(3)
    usual = rng.exponential(size=(100, 20))
    for turn, some in enumerate([*usual, *losses]):
        curve.add(np.asarray(some, float), 20 * (turn + 1), 0.5 * turn)
    return curve


def test_losses_that_stay_beyond_all_that_was_usual_raise_an_alarm_which_ends():
    broken = np.full((40, 20), 1e4)
    curve = curve_of(broken)
    assert curve.alarm.raised
    assert curve.usual < 10
    assert not curve_of(broken[:15]).alarm.raised
    over = curve_of([*broken, *np.ones((12, 20))])
    assert not over.alarm.raised
    assert over.alarm.is_reported(80.0)
    assert not over.alarm.is_reported(700.0)


def test_what_is_in_doubt_does_not_become_the_usual_of_a_short_curve():
    curve = LossCurve()
    for turn in range(40):
        curve.add(np.full(50, 1.0 if turn < 4 else 1e4), 50 * (turn + 1), 0.5 * turn)
    assert curve.alarm.is_reported(20.0)


@pytest.mark.parametrize("outlier", [1e4, 1e9, 1e300])
def test_single_losses_raise_no_alarm_however_large(outlier):
    losses = np.ones((200, 20))
    losses[::4, 0] = outlier
    assert not curve_of(losses).alarm.raised


def test_floods_of_log_lines_are_thinned_out():
    class Still(Clock):
        seconds = 0.0

        def now(self):
            return self.seconds

    clock, lines = Still(), Lines()
    log = Log("a", clock, lines)
    for _ in range(100):
        log("refused", often=True, reason="size")
    log("refused", often=True, reason="magic")
    assert lines.events() == ["refused", "refused"]
    clock.seconds = 2.0
    log("refused", often=True, reason="size")
    assert json.loads(lines.getvalue().splitlines()[-1])["left_out"] == 99


def test_reasons_that_quote_what_others_sent_are_thinned_out_together():
    lines = Lines()
    log = Log("a", Clock(), lines)
    for i in range(5000):
        log("refused", often=True, reason=f"{i} is no number")
    assert len(log._last) <= 2 * KINDS
    assert len(lines.events()) <= 10 * KINDS  # 2 seconds at most


def test_a_log_that_cannot_be_written_stops_nobody():
    class Full(io.StringIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    Log("a", Clock(), Full())("event")


def test_a_clock_shift_is_read_from_its_file(tmp_path, monkeypatch):
    shift = tmp_path / "shift"
    monkeypatch.setenv("DOKL_CLOCK_SHIFT", str(shift))
    clock = Clock()
    watch = JumpWatch(clock)
    assert watch.jumped() is None
    shift.write_text("-3600")
    assert watch.jumped() == pytest.approx(-3600, abs=1)
    assert watch.jumped() is None
