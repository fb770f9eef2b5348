"""A cooperating network as named arrays and settings, and back; `docs/format.md` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dokl import methods
from dokl import state as states
from dokl.arrays import Array
from dokl.diffusion import slots_of
from dokl.estimators.pilots import CooperatingNetwork, KeptRows
from dokl.exchange import Exchange
from dokl.experts.agreed import AgreedMap
from dokl.experts.bending import Bending
from dokl.experts.maps import NestedMap
from dokl.experts.scaling import Scaling
from dokl.files import MOST, whole
from dokl.scales import Scales

NUMBERS = ("K", "m", "most", "seed", "classes", "seen")


def to_meta(network: CooperatingNetwork) -> dict[str, Any]:
    """Everything that is no array."""
    assert network.map is not None
    method = network.learner.problem.method.spec()
    about = {name: getattr(network, name) for name in NUMBERS}
    return {**about, "kernel": network.map.nested.kernel, "method": method}


def to_arrays(network: CooperatingNetwork) -> dict[str, Array]:
    """Every array by name."""
    made = network.map
    assert made is not None
    assert network.state is not None
    own = made.nested.scales
    out = {f"map.inputs.{part}": value for part, value in vars(made.inputs).items()}
    out |= {f"map.targets.{part}": value for part, value in vars(made.targets).items()}
    out |= {"map.lengths": own.lengths, "map.centres": made.nested.centres}
    out["map.slopes"] = np.broadcast_to(np.asarray(own.linear, np.float64), made.d).copy()
    out["map.numbers"] = np.array([own.amplitude, own.noise])
    out["map.offsets"] = made.offsets
    out["map.lower"] = np.ascontiguousarray(np.tril(made.nested.lower))
    if network.kept is not None:
        out |= {f"kept.{part}": value for part, value in vars(network.kept).items()}
    return out | states.to_arrays(network.state, network.learner.slots, "state.")


def from_arrays(
    meta: Mapping[str, Any], exchange: Exchange, arrays: Mapping[str, Array], K: int
) -> CooperatingNetwork:
    """The network of K nodes that was written; KeyError, TypeError or ValueError where that cannot
    be.
    """
    method = methods.from_spec(meta["method"])
    m, d = len(arrays["map.targets.centre"]), len(arrays["map.lengths"])
    numbers = {name: whole(name, meta[name], *_range(name, K, m)) for name in NUMBERS}
    # Files of networks that learned no offsets yet have none.
    arrays = {"map.offsets": np.zeros((numbers["K"], m)), **arrays}
    made = _map(str(meta["kernel"]), arrays, d, m, numbers["K"])
    kept = _kept(arrays, numbers["K"], d, m) if "kept.X" in arrays else None
    about: dict[str, Any] = {"bound": method.bound, "members": method.members, **numbers}
    network = CooperatingNetwork(exchange, map=made, kept=kept, **about)
    learner = network.learner
    if learner.problem.method != method:
        raise ValueError("the ridge is not the map's")
    slots = slots_of(learner.problem, exchange, m)
    state = states.check(
        states.from_arrays(arrays, slots, "state."), slots, numbers["K"], np.float64
    )
    for name, slot in slots.items():  # as it was: of these matrices one triangle is written
        if slot.triangle:
            state.nodes[name] = np.triu(state.nodes[name])
    return CooperatingNetwork(exchange, map=made, kept=kept, state=state, **about)


def _range(name: str, K: int, m: int) -> tuple[int, int | None]:
    """What a number may be: sizes are those of the arrays."""
    ranges: dict[str, tuple[int, int | None]] = {"K": (K, K), "m": (m, m), "most": (1, MOST)}
    return (ranges | {"classes": (0, MOST)}).get(name, (0, None))


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


def _kept(arrays: Mapping[str, Array], K: int, d: int, m: int) -> KeptRows:
    n = len(arrays["kept.X"])
    shapes = {"kept.X": (n, d), "kept.Y": (n, m), "kept.weight": (n,)}
    _check(arrays, shapes | {"kept.step": (n,), "kept.owner": (n,)})
    step, owner = arrays["kept.step"], arrays["kept.owner"]
    if n and (step.min() < 0 or owner.min() < 0 or owner.max() >= K):
        raise ValueError("kept rows have steps or nodes that cannot be")
    return KeptRows(*(arrays[f"kept.{part}"] for part in ("X", "Y", "weight", "step", "owner")))


def _check(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} is {arrays[name].shape}, not {shape}")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} has values that are not finite")
