"""Live nodes by method "squares": sums per origin travel, own and shared experts are mixed.

learner   one node: experts of least squares that learn row by row, to the same bits in any cut
signing   entries signed by their origin, since neighbours relay them
"""

from dokl.agents.sums.learner import SquaresLearner
from dokl.agents.sums.signing import Seals

__all__ = ["Seals", "SquaresLearner"]
