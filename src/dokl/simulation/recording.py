"""What is recorded along a run, by name: at every step, or now and then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, check_whole
from dokl.base.errors import BadInput, UnknownName
from dokl.base.random_numbers import check_seed
from dokl.learning import metrics
from dokl.simulation.diffusion import combines_now

Quantities = Mapping[str, Callable[..., Any]]


def mean_loss(f: Array, y: Array, of: Any, steps: slice) -> Array:
    """The method's own loss: (n,)."""
    method = of.problem.method
    if not hasattr(method, "loss"):
        raise BadInput(f"method {method.name!r} has no loss to record: record 'mse'")
    return metrics.mean_loss(method.loss.value, f, y)


def bytes_sent(f: Array, y: Array, of: Any, steps: slice) -> Array:
    """Bytes that the whole network sent at each step: (n,).

    Where rules decide what is sent, it is counted, and these steps have one exchange at most.
    """
    exchange, clocks = of.exchange, np.arange(steps.start, steps.stop)
    mixing = np.array([combines_now(exchange, exchange.graphs, int(clock)) for clock in clocks])
    sent = np.where(mixing, float(of.sent), 0.0)
    method = of.problem.method
    if exchange.plain and not method.merges and mixing.any():
        size = method.outgoing(of.state.part(slice(0, 1))).nbytes
        sent[mixing] = metrics.bytes_sent(exchange.graphs, clocks[mixing], size)
    return sent


# Recorded at every step, (n, ...): from predictions f and targets y, (n, K, m) both, from whose
# they are (an executor, a learner) and of which steps.
OF_PREDICTIONS: dict[str, Callable[..., Any]] = {
    "mse": lambda f, y, *_: metrics.squared_error(f, y),
    "node_mse": lambda f, y, *_: metrics.node_squared_error(f, y),
    "mistakes": lambda f, y, *_: metrics.mistakes(f, y),
    "predictions": lambda f, y, *_: f,
}
PER_STEP = OF_PREDICTIONS | {"loss": mean_loss, "bytes": bytes_sent}
# Recorded every `snapshot` steps, from the state.
NOW_AND_THEN: Quantities = {
    "disagreement": lambda state: metrics.disagreement(state.theta),
    "theta": lambda state: state.theta.copy(),
    "delivered": lambda state: state.delivered()[0].copy(),
}
RECORDABLE = (*PER_STEP, *NOW_AND_THEN, "state")


@dataclass(frozen=True)
class Asked:
    """What a run is asked for: what to record, how many realizations, and from which seed."""

    record: tuple[str, ...]
    snapshot: int | None
    runs: int
    seed: int

    @property
    def keep(self) -> bool:
        """Whether what was learned in the end is kept."""
        return self.runs == 1 or "state" in self.record


def check_asked(
    record: Any, snapshot: object, runs: object, seed: object,
    recordable: Collection[str] = RECORDABLE, now_and_then: Collection[str] = NOW_AND_THEN,
) -> Asked:  # fmt: skip
    """The wishes, checked; now_and_then: names that need a snapshot."""
    record = (record,) if isinstance(record, str) else tuple(record)
    for name in record:
        if name not in recordable:
            raise UnknownName("quantity to record", name, recordable)
        if name in now_and_then and snapshot is None:
            raise BadInput(f"recording {name!r} needs snapshot=: every how many steps to take it")
    runs = check_whole("runs", runs)
    if snapshot is not None:
        snapshot = check_whole("snapshot", snapshot, of="steps")
    return Asked(record, snapshot, runs, check_seed(seed))


class Recorder:
    """Collects what was asked for, piece by piece, of one realization; no names: nothing."""

    def __init__(
        self,
        names: Collection[str],
        per_step: Quantities = PER_STEP,
        now_and_then: Quantities = NOW_AND_THEN,
    ) -> None:
        self.names, self.per_step, self.now_and_then = names, per_step, now_and_then
        self.parts: dict[str, list[Any]] = {}
        self.points: list[int] = []

    def take(self, f: Array, y: Array, of: object, steps: slice) -> None:
        """Quantities of every step of a piece."""
        self._add(self.per_step, f, y, of, steps)

    def snapshot(self, step: int, state: object) -> None:
        """Quantities taken now and then, here after n steps."""
        self.points.append(step)
        self._add(self.now_and_then, state)

    def _add(self, quantities: Quantities, *given: object) -> None:
        for name in self.names:
            if name in quantities:
                self.parts.setdefault(name, []).append(quantities[name](*given))

    def arrays(self) -> dict[str, Array]:
        """Everything so far by name, as files keep it: what `restore` takes."""
        return {"points": np.array(self.points, np.int64)} | {
            name: np.stack(parts) if name in self.now_and_then else np.concatenate(parts)
            for name, parts in self.parts.items()
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go on from what was recorded before."""
        for name, values in arrays.items():
            if name == "points":
                self.points.extend(int(step) for step in values)
            else:
                self.parts[name] = list(values) if name in self.now_and_then else [values]

    def curves(self) -> dict[str, Array]:
        """Everything recorded, each (points, ...); bytes are those sent so far."""
        found = {name: values for name, values in self.arrays().items() if name != "points"}
        return found | {name: np.cumsum(found[name]) for name in found if name == "bytes"}
