"""`dokl inspect`: what is in a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dokl.models import TableModel


def settings(model: TableModel) -> dict[str, Any]:
    """What the estimator settled on."""
    estimator = model.estimator
    return {
        "estimator": type(estimator).__name__,
        "kernel": estimator.feature_map_.kernel.spec(),
        "features": estimator.feature_map_.variant,
        "D": estimator.feature_map_.D,
        "inputs": estimator.feature_map_.d,
        "loss": estimator.loss_.spec(),
        "schedule": estimator.schedule_.spec(),
        "alpha": float(estimator.alpha),
        "average": estimator.average,
        "engine": estimator.engine_,
        "dtype": np.dtype(estimator.dtype_).name,
        "fingerprint": model.fingerprint_,
    }


def describe(path: Path) -> dict[str, Any]:
    """Settings, inputs, target, how much was learned, and how large it is."""
    model = TableModel.load(path)
    estimator, size = model.estimator, {"file_size": path.stat().st_size}
    if not model.started:
        drawn = estimator.feature_map_
        kind = {"estimator": type(estimator).__name__, "kernel": drawn.kernel.spec()}
        features = {"features": drawn.variant, "D": drawn.D, "inputs": drawn.d}
        return {**kind, **features, "fingerprint": estimator.fingerprint_, **size}
    learned = {"samples_learned": int(estimator.state_.count.sum())}
    if model.rows_read:
        learned |= {"rows_read": model.rows_read, "rows_skipped": model.rows_skipped}
    score = {} if model.tally is None else {"prequential": model.tally.figures()}
    length = {"theta_norm": float(np.linalg.norm(estimator.coef_))}
    return settings(model) | _names(model) | learned | score | length | size


def _names(model: TableModel) -> dict[str, Any]:
    """The target, the inputs, the classes and the nodes, by name."""
    out: dict[str, Any] = {} if model.target is None else {"target": model.target}
    if model.preprocessor is not None:
        out["input_names"] = list(model.preprocessor.names_out)
        out["standardisation"] = model.preprocessor.standardise
    if model.labels is not None:
        out["classes"] = model.labels
    if hasattr(model.estimator, "nodes_"):
        out["node_names"] = model.estimator.nodes_.tolist()
        out |= {} if model.node is None else {"node_column": model.node}
    return out | {"nodes": len(model.estimator.state_.theta)}
