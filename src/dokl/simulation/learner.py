"""One learner behind every face: estimators, live agents, River and exports all learn through it.

A `Learner` binds a problem, an exchange and an engine's plan to shapes. It holds nothing that was
learned: a state goes in and a new one comes out, so a call that fails, or a disk that is full
afterwards, leaves everything as it was.

>>> from dokl import Features, Gaussian, Problem, gradient, losses, schedules
>>> step = gradient(losses.squared(), schedules.constant(0.5))
>>> learner = Learner(Problem(Features(Gaussian(1.0), 2, 100).draw(0), step))
>>> X = np.random.default_rng(0).normal(size=(500, 2))
>>> state, f = learner.learn(learner.start(), X, np.sin(X[:, :1]))
>>> f.shape, learner.predict(state, X).shape
((500, 1), (500, 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block, first_bad
from dokl.base.errors import BadInput
from dokl.learning import classification
from dokl.network import state as states
from dokl.network.exchange import Exchange, Mixing
from dokl.network.state import State
from dokl.simulation.diffusion import Problem, init, slots_of
from dokl.simulation.engines import choose
from dokl.simulation.engines.choice import module_of

ROWS_AT_ONCE = 1 << 18
ALONE, MEAN = Exchange(), Mixing()


class Learner:
    """K nodes, ready to learn m outputs.

    problem      features that are drawn, and a method
    exchange     how nodes share; alone by default
    classes      labels in order, None in a regression; they decide m
    fingerprint  of all that others must agree on; that of the features by default
    row_by_row   refuse the same rows however they are cut into calls, as a journal's replay wants
    """

    averages = True  # whether nodes like this average vectors

    def __init__(
        self,
        problem: Problem,
        exchange: Exchange = ALONE,
        *,
        K: int = 1,
        m: int = 1,
        classes: Sequence[Any] | None = None,
        dtype: DTypeLike | None = None,
        engine: str = "auto",
        fingerprint: str | None = None,
        row_by_row: bool = False,
    ) -> None:
        self.problem, self.exchange, self.K = problem, exchange, K
        self.classes = None if classes is None else list(classes)
        self.m = m if self.classes is None else classification.outputs(len(self.classes))
        self.d, self.D = int(problem.map.d), int(problem.map.D)
        self.engine, self._engine, self.plan = choose(engine, problem, exchange, dtype)
        self.dtype = self.plan.dtype
        self.fingerprint = fingerprint or problem.map.fingerprint
        self.row_by_row = row_by_row
        self.slots = slots_of(problem, exchange, self.m)

    def __getstate__(self) -> dict[str, Any]:
        """All but the engine's module, which cannot be copied and need not be."""
        return {name: value for name, value in vars(self).items() if name != "_engine"}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        vars(self).update(kept, _engine=module_of(kept["engine"], kept["problem"].method.name))

    def start(self) -> State:
        """Nodes that know nothing."""
        return init(self.problem, self.exchange, self.K, self.m, self.dtype)

    def prepare(self, rows: int = 1) -> None:
        """Have everything compiled that learning and predicting need; some seconds, the first time
        on a machine. rows: to learn for it.
        """
        X = np.zeros((rows, self.d), self.dtype)
        state, _ = self.learn(self.start(), X, np.ones((rows, self.m)))
        self.predict(state, X[:1])

    # -- learning ----------------------------------------------------------------------------
    def rows(self, X: object, Y: object) -> tuple[Array, Array]:
        """X (n, d) and Y (n, m) as they are learned from; BadInput where that fails."""
        X, Y = self._numbers("X", X, self.d), self._numbers("Y", Y, self.m)
        if len(X) != len(Y):
            raise BadInput(f"X has {len(X)} rows and Y has {len(Y)}: each input needs a target")
        return X, Y

    def learn(
        self, state: State, X: object, Y: object, weight: Array | None = None
    ) -> tuple[State, Array]:
        """Rows X: (n, d), Y: (n, m), dense numbers, by one node in order: the new state, and the
        a-priori scores f: (n, m). Raises BadInput or Diverged.
        """
        X, Y = self.rows(X, Y)
        index = np.arange(len(X), dtype=np.int64).reshape(-1, 1)
        new, f = self.advance(state, Block(X, Y, weight, index))
        if self.row_by_row:
            self.problem.method.check_rows(state, new, Y, f[:, 0])
        return new, f[:, 0]

    def learn_saying(self, state: State, X: object, Y: object) -> tuple[State, Array, Array | None]:
        """`learn`, and with it half the width of each row's predicted interval,
        (n, m); None by methods without intervals.
        """
        return *self.learn(state, X, Y), None

    def advance(self, state: State, block: Block) -> tuple[State, Array]:
        """A block of all nodes' samples: the new state, and a-priori scores (steps, K, m)."""
        at_once, made = max(1, ROWS_AT_ONCE // block.index.shape[1]), []
        for start in range(0, max(1, block.n), at_once):  # no rows are a block, too
            piece = block.steps(start, start + at_once) if block.n > at_once else block
            state, f = self._engine.advance(self.plan, state, piece)
            made.append(f)
        return state, made[0] if len(made) == 1 else np.concatenate(made)

    # -- predicting --------------------------------------------------------------------------
    def predict(
        self, state: State, X: object, node: int | None = None, workers: int | None = None
    ) -> Array:
        """Scores (n, m) of rows X, dense or CSR, by one node, or by the network's mean vector."""
        vectors = state.pooled() if node is None else tuple(a[node] for a in state.delivered())
        return np.asarray(self._engine.predict(self.plan, *vectors, X, workers))

    def predict_by(self, state: State, payload: Array, X: object) -> Array:
        """Scores (n, m) of rows X by a neighbour's vector, (P,), in place of the node's own."""
        return self.predict(self._taken(state, np.reshape(payload, -1)), X)

    def answers(self, scores: Array) -> list[Any]:
        """Scores (n, m) as people want them: numbers, or labels."""
        if self.classes is None:
            rows: list[Any] = scores.tolist()
            return [row[0] for row in rows] if self.m == 1 else rows
        return [self.classes[i] for i in classification.class_numbers(scores).tolist()]

    def losses(self, Y: Array, f: Array) -> Array:
        """Squared error (n,) of predictions f (n, m), or 1 for each mistaken class."""
        if self.classes is None:
            return np.asarray(np.mean((np.asarray(Y, np.float64) - f) ** 2, axis=1))
        return classification.wrong_classes(f, Y)

    # -- sharing, for one node ---------------------------------------------------------------
    def outgoing(self, state: State) -> Array:
        """What the node would send: (P,)."""
        return np.asarray(self.problem.method.outgoing(state)[0])

    def combine(
        self, state: State, arrived: Sequence[tuple[float, Array]], mixing: Mixing = MEAN
    ) -> State:
        """The node after mixing what arrived, (weight, (P,)) in this order, with its own."""
        if not arrived:
            return state
        own = self.outgoing(state)
        others = [(weight, np.reshape(other, own.shape)) for weight, other in arrived]
        return self._taken(state, mixing.mixed(own, others).astype(own.dtype))

    def adopt(self, state: State, arrived: Sequence[Array], counts: Sequence[int]) -> State:
        """A newcomer starts from its neighbours' vectors, and from their counts: with a count of 0
        a decaying step would begin long and wreck what was taken over.

        It takes the median, number by number: of three neighbours or more, one that lies cannot
        lead it astray. Of one or two it is the mean.
        """
        own = self.outgoing(state)
        middle = np.median([np.reshape(a, own.shape).astype(np.float64) for a in arrived], axis=0)
        count = np.array([round(float(np.median([int(count) for count in counts])))], np.int64)
        return self._taken(state, middle.astype(own.dtype)).having(count=count)

    def wild(self, state: State, payload: Array) -> bool:
        """Whether what a neighbour sent is so far off that it must not be mixed."""
        return bool(self.problem.method.wild(self.problem.map, state, payload))

    def _taken(self, state: State, mixed: Array) -> State:
        new: State = self.problem.method.incoming(state, mixed[None])
        return new

    # -- as data -----------------------------------------------------------------------------
    def spec(self) -> dict[str, Any]:
        """What it is, in words and numbers."""
        about = {"fingerprint": self.fingerprint, "d": self.d, "D": self.D, "m": self.m}
        return {**about, "K": self.K, "classes": self.classes, "method": self.problem.method.spec()}

    def pack(self, state: State) -> bytes:
        """All that was learned, in bytes; exact."""
        return states.pack(state, self.slots)

    def unpack(self, data: bytes) -> State:
        """The state that was packed, also by version 0.1; BadInput where it is not this model's."""
        found = states.unpack(data, self.slots)
        try:
            return states.check(found, self.slots, self.K, self.dtype)
        except ValueError as error:
            raise BadInput(f"the stored state is not this model's: {error}") from None

    def _numbers(self, what: str, values: object, width: int) -> Array:
        """Rows (n, width) in the learner's precision, finite there."""
        try:
            with np.errstate(over="ignore"):
                rows = np.ascontiguousarray(values, self.dtype)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{what} must be an array of numbers: {error}") from None
        if rows.ndim != 2 or rows.shape[1] != width:
            raise BadInput(f"{what} must have shape (rows, {width}), got {rows.shape}")
        bad = first_bad(rows)
        if bad is not None:
            kind = np.dtype(self.dtype).name
            raise BadInput(
                f"{what}: row {bad[0]}, column {bad[1]} is NaN, infinite or too large for {kind}"
            )
        return rows
