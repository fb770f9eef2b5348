"""Networks from files of earlier versions: they predict as they did, and learn no more.

Their nodes had vectors on one map that all agreed on; here each is folded into what predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.files import whole
from dokl.learning.experts import folding
from dokl.learning.experts.agreed import AgreedMap
from dokl.learning.experts.bending import Bending
from dokl.learning.experts.folding import Folded
from dokl.learning.experts.maps import NestedMap
from dokl.learning.experts.scaling import Scaling
from dokl.learning.scales import Scales


@dataclass(frozen=True)
class OldNetwork:
    """nodes: what predicts at each; together: at none of them; seen: (K,) rows of each."""

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
        if owner is None:
            return folding.predict(self.together, X)
        out = np.empty((len(X), self.m))
        for k in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == k)
            out[mine] = folding.predict(self.nodes[k], X[mine])
        return out


def from_arrays(meta: Mapping[str, Any], arrays: Mapping[str, Array], names: int) -> OldNetwork:
    """The network that was written; KeyError, TypeError or ValueError where that cannot be."""
    K, m = whole("K", meta["K"], names, names), whole("m", meta["m"], 1)
    d = len(arrays["map.lengths"])
    # Files of networks that learned no offsets yet have none.
    arrays = {"map.offsets": np.zeros((K, m)), **arrays}
    made = _map(str(meta["kernel"]), arrays, d, m, K)
    theta, bias, seen = (arrays[f"state.{name}"] for name in ("theta", "bias", "count"))
    shapes = {"theta": (K, m, made.D), "bias": (K, m), "count": (K,)}
    _check({"theta": theta, "bias": bias, "count": seen}, shapes)
    total = max(1.0, float(seen.sum()))
    vectors, constant = theta, seen @ bias / total
    if "state.common" in arrays:  # what nodes had learned together, without what was their own
        vectors, constant = arrays["state.common"], np.zeros(m)
        _check({"common": vectors}, {"common": theta.shape})
    pooled = np.tensordot(seen / total, vectors, 1)
    offset = seen @ made.offsets / total
    nodes = tuple(folding.folded_vector(made, theta[k], bias[k], made.offsets[k]) for k in range(K))
    together = folding.folded_vector(made, pooled, constant, offset)
    return OldNetwork(nodes, together, seen, made.fingerprint)


def _map(kernel: str, arrays: Mapping[str, Array], d: int, m: int, K: int) -> AgreedMap:
    centres, lower = arrays["map.centres"], arrays["map.lower"]
    M = len(centres)
    bent = [f"map.inputs.{field.name}" for field in fields(Bending)]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(bent, (d,))
    shapes |= {"map.targets.centre": (m,), "map.targets.size": (m,), "map.numbers": (2,)}
    shapes["map.offsets"] = (K, m)
    shapes |= {"map.lengths": (d,), "map.slopes": (d,), "map.centres": (M, d), "map.lower": (M, M)}
    _check(arrays, shapes)
    amplitude, noise = arrays["map.numbers"].tolist()
    own = Scales(arrays["map.lengths"], amplitude, arrays["map.slopes"], noise)
    inputs = Bending(*(arrays[name] for name in bent))
    targets = Scaling(arrays["map.targets.centre"], arrays["map.targets.size"])
    nested = NestedMap(kernel, own, centres, np.asfortranarray(lower))
    return AgreedMap(inputs, nested, targets, arrays["map.offsets"])


def _check(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} is {arrays[name].shape}, not {shape}")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} has values that are not finite")
