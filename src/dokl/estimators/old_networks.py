"""Networks from files of earlier versions: they predict as they did, and learn no more.

Their nodes had vectors on one map that all agreed on; here each is folded into what predicts.
Inputs with long tails were bent first, each by the power that made its rows most like a Gaussian
(Yeo and Johnson 2000).
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


def from_arrays(
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
