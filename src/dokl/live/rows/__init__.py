"""Live nodes that share rows.

learner     one node: its own learner, a bank that learns every row received, and corrections
states      a node as bytes
columns     rows of earlier columns as rows of those of now
"""

from dokl.live.rows.columns import ColumnMap
from dokl.live.rows.learner import RowsLearner

__all__ = ["ColumnMap", "RowsLearner"]
