"""Parameters, labels, names and graphs of estimators as JSON and arrays, and back, checked.

Text, numbers and lists are themselves; everything else is a dictionary with a single key that
begins with a dollar sign: {"$tuple": [...]}, {"$float": "nan"}, {"$kernel": {...}}. Numbers of a
file are refused at once where `fit` would refuse them, before anything is made of them.

>>> pack((1, 2.5)), unpack({"$tuple": [1, 2.5]})
({'$tuple': [1, 2.5]}, (1, 2.5))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.files import MOST, real, whole
from dokl.base.random_numbers import check_seed
from dokl.estimators.choices import SIGMAS
from dokl.estimators.inputs import float_type
from dokl.learning import kernels, losses, schedules
from dokl.learning.kernels import Kernel
from dokl.learning.losses import Loss
from dokl.learning.schedules import Schedule


class Savable:
    """An estimator that files hold."""

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the fitted estimator to a data file; `dokl.load` reads it back."""
        from dokl.estimators.saving import save  # which knows all the estimators, this one too

        return save(self, path)


# How each is distinguished, and rebuilt from its description.
_MADE: dict[str, tuple[Any, Any]] = {
    "kernel": (Kernel, kernels.from_spec),
    "loss": (Loss, losses.from_spec),
    "schedule": (Schedule, schedules.from_spec),
}


def pack(value: object) -> Any:
    """The value as JSON can write it; BadInput where that is impossible."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, list | tuple):
        packed = [pack(each) for each in value]
        return packed if isinstance(value, list) else {"$tuple": packed}
    for kind, (made, _) in _MADE.items():
        if isinstance(value, made):
            return {f"${kind}": pack_made(value)}
    raise BadInput(f"{value!r} cannot be saved: only text, numbers and tuples of them can")


def unpack(value: object, objects: Mapping[str, Any] | None = None) -> Any:
    """The value that was packed; `objects` are the kernels, losses... that are code."""
    if isinstance(value, list):
        return [unpack(each, objects) for each in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "$float":
        return float(content)
    if tag == "$tuple":
        return tuple(unpack(each, objects) for each in content)
    return unpack_made(tag.removeprefix("$"), content, objects)


def pack_made(made: Kernel | Loss | Schedule) -> dict[str, Any]:
    """Name and numbers; of one that is code the name alone, since a data file holds no code."""
    spec = made.spec()
    rebuilt = next(rebuild for kind, rebuild in _MADE.values() if isinstance(made, kind))
    try:
        if rebuilt(spec) == made:
            return spec
    except (BadInput, TypeError, KeyError):
        pass  # none of the built-in ones
    return {"name": made.name, "custom": True}


def unpack_made(kind: str, spec: Mapping[str, Any], objects: Mapping[str, Any] | None) -> Any:
    """A kernel, loss or schedule from its description, or from `objects` if it is code."""
    expected, rebuilt = _MADE[kind]
    if not spec.get("custom"):
        return rebuilt(spec)
    name, given = spec["name"], objects or {}
    found = given.get(f"{kind}:{name}", given.get(name))  # the longer key where names collide
    if isinstance(found, expected) or (kind == "schedule" and callable(found)):
        return found
    if found is not None:
        raise BadInput(f"objects[{name!r}] must be a {kind}, got {found!r}")
    raise BadInput(
        f"this model has a {kind} of your own, {name!r}: it is Python code, which a model file "
        f"does not hold. Pass it to load: load(path, objects={{{name!r}: ...}})"
    )


# -- parameters, checked --------------------------------------------------------------------------
def check_parameters(params: Mapping[str, Any]) -> None:
    """Refuse numbers that `fit` would refuse; names are left to it."""
    for name, value in params.items():
        check = _CHECKS.get(name)
        if check is not None:
            check(name, value)


def check_components(model: Any, D: int) -> None:
    """Refuse a number of components that is not the one that was fitted, D."""
    if model.n_components not in ("auto", D):
        raise BadInput(
            f"n_components is {model.n_components!r}, and the model was fitted with {D}: set it "
            "back, or fit again"
        )


def _count(name: str, value: object) -> None:
    if value != "auto":
        whole(name, value, 1, MOST)


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        whole(name, value, 0, 100)  # scikit-learn's verbose may be a number


def _at_least_zero(name: str, value: object) -> None:
    if not isinstance(value, bool):  # intercept=True
        real(name, value)


def _above_zero(name: str, value: object) -> None:
    real(name, value, above=True, infinite=True)


def _sigma(name: str, value: Any) -> None:
    several = isinstance(value, list | tuple) and len(value) > 0
    for each in value if several else [value]:
        if each not in SIGMAS:
            real(name, each, above=True)


def _weights(name: str, value: object) -> None:
    if value not in (None, "balanced"):
        if not isinstance(value, Mapping):
            raise BadInput(f"{name} is {value!r}: weights by label are expected, or 'balanced'")
        for weight in value.values():
            real(name, weight)


def _float(name: str, value: Any) -> None:
    float_type(value)


def _seed(name: str, value: object) -> None:
    if value is not None:
        check_seed(value)


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(("n_components", "n_nodes", "every", "passes"), _count),
    **dict.fromkeys(("shuffle", "verbose"), _flag),
    **dict.fromkeys(("alpha", "intercept"), _at_least_zero),
    "bound": _above_zero,
    "class_weight": _weights,
    "sigma": _sigma,
    "random_state": _seed,
    "dtype": _float,
}


# -- graphs and nodes -----------------------------------------------------------------------------
Arrays = dict[str, Array]


def links_of(graph: Any) -> Array:
    """Pairs of node numbers (links, 2) of a networkx graph."""
    number = {name: k for k, name in enumerate(graph.nodes)}
    links = [(number[a], number[b]) for a, b in graph.edges()]
    return np.array(links, np.int64).reshape(-1, 2)


def unpacked_graph(packed: Mapping[str, Any], arrays: Arrays) -> Any:
    """The `graph` parameter that was packed, if it was no name."""
    if "$weights" in packed:
        return unpacked_weights(arrays)
    import networkx as nx

    names = [unpack(name) for name in packed["$graph"]]
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from((names[a], names[b]) for a, b in arrays["graph.links"].tolist())
    return graph


def packed_weights(weights: object) -> Arrays:
    """Weights (K, K) in compressed rows; none where nodes are alone."""
    if weights is None:
        return {}
    parts = ("data", "indices", "indptr")
    return {f"weights.{part}": np.asarray(getattr(weights, part)) for part in parts}


def unpacked_weights(arrays: Arrays) -> Any:
    """The (K, K) weights in compressed rows, or None; wild indices are refused."""
    if "weights.data" not in arrays:
        return None
    from scipy.sparse import csr_array

    parts = tuple(arrays[f"weights.{part}"] for part in ("data", "indices", "indptr"))
    K = len(parts[2]) - 1
    A = csr_array(parts, shape=(K, K))
    A.check_format(full_check=True)
    return A


def node_names(model: Any) -> list[Any]:
    """Names of the nodes, as JSON."""
    return [pack(name) for name in model.nodes_.tolist()]


def take_nodes(model: Any, meta: Mapping[str, Any]) -> None:
    """Set the names that `node_names` packed."""
    names = [unpack(name) for name in meta["nodes"]]
    model.nodes_ = np.fromiter(names, object, len(names))
    model._number = {name: k for k, name in enumerate(names)}
