"""dokl: distributed online kernel learning.

The nodes of a network learn one non-linear function together, each from its own stream, with
a model of fixed size, talking only to their neighbours. Read `dokl.diffusion` first.

Names are imported when first used: `import dokl` itself loads next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Problem": "diffusion",
    "Exchange": "exchange",
    "Sending": "exchange",
    "Mixing": "exchange",
    "State": "state",
    "cooperation": "methods",
    "gradient": "methods",
    "squares": "methods",
    "Trace": "diffusion",
    "Features": "features",
    "FeatureMap": "features",
    "Gaussian": "kernels",
    "Laplacian": "kernels",
    "Matern": "kernels",
    "Cauchy": "kernels",
    "RationalQuadratic": "kernels",
    "Custom": "kernels",
    "Loss": "losses",
    "Schedule": "schedules",
    "GraphRecipe": "graphs",
    "Stream": "streams",
    "run": "engines",
    "Plan": "plan",
    "Budget": "plan",
    "AutoRegressor": "estimators",
    "AutoClassifier": "estimators",
    "merge": "estimators",
    "KernelRegressor": "estimators",
    "KernelClassifier": "estimators",
    "NetworkRegressor": "estimators",
    "NetworkClassifier": "estimators",
    "DiffusionRegressor": "estimators",
    "DiffusionClassifier": "estimators",
    "RandomFeatures": "estimators",
    "TableModel": "models",
    "fit_table": "jobs.files.fit",
    "save": "models",
    "load": "models",
}
_MODULES = (
    "arrays",
    "baselines",
    "datasets",
    "diffusion",
    "random_numbers",
    "engines",
    "errors",
    "estimators",
    "exchange",
    "features",
    "files",
    "graphs",
    "kernels",
    "losses",
    "methods",
    "metrics",
    "models",
    "plan",
    "preprocess",
    "schedules",
    "streams",
    "theory",
)

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"dokl.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"dokl.{name}")
    raise AttributeError(f"module 'dokl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
