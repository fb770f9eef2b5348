"""One node's learning, without exchange, clock or file: rows in, a new state out.

A `Learner` never changes a state it is given: a failed call, or a disk that is full afterwards,
leaves everything as it was. However rows are cut into batches, the state comes out the same to
the last bit, so a journal can be replayed in other pieces than it was written in.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.arrays import Array, Block, first_bad
from dokl.diffusion import Exchange, State, init
from dokl.engines import compiled
from dokl.errors import BadInput, Diverged

if TYPE_CHECKING:
    from dokl.agents.description import Network

# magic, m, D, count, clock, peak; then theta, bias and a checksum of all of it
_PACKED = struct.Struct("<8sIIqqd")
_MAGIC = b"doklst1\n"
# As in `diffusion.check_progress`: predictions beyond this times the targets' size are wild.
WILD = 1e6


class Learner:
    """Features, loss and step of a network's description, made ready for one node.

    d inputs, m outputs, D numbers per output; classes: the labels, or None in a regression.
    """

    def __init__(self, network: Network) -> None:
        problem = network.problem()
        exchange = Exchange(None, intercept=network.model.intercept)
        self._plan = compiled.plan(problem, exchange, np.float32)
        self.problem = problem
        self.d, self.D = int(problem.features.d), int(problem.features.D)
        self.m: int = network.inputs.m
        self.fingerprint: str = network.fingerprint
        labels = network.inputs.labels
        self.classes: list[Any] | None = list(labels) if network.inputs.classifying else None

    def start(self) -> State:
        """A node that knows nothing: zeros."""
        return init(self.problem, self._plan.exchange, 1, self.m, np.float32)

    def prepare(self) -> None:
        """Have everything compiled that learning and predicting need; some seconds, the first time
        on a machine.
        """
        X = np.zeros((1, self.d), np.float32)
        state, _ = self.learn(self.start(), X, np.ones((1, self.m)))
        self.scores(state, X)

    def rows(self, X: Any, Y: Any) -> tuple[Array, Array]:
        """X (n, d) and Y (n, m) as they are learned from, float32; BadInput where that fails."""
        X, Y = _numbers("X", X, self.d), _numbers("Y", Y, self.m)
        if len(X) != len(Y):
            raise BadInput(f"X has {len(X)} rows and Y has {len(Y)}: each input needs a target")
        return X, Y

    def learn(self, state: State, X: Any, Y: Any) -> tuple[State, Array]:
        """Learn rows X: (n, d), Y: (n, m) in order; the new state, and a-priori f: (n, m).

        Raises BadInput or Diverged; which rows diverge does not depend on the batch either.
        """
        X, Y = self.rows(X, Y)
        index = np.arange(len(X), dtype=np.int64).reshape(-1, 1)
        new, f = compiled.advance(self._plan, state, Block(X, Y, None, index))
        f = f[:, 0, :]
        self._check_progress(state, new, Y, f)
        return new, f

    def _check_progress(self, old: State, new: State, Y: Array, f: Array) -> None:
        """Row by row what the engine checks for the batch as a whole."""
        peak = np.maximum.accumulate(np.maximum(np.abs(Y).max(axis=1, initial=0.0), old.peak))
        wild = np.abs(f).max(axis=1, initial=0.0) > limit(peak)
        diverged = wild.any() and not self.problem.loss.bounded
        if diverged or not np.isfinite(new.theta).all():
            raise Diverged(
                f"the iterates diverged: the step of schedule {self.problem.schedule.name!r} is "
                "too long for these targets. Make mu smaller. Nothing was changed"
            )

    def wild(self, state: State, theta: Array) -> bool:
        """Whether a vector predicts so much more than this node's targets that learning it on
        would be taken for divergence; never before there was a target, or with a bounded slope.
        """
        if state.peak == 0 or self.problem.loss.bounded:
            return False
        longest = np.sqrt(self.problem.features.sup_norm2 * squared(theta))
        return bool(longest > limit(state.peak))

    def combine(
        self, state: State, parts: Sequence[tuple[float, Array]], clip: float = 0.0
    ) -> State:
        """theta + sum_l w_l clip(theta_l - theta), for (w_l, theta_l (m, D)), in this order.

        clip: a longer difference is shortened to this Euclidean norm, so a neighbour that lies
        moves theta by no more than w_l * clip; 0 is off. The private intercept stays.
        """
        if not parts:
            return state
        own = state.theta[0].astype(np.float64)
        total = own.copy()
        for weight, theta in parts:
            apart = theta - own
            length = float(np.sqrt(squared(apart))) if clip else 0.0
            total += (weight * clip / length if length > clip else weight) * apart
        return replace(state, theta=total.astype(np.float32)[None])

    def adopt(self, state: State, thetas: Sequence[Array], counts: Sequence[int]) -> State:
        """A newcomer starts from its neighbours' vectors, and from their counts: with a count of 0
        a decaying step would begin long and wreck what was taken over.

        It takes the median, number by number: of three neighbours or more, one that lies cannot
        lead it astray. Of one or two it is the mean.
        """
        middle = np.median([theta.astype(np.float64) for theta in thetas], axis=0)
        count = np.array([round(float(np.median([int(count) for count in counts])))], np.int64)
        return replace(state, theta=middle.astype(np.float32)[None], count=count)

    def scores(self, state: State, X: Any) -> Array:
        """The function itself: (n, m) for X (n, d)."""
        X = _numbers("X", X, self.d)
        return compiled.predict(self._plan, state.theta[0], state.bias[0], X, workers=1)

    def answers(self, scores: Array) -> list[Any]:
        """Scores (n, m) as people want them: numbers, or labels."""
        if self.classes is None:
            rows: list[Any] = scores.tolist()
            return [row[0] for row in rows] if self.m == 1 else rows
        return [self.classes[i] for i in _classes(scores).tolist()]

    def losses(self, Y: Array, f: Array) -> Array:
        """Squared error (n,) of predictions f (n, m), or 1 for each mistaken class."""
        if self.classes is None:
            return np.asarray(np.mean((np.asarray(Y, np.float64) - f) ** 2, axis=1))
        return np.asarray(_classes(Y) != _classes(f)).astype(np.float64)


def limit(peak: Any) -> Any:
    """The largest prediction that is not wild yet, where targets are up to peak."""
    return WILD * (1.0 + np.asarray(peak, np.float64))


def squared(theta: Array) -> float:
    """|theta|^2 in float64, the same however theta lies in memory."""
    flat = np.ascontiguousarray(theta, np.float64).reshape(-1)
    return float(np.sum(flat * flat))


def _classes(scores: Array) -> Array:
    """Number of the class: the sign of one score, or the largest of several."""
    if scores.shape[1] == 1:
        return np.asarray(scores[:, 0] >= 0).astype(np.int64)
    return np.asarray(scores.argmax(axis=1))


def _numbers(what: str, values: Any, width: int) -> Array:
    """Rows (n, width) in float32, finite there."""
    try:
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what} must be an array of numbers: {error}") from None
    if rows.ndim != 2 or rows.shape[1] != width:
        raise BadInput(f"{what} must have shape (rows, {width}), got {rows.shape}")
    bad = first_bad(rows)
    if bad is not None:
        raise BadInput(
            f"{what}: row {bad[0]}, column {bad[1]} is NaN, infinite or too large for float32"
        )
    return rows


def pack_state(state: State) -> bytes:
    """All that a node has learned, in bytes; exact."""
    _, m, D = state.theta.shape
    head = _PACKED.pack(_MAGIC, m, D, int(state.count[0]), state.clock, state.peak)
    body = head + state.theta.astype("<f4").tobytes() + state.bias.astype("<f4").tobytes()
    return body + struct.pack("<I", zlib.crc32(body))


def unpack_state(data: bytes, m: int, D: int) -> State:
    """The state that `pack_state` packed; BadInput if it is damaged or of another shape."""
    if len(data) < _PACKED.size + 4 or data[:8] != _MAGIC:
        raise BadInput("the stored state is damaged, or not one of dokl's")
    _, its_m, its_D, count, clock, peak = _PACKED.unpack_from(data)
    if (its_m, its_D) != (m, D):
        raise BadInput(f"the stored state has shape {(its_m, its_D)}, the model has {(m, D)}")
    body, check = data[:-4], struct.unpack("<I", data[-4:])[0]
    if len(body) != _PACKED.size + 4 * m * (D + 1) or zlib.crc32(body) != check:
        raise BadInput("the stored state is damaged: its size or its checksum does not fit")
    numbers = np.frombuffer(body, "<f4", offset=_PACKED.size).astype(np.float32)
    theta, bias = numbers[: m * D].reshape(1, m, D), numbers[m * D :].reshape(1, m)
    return State(theta, bias, None, None, np.array([count], np.int64), clock, peak)
