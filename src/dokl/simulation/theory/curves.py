"""Learning curves: the mean-square recursion on the modes of R_zz and of the graph.

With U_k = theta_k - theta_*, R = diag(l) and g = 1 - mu l, one step is

    C_pq <- a_p a_q g g' . C_pq + mu^2 sum_k w_kp w_kq added(B_kk)        (see mixing, model)

and MSE = J_opt + mean_k tr(R B_kk). `added` holds the fourth-order term; the paper leaves it out
("small-step"), which also turns g g' into 1 - mu (l_i + l_j).

Late in a run `added` hardly changes from step to step, so after `fine` steps many are taken at
once: the factors are powers, and `added` is a straight line between both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, Diverged, UnknownName
from dokl.learning import schedules
from dokl.learning.metrics import decibels
from dokl.simulation.theory.mixing import MixingModes, mixing
from dokl.simulation.theory.model import DataModel

METHODS = ("mean-field", "exact", "small-step")
CORRECTIONS = 6
TOLERANCE = 3e-5


@dataclass(frozen=True)
class PredictedCurve:
    """What is predicted after each of n steps: arrays of (n,), step 1 first.

    mse: a-priori error of a step, mean over nodes, as runs record it; node_mse: (n, K), only by
    "exact"; disagreement: root mean square distance of the adapted vectors from their mean,
    after the step; combined_disagreement: the same of the combined ones (what `order="atc"`
    keeps).
    """

    mse: Array
    disagreement: Array
    combined_disagreement: Array
    j_opt: float
    node_mse: Array | None = None

    @property
    def decibels(self) -> Array:
        """The mean square error in dB; NaN where small-step theory makes it negative."""
        return np.asarray(decibels(np.where(self.mse > 0, self.mse, np.nan)))

    def settles(self, within: float = 1.0, level: float | None = None) -> int | None:
        """First step from which mse stays within n dB of `level` (default: its last value).

        None: not in this curve.
        """
        level = float(self.mse[-1]) if level is None else level
        above = np.flatnonzero(self.mse > level * 10 ** (within / 10))
        if above.size == 0:
            return 1
        return int(above[-1]) + 2 if above[-1] + 1 < self.mse.size else None


@dataclass
class _Walk:
    """The state of the recursion. C: (P, r, r); tail: (P,); decay: (r,) of the mean."""

    model: DataModel
    mix: MixingModes
    small: bool
    C: Array
    tail: Array
    decay: Array
    slope: Array | None = None
    log: list[tuple[int, Array, float, float]] = field(default_factory=list)

    def blocks(self, C: Array, tail: Array) -> tuple[Array, Array, Array]:
        """Blocks (Q, r, r), their tails (Q,) and a-priori errors (Q,)."""
        B, q = self.mix.gather(C), self.mix.gather(tail)
        diagonal = np.diagonal(B, axis1=1, axis2=2)
        return B, q, self.model.j_opt + diagonal @ self.model.basis.values + q

    def added(self, C: Array, tail: Array, decay: Array) -> tuple[Array, Array]:
        """What a step adds to the blocks (Q, r, r) and to their tails (Q,), over mu^2."""
        modes = self.model.basis.modes
        if self.small:
            Q = len(self.mix.weave)
            noise = self.model.j_opt * np.diag(modes.values)
            return np.tile(noise, (Q, 1, 1)), np.zeros(Q)
        B, q, mse = self.blocks(C, tail)
        G = np.stack([self.model.added(b, t, decay) for b, t in zip(B, q, strict=True)])
        return G, modes.tail_square * mse

    def factors(self, mu: float) -> tuple[Array, Array]:
        """Of C (P, r, r) and of the tail (P,): what one step multiplies them by."""
        modes, alpha = self.model.basis.modes, self.mix.alpha
        g = 1 - mu * modes.values
        inner = g[:, None] + g - 1 if self.small else np.outer(g, g)
        heavy = modes.tail_square / modes.tail if modes.tail > 0 else 0.0
        return alpha[:, None, None] * inner, alpha * (1 - mu * heavy) ** 2

    def leap(self, mu: float, h: int) -> None:
        """h steps of size mu."""
        factor, tail_factor = self.factors(mu)
        now = self.added(self.C, self.tail, self.decay)
        g = (1 - mu * self.model.basis.values) ** h

        def end(rise: tuple[Array, Array]) -> tuple[Array, Array]:
            to = self.mix.scatter
            sums = [mu**2 * to(a) for a in now], [mu**2 * to(a) for a in rise]
            C = _sum_of_steps(factor, h, self.C, sums[0][0], sums[1][0])
            return C, _sum_of_steps(tail_factor, h, self.tail, sums[0][1], sums[1][1])

        rise = (np.zeros_like(now[0]), np.zeros_like(now[1]))
        if h > 1:
            if self.slope is not None:
                rise = (h * self.slope, rise[1])
            rise = self._correct(now, rise, end, self.decay * g)
            self.slope = rise[0] / h
        self.C, self.tail = end(rise)
        self.decay = self.decay * g

    def _correct(
        self,
        now: tuple[Array, Array],
        rise: tuple[Array, Array],
        end: Callable[[tuple[Array, Array]], tuple[Array, Array]],
        decay: Array,
    ) -> tuple[Array, Array]:
        """How much `added` rises over a leap, repeated until both ends fit."""
        size = np.abs(now[0]).max()
        for _ in range(CORRECTIONS):
            then = self.added(*end(rise), decay)
            change = np.abs(then[0] - now[0] - rise[0]).max()
            rise = (then[0] - now[0], then[1] - now[1])
            if not change > TOLERANCE * size:
                break
        return rise

    def note(self, n: int) -> None:
        """Keep the errors before step n and how far apart the nodes are after step n - 1."""
        modes = self.model.basis.modes
        lengths = np.trace(self.C, axis1=1, axis2=2)
        if modes.tail > 0:
            lengths = lengths + self.tail * modes.tail / modes.tail_square
        apart = self.mix.apart * lengths
        mse = self.blocks(self.C, self.tail)[2]
        self.log.append((n, mse, float(apart.sum()), float(self.mix.alpha @ apart)))


def learning_curve(
    model: DataModel,
    schedule: object,
    n: int,
    weights: object = None,
    method: str = "mean-field",
    fine: int = 64,
) -> PredictedCurve:
    """The predicted curve of n steps of the squared loss, combining at every step.

    weights: (K, K) symmetric and doubly stochastic, None for a single node (or nodes alone).
    method: "mean-field", "exact" (all K^2 pairs of blocks) or "small-step" (the paper's recursion,
    corrected); for one node the first two are the same. A normalised schedule is taken at
    |z|^2 = E|z|^2, which is exact for paired features.
    """
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    if n < 1:
        raise BadInput(f"a curve needs at least one step, got n = {n}")
    schedule = schedules.resolve(schedule)
    mix = mixing(weights, "exact" if method == "exact" else "mean-field")
    walk = _Walk(
        model,
        mix,
        small=method == "small-step",
        C=mix.start[:, None, None] * model.start,
        tail=np.zeros(len(mix.alpha)),
        decay=np.ones(model.basis.modes.r),
    )
    at, q = 1, model.basis.modes.trace
    walk.note(at)
    with np.errstate(over="ignore", invalid="ignore"):
        while at <= n:
            h = min(max(1, at // fine), n + 1 - at)
            walk.leap(float(schedule(at + (h - 1) // 2, q)), h)
            at += h
            walk.note(at)
    return _curve(walk, n, method == "exact")


def _curve(walk: _Walk, n: int, every_node: bool) -> PredictedCurve:
    at = np.array([row[0] for row in walk.log])
    steps = np.arange(1, n + 1)
    node = np.stack([row[1] for row in walk.log])
    far = np.sqrt(np.maximum([row[2:] for row in walk.log], 0))
    if not np.isfinite(node).all():
        first = int(at[~np.isfinite(node).all(axis=1)][0])
        raise Diverged(
            f"the predicted error is infinite from step {first} on: the step is too large"
        )
    nodes = np.stack([_between(steps, at, column) for column in node.T], axis=1)
    apart = [_between(steps + 1, at, column) for column in far.T]
    per_node = nodes if every_node else None
    return PredictedCurve(nodes.mean(axis=1), apart[0], apart[1], walk.model.j_opt, per_node)


def _between(steps: Array, at: Array, values: Array) -> Array:
    """Values at all steps, interpolated between those computed, along log n."""
    return np.asarray(np.interp(np.log(steps), np.log(at), values))


def _sum_of_steps(factor: Array, h: int, C: Array, now: Array, rise: Array) -> Array:
    """factor^h C + sum_j factor^(h-1-j) (now + j/h rise), j = 0..h-1, element by element."""
    if h == 1:
        return np.asarray(factor * C + now)
    power, x = factor**h, 1 - factor
    small = np.abs(x) * h < 1e-3
    x = np.where(small, 1.0, x)
    plain = np.where(small, h - (1 - factor) * h * (h - 1) / 2, (1 - power) / x)
    ramp = np.where(
        small, (h - 1) / 2 - (1 - factor) * (h - 1) * (h - 2) / 6, (h - plain) / (x * h)
    )
    return np.asarray(power * C + plain * now + ramp * rise)
