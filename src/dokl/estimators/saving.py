"""Estimators to data files and back; docs/format.md describes the files.

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

from dokl.base import files
from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput, FingerprintMismatch
from dokl.base.files import whole
from dokl.base.fingerprints import agreed_fingerprint
from dokl.base.random_numbers import check_seed
from dokl.estimators import old_files, predict_only
from dokl.estimators.auto import AutoClassifier, AutoRegressor
from dokl.estimators.diffusion import DiffusionClassifier, DiffusionRegressor
from dokl.estimators.guesses import FirstRows, unpacked
from dokl.estimators.inputs import column_names_of, float_type, machine_memory
from dokl.estimators.kernel import KernelClassifier, KernelRegressor
from dokl.estimators.late import WaitingRows
from dokl.estimators.network import NetworkClassifier, NetworkRegressor
from dokl.estimators.plain import (
    check_components,
    check_parameters,
    links_of,
    node_names,
    pack,
    pack_made,
    packed_weights,
    take_nodes,
    unpack,
    unpack_made,
    unpacked_graph,
    unpacked_weights,
)
from dokl.estimators.predict_only import FoldedClassifier, FoldedRegressor
from dokl.estimators.transformer import RandomFeatures
from dokl.learning import schedules
from dokl.learning.calibration import Calibration
from dokl.learning.columns import Preprocessor
from dokl.learning.experts import saving as banks
from dokl.learning.experts.scaling import Scaling
from dokl.learning.features import FeatureMap, Features
from dokl.learning.kernels import Custom
from dokl.network import saving as networks
from dokl.network import state as states
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem, slots_of
from dokl.simulation.methods import gradient

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


def save(
    estimator: Any, path: files.PathLike, extra: Extra | None = None, exact: bool = False
) -> Path:
    """Write a fitted estimator to a file, whole or not at all; an earlier file is replaced.

    Kernels, losses and schedules of your own are Python code: the file has their names, and
    `load_with_extra` takes them back by name. `extra` is (meta, arrays) that belong to the model
    but not to the estimator: what `dokl.models` needs to make a `TableModel` of it. exact: whether
    covariances keep their bits, at twice the size.
    """
    _check_savable(estimator)
    _check_size(estimator)
    more, more_arrays = extra or ({}, {})
    meta, arrays = _parameters(estimator)
    meta |= {"class": type(estimator).__name__, "extra": dict(more)}
    meta["fingerprint"] = estimator.fingerprint_
    if isinstance(estimator, AUTO):
        about, made = banks.encode(estimator.bank_, exact)
        meta |= {"bank": about, **_about_targets(estimator)}
        arrays |= {f"bank.{name}": array for name, array in made.items()} | _labels(estimator)
    elif isinstance(estimator, FOLDED):
        about, made = predict_only.encode(estimator)
        meta |= {"folded": about, **_about_targets(estimator)}
        arrays |= {f"folded.{name}": array for name, array in made.items()} | _labels(estimator)
    elif isinstance(estimator, NETWORKS):
        about, made = _of_network(estimator, exact)
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


def _check_savable(estimator: object) -> None:
    if ESTIMATORS.get(type(estimator).__name__) is not type(estimator):
        known = ", ".join(ESTIMATORS)
        raise BadInput(
            f"a {type(estimator).__name__} cannot be saved here, only {known}{_of_steps(estimator)}"
        )
    if not any(
        hasattr(estimator, name) for name in ("feature_map_", "network_", "bank_", "folded_")
    ):
        raise BadInput(f"a {type(estimator).__name__} that has learned nothing cannot be saved")


def _of_steps(pipeline: object) -> str:
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


def _of_network(model: Any, exact: bool) -> tuple[dict[str, Any], Arrays]:
    """A network of learners that also learn from others, as JSON and arrays."""
    about, made = networks.encode(model._learning(), exact)
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
    """How columns become inputs; of columns of numbers only their means are stored."""
    about, sums = prepared.spec()
    arrays = {f"columns.{name}": array for name, array in sums.items()}
    return {} if prepared.numbers_only else {"columns": about}, arrays


def _about_targets(model: object) -> dict[str, Any]:
    """What y is, as far as JSON holds it."""
    meta = {}
    if hasattr(model, "_flat"):
        meta["flat"] = model._flat
    if hasattr(model, "classes_") and not _plain(model.classes_):
        meta["classes"] = [pack(label) for label in model.classes_.tolist()]
    return meta


def _labels(model: object) -> Arrays:
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


# -- loading --------------------------------------------------------------------------------------
UPGRADE = "pip install -U dokl"
# What a file that passes its checksum and makes no sense all the same leads to.
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError)

Objects = Mapping[str, Any] | None


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


def _estimator(meta: dict[str, Any], arrays: Arrays, objects: Objects) -> Any:
    meta = old_files.of_two_classes(meta)
    made = ESTIMATORS.get(meta["class"])
    if made is None:
        raise BadInput(f"a {meta['class']} is unknown to this dokl: upgrade with {UPGRADE}")
    params = _unpacked(made, meta["params"], arrays, objects)
    check_parameters(params)
    model = made(**params)
    if made in AUTO:
        return _auto(model, meta, arrays)
    if made in FOLDED:
        return _unfold(model, meta, arrays)
    if made in NETWORKS:
        return _network(model, meta, arrays)
    if made is not RandomFeatures:
        D = arrays["state.theta"].shape[-1]
        whole("D", meta["features"]["D"], D, D)
    drawn = model.feature_map_ = _drawn(meta["features"], objects)
    check_components(model, drawn.D)
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
    model.bank_ = banks.decode(meta["bank"], _own("bank.", arrays))
    model.n_features_in_ = model.bank_.d
    check_components(model, model.bank_.settings.most)
    _take_targets(model, meta, arrays)
    classes = len(model.classes_) if model._classifying else 0
    whole("classes", model.bank_.settings.classes, classes, classes)
    if model.bank_.settings.grouped is not (model.groups is not None):
        raise ValueError("the bank is of groups, or of none, where the parameter says otherwise")
    if model.groups is not None:
        model._group_column()
    if "class_count" in arrays:
        model.class_count_ = arrays["class_count"]
    if model.fingerprint_ != meta["fingerprint"]:
        raise FingerprintMismatch("the saved model", model.fingerprint_, meta["fingerprint"])
    return model


def _network(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> Any:
    """A network of learners that also learn from others; of an earlier version, what predicts as it
    did.
    """
    model.weights_, names = unpacked_weights(arrays), len(meta["nodes"])
    take_nodes(model, meta)
    if "network" in meta:
        model.network_ = old_files.network(meta["network"], arrays, names, str(meta["fingerprint"]))
        model.n_features_in_ = len(arrays["map.lengths"])
    else:
        model.network_ = networks.decode(meta["banks"], _own("banks.", arrays))
        model.n_features_in_ = model.network_.nodes[0].own.d
        model._check_size()
    _take_targets(model, meta, arrays)
    if "banks" in meta:
        classes = len(model.classes_) if model._classifying else 0
        whole("classes", model.network_.nodes[0].own.settings.classes, classes, classes)
    if model.fingerprint_ != meta["fingerprint"]:
        raise FingerprintMismatch("the saved model", model.fingerprint_, meta["fingerprint"])
    return model


def _unfold(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> Any:
    """An estimator that predicts only."""
    about, own = meta["folded"], _own("folded.", arrays)
    predict_only.resume(
        model, *(old_files.folded(about, own) if "$" not in about else (about, own))
    )
    model.fingerprint_ = str(meta["fingerprint"])
    _take_targets(model, meta, arrays)
    return model


def _own(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose names begin so, under the rest of their names."""
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def _take_targets(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> None:
    """The inputs' names, and what y is."""
    if "feature_names" in arrays:
        model.feature_names_in_ = arrays["feature_names"].astype(object)
    _take_columns(model, meta, arrays)
    _take_flat(model, meta)
    if model._classifying:
        model.classes_ = _classes(meta, arrays)
        model.calibration_ = _calibration(model, arrays)


def _take_columns(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> None:
    """How columns become inputs, which files of earlier versions do not say."""
    d = model.n_features_in_
    if "waiting" in meta:
        model.waiting_ = WaitingRows.from_file(meta["waiting"], _own("waiting.", arrays), d)
    if "columns.count" not in arrays:
        return
    plain = {"standardise": "off", "frozen": False, "excluded": []}
    names = {"numeric": list(column_names_of(model)), "levels": []}
    prepared = Preprocessor.from_spec(meta.get("columns", plain | names), _own("columns.", arrays))
    whole("inputs", prepared.d, d, d)
    model.preprocessor_, model.n_features_in_ = prepared, len(prepared.columns)


def _take_flat(model: Any, meta: Mapping[str, Any]) -> None:
    if "flat" in meta:
        if not isinstance(meta["flat"], bool):
            raise ValueError(f"flat is {meta['flat']!r}: true or false is expected")
        model._flat = meta["flat"]


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
    graph = packed.pop("graph", None)
    params: dict[str, Any] = {name: unpack(value, objects) for name, value in packed.items()}
    if isinstance(params.get("class_weight"), tuple):
        params["class_weight"] = dict(params["class_weight"])
    if graph is not None:
        params["graph"] = graph if isinstance(graph, str) else unpacked_graph(graph, arrays)
    return params


def _drawn(spec: Mapping[str, Any], objects: Objects) -> FeatureMap:
    kernel = unpack_made("kernel", spec["kernel"], objects)
    recipe = Features(kernel, *(spec[key] for key in ("d", "D", "variant")))
    seed, fingerprint = check_seed(spec["seed"]), spec["fingerprint"]
    # Of most kernels the fingerprint is known before anything is drawn, which may take much memory.
    known = FeatureMap(kernel, recipe.d, recipe.D, recipe.variant, seed)
    if not isinstance(kernel, Custom) and known.fingerprint != fingerprint:
        raise FingerprintMismatch("the saved feature map", known.fingerprint, fingerprint)
    need = 8.0 * (recipe.D + recipe.d if recipe.variant == "structured" else recipe.D * recipe.d)
    if need > 0.7 * machine_memory():
        text = f"its feature map, D = {recipe.D} of {recipe.d} inputs, takes {need / 1e9:,.0f} GB"
        raise BadInput(f"{text}, more than this machine has")
    drawn = recipe.draw(seed)
    if drawn.fingerprint != fingerprint:
        raise FingerprintMismatch("the saved feature map", drawn.fingerprint, fingerprint)
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
    _take_flat(model, meta)
    if model._classifying:
        model.classes_ = _classes(meta, arrays)
    model.state_ = _state(model, arrays)
    model._unit = _unit(model, arrays)
    model._first = _first_rows(model, meta, arrays)
    model.fingerprint_ = agreed_fingerprint(model.feature_map_.fingerprint, **model._agreed())


def _unit(model: Any, arrays: Arrays) -> Scaling | None:
    """The targets' unit; files of version 0.1 have none, whatever the loss."""
    if "targets.size" not in arrays:
        return None
    unit = Scaling(arrays["targets.centre"], arrays["targets.size"])
    m = model.state_.theta.shape[1]
    if unit.centre.shape != (m,) or unit.size.shape != (m,):
        raise ValueError(f"the targets' unit is for {unit.centre.shape} and {unit.size.shape}")
    if not np.isfinite(unit.centre).all() or not (unit.size > 0).all():
        raise ValueError("the targets' unit cannot be used")
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
