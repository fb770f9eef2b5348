"""Estimators from their files; `saving` writes them, and docs/format.md says what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dokl.base import files
from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput, FingerprintMismatch
from dokl.base.files import whole
from dokl.base.fingerprints import agreed_fingerprint
from dokl.base.random_numbers import check_seed
from dokl.estimators import old_networks
from dokl.estimators.checked import float_type, machine_memory
from dokl.estimators.diffusion import DiffusionRegressor
from dokl.estimators.first import FirstRows, unpacked
from dokl.estimators.frames import column_names_of
from dokl.estimators.graph_saving import (
    take_nodes,
    unpacked_graph,
    unpacked_weights,
)
from dokl.estimators.late import WaitingRows
from dokl.estimators.network import NetworkRegressor
from dokl.estimators.parameters import check_components, check_parameters
from dokl.estimators.plain import unpack, unpack_made
from dokl.estimators.saving import AUTO, ESTIMATORS, EXCHANGE, FOLDED, KIND, NETWORKS, Arrays, Extra
from dokl.estimators.transformer import RandomFeatures
from dokl.learning import drift, schedules
from dokl.learning.calibration import Calibration
from dokl.learning.columns import Preprocessor
from dokl.learning.experts import folding
from dokl.learning.experts import saving as banks
from dokl.learning.experts.scaling import Scaling
from dokl.learning.features import FeatureMap, Features
from dokl.learning.intervals import Tracker
from dokl.learning.kernels import Custom
from dokl.network import saving as networks
from dokl.network import state as states
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem, slots_of
from dokl.simulation.methods import gradient

UPGRADE = "pip install -U dokl"
# What a file that passes its checksum and makes no sense all the same leads to.
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError)

# Parameters of gradient diffusion, which files of cooperating nodes once had as well.
OF_DIFFUSION = set(DiffusionRegressor._get_param_names()) - set(NetworkRegressor._get_param_names())

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
    meta = _of_two_classes(meta)
    made = ESTIMATORS.get(meta["class"])
    if made is None:
        raise BadInput(f"a {meta['class']} is unknown to this dokl: upgrade with {UPGRADE}")
    params = _unpacked(made, meta["params"], arrays, objects)
    check_parameters(params)
    model = made(**params)
    if made in AUTO:
        return _auto(model, meta, arrays)
    if made in FOLDED:
        return _unfolded(model, meta, arrays)
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


def _of_two_classes(meta: dict[str, Any]) -> dict[str, Any]:
    """The description of a file from the time when one class was both kinds of network.

    Its parameters are those of both. A file that has a "network" is of nodes that cooperate, any
    other of gradient diffusion, also if it is older than the parameter `learner`.
    """
    kind, params = str(meta["class"]), dict(meta["params"])
    cooperates = "network" in meta
    if not kind.startswith("Network") or "banks" in meta:
        return meta
    if cooperates and "learner" not in params:
        return meta
    params.pop("learner", None)
    auto = {"every": 1, "n_components": 300 if cooperates else 500}
    params |= {name: n for name, n in auto.items() if params.get(name) == "auto"}
    if cooperates:
        params = {name: value for name, value in params.items() if name not in OF_DIFFUSION}
        return {**meta, "params": params}
    return {**meta, "class": kind.replace("Network", "Diffusion"), "params": params}


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
    """A network of lone learners that listen; of an earlier version, what predicts as it did."""
    model.weights_, names = unpacked_weights(arrays), len(meta["nodes"])
    take_nodes(model, meta)
    if "network" in meta:
        model.network_ = old_networks.from_arrays(
            meta["network"], arrays, names, str(meta["fingerprint"])
        )
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


def _unfolded(model: Any, meta: Mapping[str, Any], arrays: Arrays) -> Any:
    """An estimator that predicts only."""
    own, about = _own("folded.", arrays), meta["folded"]
    if "parts" in about:
        given = [(kernels, _own(f"{i}.", own)) for i, kernels in enumerate(about["parts"])]
    else:
        given = [(about["kernels"], own)]
    model.folded_ = tuple(folding.from_arrays(*each) for each in given)
    model.rows_, model.remembers_ = whole("rows", about["rows"]), str(about["remembers"])
    m, d = _shape_of(model.folded_)
    L = len(own["levels"])
    levels, widths = folding.checked(own, "levels", L), folding.checked(own, "widths", m, L)
    model.tracker_ = Tracker(levels, widths, np.zeros_like(widths))
    model.spread_ = folding.checked(own, "spread", m)
    model.relevance_ = folding.checked(own, "relevance", d)
    if "drift" in own:
        model.counts_ = drift.untrimmed(own["drift"], m)
    model.n_features_in_, model.fingerprint_ = d, str(meta["fingerprint"])
    _take_targets(model, meta, arrays)
    return model


def _shape_of(parts: tuple[folding.Part, ...]) -> tuple[int, int]:
    """Outputs and inputs, the same of all parts; ValueError where they are not."""
    shapes = {
        (len(part.constant), len(part.omega))
        if isinstance(part, folding.Waves)
        else part.slope.shape
        for part in parts
    }
    if len(shapes) != 1:
        raise ValueError("parts are of different inputs or outputs")
    m, d = shapes.pop()
    return m, d


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
