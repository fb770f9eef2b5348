"""A model to look at: a figure, and a page for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.base.errors import BadInput, listed
from dokl.estimators.auto import experts_html
from dokl.tables.report import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dokl.tables.models.table import TableModel

MOST = 15


def figure_of(model: TableModel) -> Any:
    """Relevance of inputs, and the experts' weights, of a model without settings."""
    estimator = model.estimator
    if not hasattr(estimator, "relevance_"):
        raise BadInput(
            f"a {type(estimator).__name__} does not know which inputs matter: models without "
            "settings do (AutoRegressor, AutoClassifier, --method bank)"
        )
    experts = estimator.experts_ if hasattr(estimator, "bank_") else []
    figure = new_figure(10 if experts else 5.5, 3.6)
    axes = figure.subplots(1, 2 if experts else 1, squeeze=False)[0]
    names, share = np.array(names_of(model)), np.asarray(estimator.relevance_)
    order = np.argsort(share)[-MOST:]
    _bars(axes[0], names[order].tolist(), share[order], "relevance of inputs", COLOURS[0])
    if experts:
        heavy = [row for row in experts if row["weight"] >= 0.005][:MOST][::-1]
        kinds, weights = [row["expert"] for row in heavy], [row["weight"] for row in heavy]
        _bars(axes[1], kinds, np.array(weights), "weights of experts", COLOURS[2])
    return figure


def _bars(axes: Axes, names: list[str], values: Any, title: str, colour: str) -> None:
    axes.barh(names, 100 * values, color=colour)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("%")
    axes.tick_params(axis="y", labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def names_of(model: TableModel) -> list[str]:
    """The names of the inputs, x1, x2... where they have none."""
    if model.preprocessor is not None:
        return list(model.preprocessor.names_out)
    d = int(model.estimator.n_features_in_)
    return [str(name) for name in model.columns or (f"x{i + 1}" for i in range(d))]


def page_of(model: TableModel) -> str:
    """Target, columns, scores and experts, as HTML."""
    facts = {
        "target": model.target or "none",
        "columns": listed(model.columns or ("without names",)),
        "rows": f"{model.rows_read:,}",
    }
    if model.tally is not None and model.tally.n:
        scores = model.tally.figures().items()
        shown = [f"{k} {v:.4g}" for k, v in scores if isinstance(v, float) and "recall" not in k]
        facts["prequential"] = ", ".join(shown)
    rows = "".join(
        f"<tr><th style='text-align:left'>{name}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    kind = type(model.estimator).__name__
    return f"<p>TableModel of {kind}</p><table>{rows}</table>{experts_html(model.estimator)}"
