"""dokl: distributed online kernel learning.

The nodes of a network learn one non-linear function together, each from its own stream, with
a model of fixed size, talking only to their neighbours. Read `dokl.simulation.diffusion` first.

Names are imported when first used: `import dokl` itself loads next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

_HOME = {
    "Problem": "simulation.diffusion",
    "Exchange": "network.exchange",
    "Sending": "network.exchange",
    "Mixing": "network.exchange",
    "State": "network.state",
    "gradient": "simulation.methods",
    "squares": "simulation.methods",
    "Trace": "simulation.diffusion",
    "Features": "learning.features",
    "FeatureMap": "learning.features",
    "Gaussian": "learning.kernels",
    "Laplacian": "learning.kernels",
    "Matern": "learning.kernels",
    "Cauchy": "learning.kernels",
    "RationalQuadratic": "learning.kernels",
    "Custom": "learning.kernels",
    "Loss": "learning.losses",
    "Schedule": "learning.schedules",
    "GraphRecipe": "network.graphs",
    "Stream": "simulation.streams",
    "run": "simulation.engines",
    "Plan": "tables.plan",
    "Budget": "tables.plan",
    "AutoRegressor": "estimators",
    "AutoClassifier": "estimators",
    "merge": "estimators",
    "KernelRegressor": "estimators",
    "KernelClassifier": "estimators",
    "NetworkRegressor": "estimators",
    "NetworkClassifier": "estimators",
    "DiffusionRegressor": "estimators",
    "DiffusionClassifier": "estimators",
    "Lags": "estimators",
    "RandomFeatures": "estimators",
    "TableModel": "tables.models",
    "fit_table": "tables.jobs.in_memory",
    "backtest": "tables.jobs.in_memory",
    "save": "tables.models",
    "load": "tables.models",
}
_MODULES = {
    "arrays": "base.arrays",
    "baselines": "paper.baselines",
    "datasets": "paper.datasets",
    "diffusion": "simulation.diffusion",
    "random_numbers": "base.random_numbers",
    "engines": "simulation.engines",
    "errors": "base.errors",
    "estimators": "estimators",
    "exchange": "network.exchange",
    "features": "learning.features",
    "files": "base.files",
    "graphs": "network.graphs",
    "kernels": "learning.kernels",
    "losses": "learning.losses",
    "methods": "simulation.methods",
    "metrics": "learning.metrics",
    "models": "tables.models",
    "plan": "tables.plan",
    "preprocess": "learning.columns",
    "schedules": "learning.schedules",
    "streams": "simulation.streams",
    "theory": "simulation.theory",
}

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"dokl.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"dokl.{_MODULES[name]}")
    raise AttributeError(f"module 'dokl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
