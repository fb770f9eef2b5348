"""What predicts, as it is kept in a file: an estimator, or a `TableModel` that takes raw rows.

These are imported when they are first asked for: agents need `series` and `rows` of this package,
and not scikit-learn, which takes seconds and 100 MB of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dokl.tables.models.table import TableModel, load, save

__all__ = ["TableModel", "load", "save"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from dokl.tables.models import table

        return getattr(table, name)
    raise AttributeError(f"module 'dokl.tables.models' has no attribute {name!r}")
