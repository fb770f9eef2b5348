"""Saving estimators to data files, which `loading` reads; docs/format.md says what is in them.

>>> import tempfile
>>> import dokl
>>> X = np.random.default_rng(0).normal(size=(500, 2))
>>> model = dokl.KernelRegressor(random_state=0).fit(X, X[:, 0] * X[:, 1])
>>> with tempfile.TemporaryDirectory() as folder:
...     path = dokl.save(model, folder + "/product.safetensors")
...     loaded = dokl.load(path)
>>> bool((loaded.predict(X) == model.predict(X)).all())
True

Features are not stored but drawn again from their seed, and their fingerprint is compared, so a
file is little more than the vectors theta. Its size does not depend on how much was learned, but
for the first few rows, which are in it while they may still change the width.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base import files
from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.estimators.auto_classifier import AutoClassifier
from dokl.estimators.auto_regressor import AutoRegressor
from dokl.estimators.diffusion import DiffusionClassifier, DiffusionRegressor
from dokl.estimators.graph_saving import (
    links_of,
    node_names,
    packed_weights,
)
from dokl.estimators.kernel import KernelClassifier, KernelRegressor
from dokl.estimators.network import NetworkClassifier, NetworkRegressor
from dokl.estimators.parameters import check_components
from dokl.estimators.plain import pack, pack_made
from dokl.estimators.predict_only import FoldedClassifier, FoldedRegressor
from dokl.estimators.transformer import RandomFeatures
from dokl.learning import drift, schedules
from dokl.learning.columns import Preprocessor
from dokl.learning.experts import folding
from dokl.learning.experts import saving as banks
from dokl.learning.features import FeatureMap
from dokl.network import saving as networks
from dokl.network import state as states

KIND = "model"
GRADIENT = (KernelRegressor, KernelClassifier, DiffusionRegressor, DiffusionClassifier)
NETWORKS = (NetworkRegressor, NetworkClassifier)
AUTO = (AutoRegressor, AutoClassifier)
FOLDED = (FoldedRegressor, FoldedClassifier)
EVERY = (*GRADIENT, *NETWORKS, *AUTO, *FOLDED, RandomFeatures)
ESTIMATORS: dict[str, Any] = {made.__name__: made for made in EVERY}
EXCHANGE = ("order", "every", "intercept", "average")

Extra = tuple[Mapping[str, Any], Mapping[str, Any]]
Arrays = dict[str, Array]


def save(estimator: Any, path: files.PathLike, extra: Extra | None = None) -> Path:
    """Write a fitted estimator to a file, whole or not at all; an earlier file is replaced.

    Kernels, losses and schedules of your own are Python code: the file has their names, and
    `load_with_extra` takes them back by name. `extra` is (meta, arrays) that belong to the model
    but not to the estimator: what `dokl.models` needs to make a `TableModel` of it.
    """
    _check_savable(estimator)
    _check_size(estimator)
    more, more_arrays = extra or ({}, {})
    meta, arrays = _parameters(estimator)
    meta |= {"class": type(estimator).__name__, "extra": dict(more)}
    meta["fingerprint"] = estimator.fingerprint_
    if isinstance(estimator, AUTO):
        about, made = banks.encode(estimator.bank_)
        meta |= {"bank": about, **_about_targets(estimator)}
        arrays |= {f"bank.{name}": array for name, array in made.items()} | _labels(estimator)
    elif isinstance(estimator, FOLDED):
        about, made = _folded(estimator)
        meta, arrays = meta | about, arrays | made
    elif isinstance(estimator, NETWORKS):
        about, made = _network(estimator)
        meta, arrays = meta | about, arrays | made
    else:
        meta["features"] = _features(estimator.feature_map_)
    if hasattr(estimator, "feature_names_in_"):
        arrays["feature_names"] = np.asarray(estimator.feature_names_in_, str)
    if hasattr(estimator, "preprocessor_"):
        about, made = _columns(estimator.preprocessor_)
        meta, arrays = meta | about, arrays | made
    if hasattr(estimator, "waiting_"):
        meta["waiting"], made = estimator.waiting_.to_file()
        arrays |= {f"waiting.{name}": array for name, array in made.items()}
    if isinstance(estimator, GRADIENT):
        meta |= _learner(estimator)
        arrays |= _arrays(estimator)
    arrays |= {f"extra.{name}": np.asarray(array) for name, array in more_arrays.items()}
    return files.write(path, KIND, meta, arrays)


def _check_size(estimator: Any) -> None:
    """Files whose parameters do not fit what was learned are refused, so none is written."""
    if isinstance(estimator, AUTO):
        check_components(estimator, estimator.bank_.settings.most)
    elif isinstance(estimator, NETWORKS):
        estimator._check_size()
    elif not isinstance(estimator, FOLDED):
        check_components(estimator, estimator.feature_map_.D)


def _check_savable(estimator: Any) -> None:
    if ESTIMATORS.get(type(estimator).__name__) is not type(estimator):
        known = ", ".join(ESTIMATORS)
        raise BadInput(
            f"a {type(estimator).__name__} cannot be saved here, only {known}{_of_steps(estimator)}"
        )
    if not any(
        hasattr(estimator, name) for name in ("feature_map_", "network_", "bank_", "folded_")
    ):
        raise BadInput(f"a {type(estimator).__name__} that has learned nothing cannot be saved")


def _of_steps(pipeline: Any) -> str:
    """What to do with a pipeline, whose other steps are somebody else's code."""
    steps = getattr(pipeline, "steps", None)
    if not isinstance(steps, list) or not steps:
        return ""
    name, last = steps[-1]
    mine = ESTIMATORS.get(type(last).__name__) is type(last)
    own = (
        f". Its last step can, without the others: dokl.save(model[{name!r}], path)" if mine else ""
    )
    return (
        f"{own}. A model that takes raw rows, with the preprocessing inside, is "
        "dokl.fit_table(rows, target=...), or what dokl train writes: these are saved whole"
    )


def _parameters(estimator: Any) -> tuple[dict[str, Any], Arrays]:
    """Constructor parameters as JSON, and the links of a graph."""
    params, arrays = estimator.get_params(deep=False), {}
    if "dtype" in params:
        params["dtype"] = np.dtype(params["dtype"]).name
    if not isinstance(params.get("random_state"), int | np.integer | None):
        params["random_state"] = _seed(estimator)
    if isinstance(params.get("class_weight"), dict):
        given = params["class_weight"].items()
        params["class_weight"] = tuple((pack(k), pack(v)) for k, v in given)
    if callable(params.get("step")):
        params["step"] = schedules.resolve(params["step"])
    graph = params.pop("graph", None)
    packed = {name: pack(value) for name, value in params.items()}
    if isinstance(graph, str):
        packed["graph"] = graph
    elif hasattr(graph, "nodes"):
        packed["graph"] = {"$graph": [pack(name) for name in graph.nodes]}
        arrays["graph.links"] = links_of(graph)
    elif graph is not None:
        packed["graph"] = {"$weights": None}  # those in use, which are saved anyway
    return {"params": packed}, arrays


def _seed(estimator: Any) -> int:
    """The seed that was drawn, where none was given."""
    if isinstance(estimator, AUTO):
        return int(estimator.bank_.settings.seed)
    if isinstance(estimator, NETWORKS):
        return int(estimator._learning().nodes[0].own.settings.seed)
    return int(estimator.feature_map_.seed)


def _folded(model: Any) -> tuple[dict[str, Any], Arrays]:
    """What predicts and no more, as JSON and arrays."""
    about: dict[str, Any] = {"rows": model.rows_, "remembers": model.remembers_}
    parts = [folding.to_arrays(part) for part in model.folded_]
    if len(parts) == 1:
        about["kernels"], made = parts[0]
    else:
        about["parts"] = [kernels for kernels, _ in parts]
        made = {f"{i}.{k}": a for i, (_, own) in enumerate(parts) for k, a in own.items()}
    made |= {"levels": model.tracker_.levels, "widths": model.tracker_.width}
    made |= {"spread": model.spread_, "relevance": model.relevance_}
    if getattr(model, "counts_", None) is not None:
        made["drift"] = drift.trimmed(model.counts_)
    arrays = {f"folded.{name}": array for name, array in made.items()} | _labels(model)
    return {"folded": about, **_about_targets(model)}, arrays


def _network(model: Any) -> tuple[dict[str, Any], Arrays]:
    """A network of lone learners that listen, as JSON and arrays."""
    about, made = networks.encode(model._learning())
    arrays = {f"banks.{name}": array for name, array in made.items()} | _labels(model)
    arrays |= packed_weights(model.weights_)
    return {"banks": about, "nodes": node_names(model), **_about_targets(model)}, arrays


def _features(drawn: FeatureMap) -> dict[str, Any]:
    kernel, fingerprint = pack_made(drawn.kernel), drawn.fingerprint
    numbers = {key: getattr(drawn, key) for key in ("d", "D", "variant", "seed")}
    return {"kernel": kernel, **numbers, "fingerprint": fingerprint}


def _learner(model: Any) -> dict[str, Any]:
    meta = {
        "loss": pack_made(model.loss_),
        "schedule": pack_made(model.schedule_),
        "lam": model._problem.method.lam,
        "exchange": {key: getattr(model.exchange_, key) for key in EXCHANGE},
        "dtype": np.dtype(model.dtype_).name,
        "engine": model.engine_,
    }
    if hasattr(model, "nodes_"):
        meta["nodes"] = node_names(model)
    if model._first is not None:
        meta["first"] = model._first.sigma
    return meta | _about_targets(model)


def _columns(prepared: Preprocessor) -> tuple[dict[str, Any], Arrays]:
    """How columns become inputs; of columns of numbers there is nothing but their means to tell."""
    about, sums = prepared.spec()
    arrays = {f"columns.{name}": array for name, array in sums.items()}
    return {} if prepared.numbers_only else {"columns": about}, arrays


def _about_targets(model: Any) -> dict[str, Any]:
    """What y is, as far as JSON holds it."""
    meta = {}
    if hasattr(model, "_flat"):
        meta["flat"] = model._flat
    if hasattr(model, "classes_") and not _plain(model.classes_):
        meta["classes"] = [pack(label) for label in model.classes_.tolist()]
    return meta


def _labels(model: Any) -> Arrays:
    """Classes that an array can hold, and how often each was seen where that counts."""
    found = {}
    if hasattr(model, "classes_") and _plain(model.classes_):
        found["classes"] = model.classes_
    if hasattr(model, "class_count_"):
        found["class_count"] = model.class_count_
    if hasattr(model, "calibration_"):
        found |= {f"calibration.{name}": a for name, a in vars(model.calibration_).items()}
    return found


def _arrays(model: Any) -> Arrays:
    arrays = states.to_arrays(model.state_, prefix="state.")
    arrays |= packed_weights(model.exchange_.weights)
    if model._unit is not None:
        arrays |= {"targets.centre": model._unit.centre, "targets.size": model._unit.size}
    if model._first is not None:
        arrays |= {f"first.{name}": array for name, array in model._first.packed().items()}
    return arrays | _labels(model)


def _plain(labels: Array) -> bool:
    """Numbers, truth values or text, as an array can hold them; other labels go as JSON."""
    return labels.dtype.kind in "biufU"
