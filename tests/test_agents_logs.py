"""Small parts of an agent: the curve of its error, its log, its clock."""

import io
import json

import numpy as np
import pytest

from dokl.agents.clock import Clock, JumpWatch
from dokl.agents.curve import LossCurve
from dokl.agents.logs import KINDS, Log
from dokl.metrics import MOST_BINS
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
