"""`dokl inspect`: what is in a model file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dokl.estimators.network import NetworkEstimator
from dokl.estimators.old_files import OldNetwork
from dokl.estimators.sharing_worth import SharingWorth
from dokl.learning.experts.folding import Folded
from dokl.tables.models import TableModel
from dokl.tables.models.pictures import names_of


def settings(model: TableModel) -> dict[str, Any]:
    """What the estimator settled on."""
    estimator = model.estimator
    if isinstance(estimator, NetworkEstimator):
        return {
            "estimator": type(estimator).__name__,
            "method": "bank",
            "components": estimator.n_components,
            "inputs": int(estimator.n_features_in_),
            "every": estimator.every,
            **_sharing(estimator),
            "fingerprint": model.fingerprint_,
        }
    if not hasattr(estimator, "state_"):
        return _of_experts(model)
    return {
        "estimator": type(estimator).__name__,
        "method": "gradient",
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


def _sharing(estimator: NetworkEstimator) -> dict[str, Any]:
    """What leaves a node, and the bytes that each has sent, on average."""
    if isinstance(estimator.network_, OldNetwork):
        return {"predict_only": True}
    return {"share": estimator.share, "sent_bytes": float(estimator.sent_bytes_.mean())}


def _of_experts(model: TableModel) -> dict[str, Any]:
    """Of a model without settings, or of what `dokl export` left of it."""
    estimator = model.estimator
    kind = {"estimator": type(estimator).__name__, "method": "bank"}
    if hasattr(estimator, "bank_"):
        size = {"components": estimator.n_components}
    else:
        parts = [part for part in estimator.folded_ if isinstance(part, Folded)]
        bumps = [each for part in parts for each in part.bumps]
        size = {"centres": sum(len(each.centres) for each in bumps)}
    return {**kind, **size, "inputs": estimator.n_features_in_, "fingerprint": model.fingerprint_}


def describe(path: Path) -> dict[str, Any]:
    """Settings, inputs, target, how much was learned, and how large it is."""
    model = TableModel.load(path)
    estimator, size = model.estimator, {"file_size": path.stat().st_size}
    if not model.started:
        drawn = estimator.feature_map_
        kind = {"estimator": type(estimator).__name__, "kernel": drawn.kernel.spec()}
        features = {"features": drawn.variant, "D": drawn.D, "inputs": drawn.d}
        return {**kind, **features, "fingerprint": estimator.fingerprint_, **size}
    learned = {"samples_learned": _samples(estimator)}
    if model.rows_read:
        learned |= {"rows_read": model.rows_read, "rows_skipped": model.rows_skipped}
    score = {} if model.tally is None else {"prequential": model.tally.figures()}
    if model.coverage is not None:
        score["intervals"] = model.coverage.figures()
    return settings(model) | _names(model) | learned | score | _insides(model) | size


def _samples(estimator: Any) -> int:
    """How many were learned."""
    if hasattr(estimator, "state_"):
        return int(estimator.state_.count.sum())
    if isinstance(estimator, NetworkEstimator):
        return int(estimator.network_.seen.sum())
    return int(estimator.bank_.seen if hasattr(estimator, "bank_") else estimator.rows_)


def _insides(model: TableModel) -> dict[str, Any]:
    """What was learned, in a few numbers."""
    estimator = model.estimator
    if isinstance(estimator, NetworkEstimator):
        worth = sharing_worth(model)
        return {} if worth is None else {"sharing": worth.text}
    if hasattr(estimator, "state_"):
        return {"theta_norm": float(np.linalg.norm(estimator.coef_))}
    found = {"remembers": estimator.remembers_, "relevance": relevance(model)}
    if not hasattr(estimator, "bank_"):
        return found | {"predict_only": True}
    experts = [
        {**row, "memory": None if math.isinf(row["memory"]) else row["memory"]}
        for row in estimator.experts_
    ]
    return found | {"experts": experts}


def sharing_worth(model: TableModel) -> SharingWorth | None:
    """What sharing is worth to the nodes of a network, and who is alike; else nothing."""
    network = getattr(model.estimator, "network_", None)
    if network is None or isinstance(network, OldNetwork):
        return None
    worth: SharingWorth = model.estimator.cooperation_
    return worth


def relevance(model: TableModel) -> dict[str, float]:
    """The share of each input in what experts make of them, the largest first; else nothing."""
    if not hasattr(model.estimator, "relevance_"):
        return {}
    shares = zip(names_of(model), model.estimator.relevance_.tolist(), strict=True)
    return dict(sorted(shares, key=lambda share: -share[1]))


def _names(model: TableModel) -> dict[str, Any]:
    """The target, the inputs, the classes and the nodes, by name."""
    out: dict[str, Any] = {} if model.target is None else {"target": model.target}
    if model.preprocessor is not None:
        out["input_names"] = list(model.preprocessor.names_out)
        out["standardisation"] = model.preprocessor.standardise
    if model.series is not None:
        plan, ahead = model.series.plan, model.series.horizon
        out["lags"] = {"by": plan.by, "time": plan.time, "horizon": str(ahead)}
    if model.labels is not None:
        out["classes"] = model.labels
    if hasattr(model.estimator, "nodes_"):
        out["node_names"] = model.estimator.nodes_.tolist()
        out |= {} if model.node is None else {"node_column": model.node}
    return out | {"nodes": len(getattr(model.estimator, "nodes_", [0]))}
