"""`dokl inspect`: what is in a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dokl.jobs.tables import Model
from dokl.jobs.train import names, parameters_in_use


def describe(path: Path) -> dict[str, Any]:
    """Settings, inputs, target, how much was learned, and how large it is."""
    model = Model.load(path)
    estimator = model.estimator
    if not hasattr(estimator, "state_"):
        return {"estimator": type(estimator).__name__, "fingerprint": estimator.fingerprint_}
    out = parameters_in_use(model)
    state = estimator.state_
    if model.target is not None:
        out["target"] = model.target
    if model.preprocessor is not None:
        out["input names"] = names(model.preprocessor.names_out, 12)
        out["standardisation"] = model.preprocessor.standardise
    if hasattr(estimator, "classes_"):
        out["classes"] = names(estimator.classes_.tolist(), 12)
    out["nodes"] = len(state.theta)
    out["samples learned"] = int(state.count.sum())
    if model.rows:
        out["rows read"], out["rows without target"] = model.rows, model.skipped
    out |= {f"prequential {name}": value for name, value in model.error.items()}
    out["|theta|"] = float(np.linalg.norm(estimator.coef_))
    out["file size"] = f"{path.stat().st_size:,} bytes"
    return out
