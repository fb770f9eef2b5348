"""Files of earlier versions: what is in them becomes what files hold now.

Networks of then predict as they did, and learn no more. Their nodes had vectors on one map that all
agreed on; here each is folded into what predicts. Inputs with long tails were bent first, each by
the power that made its rows most like a Gaussian (Yeo and Johnson 2000).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.files import whole
from dokl.learning.experts import folding
from dokl.learning.experts.folding import Folded
from dokl.learning.experts.maps import NestedMap
from dokl.learning.experts.scaling import WILD, Scaling
from dokl.learning.scales import Scales


@dataclass(frozen=True)
class OldNetwork:
    """first: how inputs are standardised before they are bent by these powers: (d,); nodes: what
    predicts at each from inputs so bent; together: at none of them; seen: (K,) rows of each.
    """

    first: Scaling
    power: Array
    nodes: tuple[Folded, ...]
    together: Folded
    seen: Array
    fingerprint: str

    @property
    def K(self) -> int:
        """Nodes."""
        return len(self.nodes)

    @property
    def m(self) -> int:
        """Outputs."""
        return len(self.together.base)

    def predict(self, X: Array, owner: Array | None) -> Array:
        """Means (n, m) of rows X: (n, d) at these nodes: (n,), or at none."""
        rows = _bent(self.first.inward(X), self.power)
        if owner is None:
            return folding.predict(self.together, rows)
        out = np.empty((len(X), self.m))
        for k in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == k)
            out[mine] = folding.predict(self.nodes[k], rows[mine])
        return out


def _bent(rows: Array, power: Array) -> Array:
    """Standardised rows (n, d) by powers (d,); 1 leaves a column as it is, to the last bit."""
    if (power == 1.0).all():
        return rows
    out = np.clip(rows, -WILD, WILD)  # wild ones must not overflow
    for j in np.flatnonzero(power != 1.0).tolist():
        size = np.log1p(np.abs(out[:, j]))
        q = np.where(out[:, j] >= 0, power[j], 2.0 - power[j])
        with np.errstate(invalid="ignore", divide="ignore"):
            far = np.where(q == 0.0, size, np.expm1(q * size) / q)
        out[:, j] = np.copysign(far, out[:, j])
    return out


def network(
    meta: Mapping[str, Any], arrays: Mapping[str, Array], names: int, fingerprint: str
) -> OldNetwork:
    """The network that was written; KeyError, TypeError or ValueError where that cannot be."""
    K, m = whole("K", meta["K"], names, names), whole("m", meta["m"], 1)
    d, M = len(arrays["map.lengths"]), len(arrays["map.centres"])
    # Files of networks that learned no offsets yet have none.
    arrays = {"map.offsets": np.zeros((K, m)), **arrays}
    made = _map(str(meta["kernel"]), arrays, K, m, d, M)
    theta, bias, seen = (arrays[f"state.{name}"] for name in ("theta", "bias", "count"))
    shapes = {"theta": (K, m, made.D), "bias": (K, m), "count": (K,)}
    _check({"theta": theta, "bias": bias, "count": seen}, shapes)
    total = max(1.0, float(seen.sum()))
    vectors, constant = theta, seen @ bias / total
    if "state.common" in arrays:  # what nodes had learned together, without what was their own
        vectors, constant = arrays["state.common"], np.zeros(m)
        _check({"common": vectors}, {"common": theta.shape})

    bent, unit = (
        Scaling(*(arrays[f"map.{name}"] for name in names))
        for names in (
            ("inputs.middle", "inputs.spread"),
            ("targets.centre", "targets.size"),
        )
    )

    def folded(vector: Array, constant: Array, offset: Array) -> Folded:
        targets = Scaling(unit.outward(offset), unit.size)
        found = folding.folded_on_map(made, bent, targets, vector, -1)
        return replace(found, base=found.base + constant)

    offsets = arrays["map.offsets"]
    nodes = tuple(folded(theta[k], bias[k], offsets[k]) for k in range(K))
    together = folded(np.tensordot(seen / total, vectors, 1), constant, seen @ offsets / total)
    first = Scaling(arrays["map.inputs.centre"], arrays["map.inputs.size"])
    return OldNetwork(first, arrays["map.inputs.power"], nodes, together, seen, fingerprint)


def _map(kernel: str, arrays: Mapping[str, Array], K: int, m: int, d: int, M: int) -> NestedMap:
    shapes: dict[str, tuple[int, ...]] = {
        f"map.inputs.{name}": (d,) for name in ("centre", "size", "power", "middle", "spread")
    }
    shapes |= {"map.targets.centre": (m,), "map.targets.size": (m,), "map.numbers": (2,)}
    shapes["map.offsets"] = (K, m)
    shapes |= {"map.lengths": (d,), "map.slopes": (d,), "map.centres": (M, d), "map.lower": (M, M)}
    _check(arrays, shapes)
    amplitude, noise = arrays["map.numbers"].tolist()
    own = Scales(arrays["map.lengths"], amplitude, arrays["map.slopes"], noise)
    return NestedMap(kernel, own, arrays["map.centres"], np.asfortranarray(arrays["map.lower"]))


def _check(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} is {arrays[name].shape}, not {shape}")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} has values that are not finite")


# -- one class that was both kinds of network ----------------------------------------------------
def of_two_classes(meta: dict[str, Any]) -> dict[str, Any]:
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
        params = {name: value for name, value in params.items() if name not in _of_diffusion()}
        return {**meta, "params": params}
    return {**meta, "class": kind.replace("Network", "Diffusion"), "params": params}


def _of_diffusion() -> set[str]:
    """Parameters of gradient diffusion, which files of cooperating nodes once had as well."""
    from dokl.estimators import DiffusionRegressor, NetworkRegressor  # which know old networks

    made = DiffusionRegressor._get_param_names(), NetworkRegressor._get_param_names()
    return set(made[0]) - set(made[1])


# -- what predicts only, with arrays by names of their own ---------------------------------------
def folded(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[Any, dict[str, Array]]:
    """The JSON value and the arrays that the codec would have written."""
    known = dict(arrays)
    if "parts" in about:
        given = [(f"{i}.", kernels) for i, kernels in enumerate(about["parts"])]
    else:
        given = [("", about["kernels"])]
    known["energy"] = np.zeros_like(arrays["widths"])
    names = {"levels": "levels", "width": "widths", "energy": "energy"}
    return {
        "$": "FoldedModel",
        "parts": [_part(prefix, kernels, known) for prefix, kernels in given],
        "tracker": _named("Tracker", names, known),
        **{name: {"@": name} for name in ("spread", "relevance")},
        **{name: about[name] for name in ("rows", "remembers")},
        "counts": {"@": "drift"} if "drift" in known else None,
    }, known


def _part(prefix: str, kernels: list[str], known: dict[str, Array]) -> dict[str, Any]:
    if kernels == ["waves"]:
        names = {name: prefix + name for name in ("omega", "phases", "theta", "constant")}
        return _named("Waves", names, known) | {"scale": float(known[f"{prefix}scale"])}
    parts = ("lengths", "centres", "heights", "apart", "slope")
    bumps = []
    for i, kernel in enumerate(kernels):
        names = {name: f"{prefix}map.{i}.{name}" for name in parts}
        known.setdefault(names["apart"], np.zeros(0))
        ranked = names["slope"] in known
        bumps.append(_named("Bumps", names, known) | {"kernel": kernel, "ranked": ranked})
    made: dict[str, Any] = {name: {"@": prefix + name} for name in ("base", "slope")}
    for name in ("inputs", "targets"):
        names = {part: f"{prefix}{name}.{part}" for part in ("centre", "size")}
        made[name] = _named("Scaling", names, known)
    ranks = {name: f"{prefix}ranks.{name}" for name in ("values", "scores")}
    made["ranks"] = _named("Ranks", ranks, known) if ranks["values"] in known else None
    return {"$": "Folded", **made, "bumps": bumps}


def _named(kind: str, names: Mapping[str, str], known: Mapping[str, Array]) -> dict[str, Any]:
    """A record of these arrays, None for those that are not there."""
    fields = {field: {"@": name} if name in known else None for field, name in names.items()}
    return {"$": kind, **fields}
