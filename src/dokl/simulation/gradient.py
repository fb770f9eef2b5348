"""Method `gradient`: a rank-one step along the slope of a loss.

    f     = theta'z + c b
    theta = (1 - mu*lam) * theta - mu * slope(y, f) * z
    b     = b - mu * slope(y, f) * c                        the private intercept, never shared

`slope` is the derivative of the loss in the prediction: KLMS, Pegasos, logistic and Huber
regression differ only there and in the schedule mu.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block, first_bad, used_rows
from dokl.base.errors import BadInput, Diverged
from dokl.learning import losses, schedules
from dokl.learning.features import AnyMap
from dokl.learning.losses import Loss
from dokl.learning.schedules import Schedule
from dokl.network.exchange import Exchange
from dokl.network.exchange.rules import sum_of_squares
from dokl.network.state import Slot, Slots, State

# Predictions beyond this times the size of the targets are wild, where the slope is unbounded.
WILD = 1e6


@dataclass(frozen=True)
class Gradient:
    """The step: a loss, a schedule, and the strength lam of the L2 regularization."""

    loss: Loss
    schedule: Schedule
    lam: float = 0.0
    name = "gradient"
    conserved = merges = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam >= 0):
            raise BadInput(f"regularization lam must be finite and at least 0, got {self.lam!r}")

    def slots(self, features: AnyMap, m: int, exchange: Exchange) -> Slots:
        """theta, the private intercepts, how many samples; and their running means if wanted."""
        theta, bias = Slot((m, features.D)), Slot((m,))
        slots = {"theta": theta, "bias": bias, "count": Slot((), np.int64)}
        if exchange.average != "none":
            slots |= {"mean_theta": theta, "mean_bias": bias}
        return slots

    def adapt(
        self, exchange: Exchange, state: State, Z: Array, Y: Array, w: Array
    ) -> tuple[State, Array]:
        """One gradient step per node; Z: (K, D), Y: (K, m), w: (K,). Returns f: (K, m) as well."""
        psi = state.theta  # (K, m, D)
        c, theta, f = exchange.intercept, psi.copy(), np.full(Y.shape, np.nan)
        for k in np.flatnonzero(w > 0):
            z = Z[k]
            f[k] = psi[k] @ z + c * state.bias[k]
            state.count[k] += 1
            mu = self.schedule(int(state.count[k]), float(z @ z + c * c))
            pull = mu * w[k] * self.loss.slope(Y[k], f[k])  # (m,)
            theta[k] = (1 - mu * self.lam) * psi[k] - pull[:, None] * z
            state.bias[k] -= pull * c
        return state.having(theta=theta), f

    def outgoing(self, state: State) -> Array:
        """Every number of theta: (K, m D)."""
        return state.theta.reshape(state.K, -1)

    def incoming(self, state: State, mixed: Array) -> State:
        """theta is what was mixed."""
        return state.having(theta=mixed.reshape(state.theta.shape))

    def limit(self, peak: Any) -> Any:
        """The largest prediction that is not wild yet, where targets are up to peak. A bounded
        slope moves by bounded steps: there is no limit.
        """
        if self.loss.bounded:
            return np.full(np.shape(peak), math.inf)
        return WILD * (1.0 + peak)

    def check(
        self, features: AnyMap, exchange: Exchange, state: State, block: Block, f: Array,
        largest: float,
    ) -> None:  # fmt: skip
        """Raise if targets were not finite, or if the iterates diverged; f: (n, K, m)."""
        if not math.isfinite(state.peak):
            used = used_rows(block)
            bad = first_bad(block.Y[used])
            row = "" if bad is None else f" of row {used[bad[0]]}"
            raise BadInput(f"target{row} is NaN or infinite: remove the row or give it weight 0")
        limit = float(self.limit(state.peak))
        if largest <= limit and largest < math.inf:
            return
        wild = np.flatnonzero(~(np.abs(np.nan_to_num(f)) < min(limit, 1e30)).all(axis=(1, 2)))
        at = state.clock - len(f) + (int(wild[0]) + 1 if wild.size else len(f))
        longest = features.sup_norm2 + exchange.intercept**2
        curvature = self.loss.curvature if math.isfinite(self.loss.curvature) else 1.0
        safe = 1.0 / (curvature * longest + self.lam)
        raise Diverged(
            f"the iterates diverged at step {at}: the step of schedule {self.schedule.name!r} is "
            f"{float(self.schedule(1, longest)):.4g} at n = 1, and the mean square is only sure to "
            f"stay finite below {2 * safe:.4g} = 2/(curvature * sup|z|^2 + lam), the intercept "
            f"included. Use a step of at most {safe:.4g}. Nothing was changed."
        )

    def check_rows(self, old: State, new: State, Y: Array, f: Array) -> None:
        """Row by row what `check` says of a block as a whole: Y and f (n, m) of one node. So the
        same rows are refused however they were cut into blocks.
        """
        largest = np.abs(Y).max(axis=1, initial=0.0).astype(np.float64)  # float32 would overflow
        peak = np.maximum.accumulate(np.maximum(largest, old.peak))
        wild = np.abs(f).max(axis=1, initial=0.0) > self.limit(peak)
        if wild.any() or not np.isfinite(new.theta).all():
            raise Diverged(
                f"the iterates diverged: the step of schedule {self.schedule.name!r} is too long "
                "for these targets. Make mu smaller. Nothing was changed"
            )

    def wild(self, features: AnyMap, state: State, payload: Array) -> bool:
        """Whether what a neighbour sent predicts so much more than this node's targets that
        learning it on would be taken for divergence; never before there was a target.
        """
        if state.peak == 0 or self.loss.bounded:
            return False
        return bool(np.sqrt(features.sup_norm2 * sum_of_squares(payload)) > self.limit(state.peak))

    def spec(self) -> dict[str, Any]:
        """Name and numbers."""
        about = {"loss": self.loss.spec(), "schedule": self.schedule.spec(), "lam": self.lam}
        return {"name": self.name, **about}


def gradient(loss: Loss, schedule: Schedule, lam: float = 0.0) -> Gradient:
    """Steps along the slope of a loss, as long as the schedule says; lam shrinks theta.

    >>> gradient(losses.squared(), schedules.constant(0.5)).spec()["loss"]
    {'name': 'squared'}
    """
    return Gradient(loss, schedule, lam)


def of_spec(spec: Mapping[str, Any]) -> Gradient:
    """The method that `spec` described; losses and schedules that are code cannot be."""
    loss, schedule = losses.from_spec(spec["loss"]), schedules.from_spec(spec["schedule"])
    return Gradient(loss, schedule, float(spec["lam"]))
