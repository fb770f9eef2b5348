"""Advice: which width, size, step and exchange to take, and what they will cost.

`plan(X, y)` tries widths and steps on a sample by short pilot runs, then predicts with the theory
what the choice leads to. `plan_law` does without data, from a stated law of the inputs, and
`compare` tries ways for nodes to share.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(2000, 3))
>>> y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=2000)
>>> advice = plan(X, y, D=200)
>>> advice.task, advice.D, bool(0.2 < advice.sigma < 20)
('regression', 200, True)
>>> model = advice.estimator().partial_fit(X, y)
"""

from dokl.tables.plan.advice import Advice, Budget, Plan
from dokl.tables.plan.planner import plan, plan_law
from dokl.tables.plan.ways import Way, compare

__all__ = ["Advice", "Budget", "Plan", "Way", "compare", "plan", "plan_law"]
