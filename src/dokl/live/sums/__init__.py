"""Live nodes by method "squares": sums per origin travel, own and shared experts are mixed.

learner   one node: experts of least squares that learn row by row, to the same bits in any cut
"""

from dokl.live.sums.learner import SquaresLearner

__all__ = ["SquaresLearner"]
