"""Growing sums learned by every node alone, each with its own centres."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dokl.learning.kernels import Gaussian
from dokl.paper.baselines.growing import GrowingSums, KernelSum, scaled_rows
from dokl.paper.baselines.runs import BaselineLearner, Samples


class Alone(BaselineLearner):
    """K dictionaries, moved on by a method's `sweep` with its `numbers`."""

    def __init__(
        self,
        samples: Samples,
        dtype: Any,
        kernel: Gaussian,
        sweep: Callable[..., int],
        numbers: tuple[Any, ...],
    ) -> None:
        super().__init__(samples, dtype)
        self.X = scaled_rows(samples.X, kernel, dtype)
        most = samples.present.sum(axis=0)
        self.sums = [GrowingSums.empty(kernel, samples.d, 1, int(m), dtype) for m in most]
        self.sweep, self.numbers = sweep, numbers
        self.factor: Callable[[int], float] = lambda k: 1.0  # of node k's coefficients

    def advance(self, start: int, stop: int) -> None:
        """Node after node: they share nothing."""
        for k, sums in enumerate(self.sums):
            where = start, stop, self.samples.K, k
            seen = self.X, self.y, self.weight, *self.numbers
            held = sums.centres, sums.alpha, sums.size, *sums.tools
            sums.size = self.sweep(*where, *seen, *held, self.f, self.size)

    def models(self) -> list[KernelSum]:
        """Each node's sum."""
        return [sums.model(0, self.factor(k)) for k, sums in enumerate(self.sums)]
