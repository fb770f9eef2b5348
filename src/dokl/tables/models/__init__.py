"""What predicts, as it is kept in a file: an estimator, or a `TableModel` that takes raw rows."""

from dokl.tables.models.saving import load, save
from dokl.tables.models.table import TableModel

__all__ = ["TableModel", "load", "save"]
