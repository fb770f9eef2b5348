"""Live nodes that share sums of their rows per origin.

learner     one node: a single learner, experts that know everybody's sums, and corrections
states      a node as bytes
forgetting  what experts that forget have left of each origin's sums
"""

from dokl.live.sums.learner import SumsLearner

__all__ = ["SumsLearner"]
