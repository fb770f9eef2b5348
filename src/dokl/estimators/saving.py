"""Saving estimators to data files and loading them; docs/format.md specifies what is written.

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
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from dokl import files, schedules
from dokl import state as states
from dokl.arrays import Array
from dokl.calibration import Calibration
from dokl.diffusion import Problem, slots_of
from dokl.errors import BadFile, BadInput, FingerprintMismatch
from dokl.estimators import network_saving as networks
from dokl.estimators.auto_classifier import AutoClassifier
from dokl.estimators.auto_regressor import AutoRegressor
from dokl.estimators.checked import float_type
from dokl.estimators.first import FirstRows, unpacked
from dokl.estimators.graph_saving import (
    links_of,
    node_names,
    packed_weights,
    take_nodes,
    unpacked_graph,
    unpacked_weights,
)
from dokl.estimators.kernel import KernelClassifier, KernelRegressor
from dokl.estimators.network import NetworkClassifier, NetworkRegressor
from dokl.estimators.plain import pack, pack_made, unpack, unpack_made
from dokl.estimators.predict_only import FoldedClassifier, FoldedRegressor
from dokl.estimators.transformer import RandomFeatures
from dokl.estimators.units import Unit
from dokl.exchange import Exchange
from dokl.experts import folding
from dokl.experts import saving as banks
from dokl.features import FeatureMap, sample
from dokl.fingerprints import agreed_fingerprint
from dokl.intervals import Tracker
from dokl.methods import gradient
from dokl.state import State

KIND, UPGRADE = "model", "pip install -U dokl"
LEARNERS = (KernelRegressor, KernelClassifier, NetworkRegressor, NetworkClassifier)
AUTO = (AutoRegressor, AutoClassifier)
FOLDED = (FoldedRegressor, FoldedClassifier)
EVERY = (*LEARNERS, *AUTO, *FOLDED, RandomFeatures)
ESTIMATORS: dict[str, Any] = {made.__name__: made for made in EVERY}
EXCHANGE = ("order", "every", "intercept", "average")
# What a file that passes its checksum and makes no sense all the same leads to.
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError)

Extra = tuple[Mapping[str, Any], Mapping[str, Any]]
Arrays = dict[str, Array]
Objects = Mapping[str, Any] | None


def save(estimator: Any, path: files.PathLike, extra: Extra | None = None) -> Path:
    """Write a fitted estimator to a file, whole or not at all; an earlier file is replaced.

    Kernels, losses and schedules of your own are Python code: the file has their names, and
    `load_with_extra` takes them back by name. `extra` is (meta, arrays) that belong to the model
    but not to the estimator: what `dokl.models` needs to make a `TableModel` of it.
    """
    _check_savable(estimator)
    more, more_arrays = extra or ({}, {})
    meta, arrays = _parameters(estimator)
    meta |= {"class": type(estimator).__name__, "extra": dict(more)}
    meta["fingerprint"] = estimator.fingerprint_
    if isinstance(estimator, AUTO):
        meta |= {"bank": banks.to_meta(estimator.bank_), **_about_targets(estimator)}
        arrays |= {f"bank.{k}": a for k, a in banks.to_arrays(estimator.bank_).items()}
        arrays |= _labels(estimator)
    elif isinstance(estimator, FOLDED):
        about, made = _folded(estimator)
        meta, arrays = meta | about, arrays | made
    elif hasattr(estimator, "network_"):
        about, made = _cooperating(estimator)
        meta, arrays = meta | about, arrays | made
    else:
        meta["features"] = _features(estimator.feature_map_)
    if hasattr(estimator, "feature_names_in_"):
        arrays["feature_names"] = np.asarray(estimator.feature_names_in_, str)
    if isinstance(estimator, LEARNERS) and not hasattr(estimator, "network_"):
        meta |= _learner(estimator)
        arrays |= _arrays(estimator)
    arrays |= {f"extra.{name}": np.asarray(array) for name, array in more_arrays.items()}
    return files.write(path, KIND, meta, arrays)


def load_with_extra(path: files.PathLike, objects: Objects = None) -> tuple[Any, Extra]:
    """(estimator, (meta, arrays)): as if never saved, and the `extra` that was saved with it.

    objects: {name: object} for kernels, losses and schedules of your own.
    """
    meta, arrays = files.read(path, KIND)
    try:
        estimator = _estimator(meta, arrays, objects)
        return estimator, (dict(meta["extra"]), _own("extra.", arrays))
    except FingerprintMismatch as error:
        error.args = (f"{path}: {error}",)
        raise
    except BadInput as error:
        raise BadFile(f"{path}: {error}") from error
    except DAMAGE as error:
        raise BadFile(f"{path}: the file is damaged ({error!r})") from error


# -- saving ------------------------------------------------------------------------------------
def _check_savable(estimator: Any) -> None:
    if ESTIMATORS.get(type(estimator).__name__) is not type(estimator):
        known = ", ".join(ESTIMATORS)
        raise BadInput(
            f"a {type(estimator).__name__} cannot be saved here, only {known}{_of_steps(estimator)}"
        )
    if not any(hasattr(estimator, name) for name in ("feature_map_", "bank_", "folded_")):
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
        auto = isinstance(estimator, AUTO)
        drawn = estimator.bank_.settings if auto else estimator.feature_map_
        drawn = getattr(estimator, "network_", drawn)
        params["random_state"] = drawn.seed
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


def _folded(model: Any) -> tuple[dict[str, Any], Arrays]:
    """What predicts and no more, as JSON and arrays."""
    kernels, made = folding.to_arrays(model.folded_)
    about = {"kernels": kernels, "rows": model.rows_, "remembers": model.remembers_}
    made |= {"levels": model.tracker_.levels, "widths": model.tracker_.width}
    made |= {"spread": model.spread_, "relevance": model.relevance_}
    arrays = {f"folded.{name}": array for name, array in made.items()} | _labels(model)
    return {"folded": about, **_about_targets(model)}, arrays


def _cooperating(model: Any) -> tuple[dict[str, Any], Arrays]:
    """A network that cooperates, as JSON and arrays."""
    meta = {"network": networks.to_meta(model.network_), "nodes": node_names(model)}
    meta |= {"every": model.exchange_.every, **_about_targets(model)}
    arrays = networks.to_arrays(model.network_) | packed_weights(model.exchange_)
    return meta, arrays | _labels(model)


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
    arrays = states.to_arrays(model.state_, prefix="state.") | packed_weights(model.exchange_)
    if model._unit is not None:
        arrays |= {"targets.centre": model._unit.centre, "targets.size": model._unit.size}
    if model._first is not None:
        arrays |= {f"first.{name}": array for name, array in model._first.packed().items()}
    return arrays | _labels(model)


def _plain(labels: Array) -> bool:
    """Numbers, truth values or text, as an array can hold them; other labels go as JSON."""
    return labels.dtype.kind in "biufU"


# -- loading -----------------------------------------------------------------------------------
def _estimator(meta: dict[str, Any], arrays: Arrays, objects: Objects) -> Any:
    made = ESTIMATORS.get(meta["class"])
    if made is None:
        raise BadInput(f"a {meta['class']} is unknown to this dokl: upgrade with {UPGRADE}")
    model = made(**_unpacked(made, meta["params"], arrays, objects))
    if made in AUTO:
        return _auto(model, meta, arrays)
    if made in FOLDED:
        return _unfolded(model, meta, arrays)
    if "network" in meta:
        return _cooperated(model, meta, arrays)
    drawn = model.feature_map_ = _drawn(meta["features"], objects)
    model.sigma_ = float(getattr(drawn.kernel, "sigma", np.nan))
    model.n_features_in_ = drawn.d
    if "feature_names" in arrays:
        model.feature_names_in_ = arrays["feature_names"].astype(object)
    if made is RandomFeatures:
        model.fingerprint_, model._n_features_out = drawn.fingerprint, drawn.D
    else:
        _resume(model, meta, arrays, objects)
    if model.fingerprint_ != meta["fingerprint"]:
        raise FingerprintMismatch("the saved model", model.fingerprint_, meta["fingerprint"])
    return model


def _auto(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> Any:
    """An estimator without settings; its bank is all it knows."""
    model.bank_ = banks.from_arrays(meta["bank"], _own("bank.", arrays))
    model.n_features_in_ = model.bank_.d
    _take_targets(model, meta, arrays)
    if "class_count" in arrays:
        model.class_count_ = arrays["class_count"]
    if model.fingerprint_ != meta["fingerprint"]:
        raise FingerprintMismatch("the saved model", model.fingerprint_, meta["fingerprint"])
    return model


def _cooperated(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> Any:
    """A network that cooperates."""
    model.exchange_ = Exchange(unpacked_weights(arrays), "atc", int(meta["every"]))
    found = networks.from_arrays(meta["network"], model.exchange_, arrays)
    model.learner_, model.engine_, model.dtype_ = "cooperation", "numba", np.float64
    model._first, model._seed, model.n_features_in_ = None, found.seed, len(arrays["map.lengths"])
    take_nodes(model, meta)
    if len(model.nodes_) != found.K:
        raise ValueError(f"{len(model.nodes_)} names for {found.K} nodes")
    if "feature_names" in arrays:
        model.feature_names_in_ = arrays["feature_names"].astype(object)
    if "flat" in meta:
        model._flat = bool(meta["flat"])
    if model._classifying:
        model.classes_ = _classes(meta, arrays)
        model.calibration_ = _calibration(model, arrays)
    model.network_ = found
    model._take(found)
    if model.fingerprint_ != meta["fingerprint"]:
        raise FingerprintMismatch("the saved model", model.fingerprint_, meta["fingerprint"])
    return model


def _unfolded(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> Any:
    """An estimator that predicts only."""
    own, about = _own("folded.", arrays), meta["folded"]
    model.folded_ = folding.from_arrays(about["kernels"], own)
    model.rows_, model.remembers_ = int(about["rows"]), str(about["remembers"])
    (m, d), L = model.folded_.slope.shape, len(own["levels"])
    levels, widths = folding.checked(own, "levels", L), folding.checked(own, "widths", m, L)
    model.tracker_ = Tracker(levels, widths, np.zeros_like(widths))
    model.spread_ = folding.checked(own, "spread", m)
    model.relevance_ = folding.checked(own, "relevance", d)
    model.n_features_in_, model.fingerprint_ = d, str(meta["fingerprint"])
    _take_targets(model, meta, arrays)
    return model


def _own(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose names begin so, under the rest of their names."""
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def _take_targets(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> None:
    """The inputs' names, and what y is."""
    if "feature_names" in arrays:
        model.feature_names_in_ = arrays["feature_names"].astype(object)
    if "flat" in meta:
        model._flat = bool(meta["flat"])
    if model._classifying:
        model.classes_ = _classes(meta, arrays)
        model.calibration_ = _calibration(model, arrays)


def _calibration(model: Any, arrays: Arrays) -> Calibration:
    names = [each.name for each in fields(Calibration)]
    found = Calibration(*(arrays[f"calibration.{name}"] for name in names))
    if len(found.bias) != len(model.classes_):
        raise ValueError("the calibration is of other classes")
    return found


def _unpacked(made: Any, packed: Any, arrays: Arrays, objects: Objects) -> dict[str, Any]:
    unknown = sorted(set(packed) - set(made._get_param_names()))
    if unknown:
        raise BadInput(
            f"{made.__name__} has no parameter {', '.join(unknown)} here: the file was written by "
            f"a newer dokl, upgrade with {UPGRADE}"
        )
    packed = dict(packed)
    if "learner" in made._get_param_names() and "learner" not in packed:
        packed["learner"] = pack("gradient")  # all that versions before could be
    graph = packed.pop("graph", None)
    params: dict[str, Any] = {name: unpack(value, objects) for name, value in packed.items()}
    if isinstance(params.get("class_weight"), tuple):
        params["class_weight"] = dict(params["class_weight"])
    if graph is not None:
        params["graph"] = graph if isinstance(graph, str) else unpacked_graph(graph, arrays)
    return params


def _drawn(spec: Mapping[str, Any], objects: Objects) -> FeatureMap:
    kernel = unpack_made("kernel", spec["kernel"], objects)
    drawn = sample(kernel, *(spec[key] for key in ("d", "D", "variant", "seed")))
    if drawn.fingerprint != spec["fingerprint"]:
        raise FingerprintMismatch("the saved feature map", drawn.fingerprint, spec["fingerprint"])
    return drawn


def _resume(model: Any, meta: Mapping[str, Any], arrays: Arrays, objects: Objects) -> None:
    """Set what `_start` and the learning had set; the engine's plan is made when first needed."""
    model._seed, model.dtype_ = model.feature_map_.seed, float_type(meta["dtype"])
    model.exchange_ = Exchange(
        unpacked_weights(arrays), *(meta["exchange"][key] for key in EXCHANGE)
    )
    model.loss_ = unpack_made("loss", meta["loss"], objects)
    model.schedule_ = schedules.resolve(unpack_made("schedule", meta["schedule"], objects))
    step = gradient(model.loss_, model.schedule_, meta["lam"])
    model._problem = Problem(model.feature_map_, step)
    model.engine_ = str(meta["engine"])
    if "nodes" in meta:
        take_nodes(model, meta)
        model.learner_ = "gradient"
    if "flat" in meta:
        model._flat = bool(meta["flat"])
    if model._classifying:
        model.classes_ = _classes(meta, arrays)
    model.state_ = _state(model, arrays)
    model._unit = _unit(model, arrays)
    model._first = _first_rows(model, meta, arrays)
    model.fingerprint_ = agreed_fingerprint(model.feature_map_.fingerprint, **model._agreed())


def _unit(model: Any, arrays: Arrays) -> Unit | None:
    """The targets' unit; files of version 0.1 have none, whatever the loss."""
    if "targets.size" not in arrays:
        return None
    unit = Unit(arrays["targets.centre"], arrays["targets.size"])
    m = model.state_.theta.shape[1]
    if unit.centre.shape != (m,) or unit.size.shape != (m,):
        raise ValueError(f"the targets' unit is for {unit.centre.shape} and {unit.size.shape}")
    if not np.isfinite(unit.centre).all() or not (unit.size > 0).all():
        raise ValueError("the targets' unit is none")
    return unit


def _first_rows(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> FirstRows | None:
    if "first" not in meta:
        return None
    K, m, _ = model.state_.theta.shape
    return unpacked(meta["first"], _own("first.", arrays), K, m, model.feature_map_.d)


def _classes(meta: Mapping[str, Any], arrays: Arrays) -> Array:
    if "classes" in arrays:
        return arrays["classes"]
    labels = [unpack(label) for label in meta["classes"]]
    return np.fromiter(labels, object, len(labels))


def _state(model: Any, arrays: Arrays) -> State:
    """All that was learned, once its shapes and types agree with the rest of the file."""
    K, m = len(getattr(model, "nodes_", [0])), _outputs(model, arrays)
    slots = slots_of(model._problem, model.exchange_, m)
    return states.check(states.from_arrays(arrays, slots, "state."), slots, K, model.dtype_)


def _outputs(model: Any, arrays: Arrays) -> int:
    """m: one for a single target or two classes."""
    if model._classifying:
        return len(model.classes_) if len(model.classes_) > 2 else 1
    return 1 if model._flat else int(arrays["state.theta"].shape[1])
