"""What a node's own last rows say of its neighbours' vectors, where nobody can be left out.

With one or two neighbours there is no majority: a faulty vector cannot be distinguished by
distances from an honest one. A node's own rows can decide. They clip each difference (self-centred
clipping, He, Karimireddy and Jaggi, 2022, with a radius of its own for each neighbour): own + s
(theta_l - own) is what counts of theta_l, s the largest of 1, 1/2, 1/4, ... at which the node's
last rows are predicted no worse than SLACK times as when they came, or than they are now. That
bound does not grow while a neighbour pulls, so pulling again and again gains nothing.

They also name the neighbour: a vector that predicts new rows more than WORSE times as badly as the
node itself, again and again, is no chance (`dokl.learning.alarms`). That is one of two tests of a
neighbour; the other one is by distance (`outliers.far`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import alarms
from dokl.learning.alarms import Alarm
from dokl.network.state import State
from dokl.simulation.learner import Learner

MOST = 100  # rows
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
SLACK = 1.1  # what a neighbour may cost, for good
WORSE = 4.0  # times one's own loss: an honest neighbour may know less, or have seen other rows
ROWS = 5  # new own rows in each test
TESTS = 2  # of each neighbour: by own rows, and by distance


@dataclass(frozen=True)
class OwnRows:
    """The last rows X: (n, d), Y: (n, m), and the loss (n,) of each before it was learned."""

    X: Array
    Y: Array
    losses: Array

    @property
    def usual(self) -> float:
        """The mean loss."""
        return float(self.losses.mean())


def losses_of(learner: Learner, Y: Array, f: Array) -> Array:
    """The loss (n,) that is learned by, of predictions f: (n, m)."""
    loss: Any = learner.problem.gradient.loss
    return np.asarray(loss.value(np.asarray(Y, np.float64), f).mean(axis=1))


def append(before: OwnRows | None, learner: Learner, X: Array, Y: Array, f: Array) -> OwnRows:
    """The last rows with those that were just learned; f: (n, m) what was predicted before."""
    X, Y, f = X[-MOST:], Y[-MOST:], f[-MOST:]
    new = X, np.asarray(Y, np.float64), losses_of(learner, Y, f)
    if before is None or len(X) == MOST:
        return OwnRows(*(part.copy() for part in new))
    old = before.X, before.Y, before.losses
    return OwnRows(*(np.concatenate(pair)[-MOST:] for pair in zip(old, new, strict=True)))


def shares(rows: OwnRows, learner: Learner, state: State, vectors: Sequence[Array]) -> list[float]:
    """How much of the way to each neighbour's vector own rows allow."""
    own = learner.predict(state, rows.X)
    return [
        _share(rows, learner, own, learner.predict_by(state, vector, rows.X)) for vector in vectors
    ]


def _share(rows: OwnRows, learner: Learner, own: Array, other: Array) -> float:
    most = max(SLACK * rows.usual, float(losses_of(learner, rows.Y, own).mean()))
    for share in SHARES:
        # Predictions are linear in theta, so one for each end of the way is enough.
        on_the_way = own + share * (other - own)
        if losses_of(learner, rows.Y, on_the_way).mean() <= most:
            return share
    return 0.0


@dataclass(frozen=True)
class NeighbourTest:
    """What new rows showed of one neighbour. alarm: that it is faulty. loss, own: of its vector and
    of one's own on rows that wait for the next test.
    """

    alarm: Alarm = field(default_factory=Alarm)
    loss: float = 0.0
    own: float = 0.0
    rows: int = 0


def tested(
    record: NeighbourTest, loss: float, own: float, rows: int, limit: float, now: float
) -> NeighbourTest:
    """The record after new rows, on which its vector lost this much and one's own that."""
    loss, own, rows = record.loss + loss, record.own + own, record.rows + rows
    if rows < ROWS or not record.alarm.due(now):
        return replace(record, loss=loss, own=own, rows=rows)
    return NeighbourTest(record.alarm.tested(alarms.worse(loss, WORSE * own), limit, now))


def threshold(neighbours: int) -> float:
    """The evidence at which one of n neighbours is named."""
    return alarms.threshold(TESTS * neighbours * alarms.PER_HOUR)
