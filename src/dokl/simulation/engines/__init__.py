"""Engines: the same problem, weights and stream, run by different machinery.

`run` simulates a network over a stream, many realizations in one call; `engine=` chooses how.
An engine is a module with `plan`, `advance`, `step` and `predict` (see `reference`). Engines
draw no randomness: features, graph and data are drawn outside, so two engines agree to rounding.

engine="jax" is `jax_engine.py`, made of the other files `jax_*.py`; so are "numba" and "mpi".
"""

from dokl.simulation.engines.choice import ENGINES, NotCompilable, choose
from dokl.simulation.engines.runs import check_engine, run

__all__ = ["ENGINES", "NotCompilable", "check_engine", "choose", "run"]
