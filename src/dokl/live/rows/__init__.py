"""Live nodes that share rows.

learner     one node: a lone learner, a bank that learns every row it hears, and corrections
states      a node as bytes
"""

from dokl.live.rows.learner import RowsLearner

__all__ = ["RowsLearner"]
