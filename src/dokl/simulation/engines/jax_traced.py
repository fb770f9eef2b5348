"""The steps of a network as JAX functions: what `jax_engine` compiles.

One realization is a `lax.scan` over steps; realizations are a `vmap` of it, and devices a
`shard_map` of that. Everything that varies from step to step arrives as data: the rate of each
step, the number of the graph that mixes (the last graph is the identity, for steps that do not),
the weight of the newest vector in the mean. So a step that only fills up a chunk is a step of rate
0 with the identity, and one compilation serves every length, schedule and network of a shape.

Shapes inside: theta (K, m, S, F) with S = 2 for [cos, sin] and 1 otherwise; F may be padded with
features of amplitude 0, so that it divides over devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from dokl.learning.losses import Function

# Products of float32 numbers in full: the default of GPUs is to round their factors to tf32.
FULL = lax.Precision.HIGHEST
# sin(2 pi s) = s P(s^2) on |s| <= 1/4, as in the Numba engine; error 3.4e-9.
POLY32 = (6.28318516, -41.34165503, 81.60100408, -76.54978247, 39.53670726)
# With few inputs the projection is written out, so that it fuses with the cosine and is
# recomputed instead of stored; with many, it is one matrix product for all steps of a chunk.
FEW_INPUTS = 16


@dataclass(frozen=True)
class TracedRule:
    """What a compilation depends on besides shapes; hashable."""

    loss: str | Function  # a built-in loss by name, or a slope(y, f)
    rate: str | Function  # "given" per step, "normalised" by |z|^2, or a function (n, q)
    paired: bool
    structured: bool
    projected: bool  # on given directions, after the cosine
    ahead: bool  # features of a whole chunk at once, or of each step in its turn
    cta: bool
    mixing: str  # "none", "dense" or "edges"
    steady: bool  # the first graph at every step
    biased: bool
    shrinking: bool
    weighted: bool
    averaging: bool
    unroll: int = 1

    @property
    def S(self) -> int:
        """How many parts theta has along its frequencies."""
        return 2 if self.paired and not self.projected else 1


def slope_of(loss: str | Function, y: Any, f: Any, p: Any) -> Any:
    """Derivative of a loss in the prediction, as in `dokl.losses`."""
    if not isinstance(loss, str):
        return jax.vmap(jax.vmap(loss))(y, f)
    e = f - y
    match loss:
        case "squared":
            return e
        case "hinge":
            return jnp.where(y * f < 1, -y, 0)
        case "squared_hinge":
            return -y * jnp.maximum(0, 1 - y * f)
        case "logistic":
            return -y * jax.nn.sigmoid(-y * f)
        case "huber":
            return jnp.clip(e, -p, p)
        case "absolute":
            return jnp.sign(e)
        case "epsilon_insensitive":
            return jnp.sign(e) * (jnp.abs(e) > p)
        case "quantile":
            return jnp.where(e > 0, 1 - p, jnp.where(e < 0, -p, 0))
    raise KeyError(loss)


def wave(u: Any) -> Any:
    """cos(2 pi u): whole turns come off exactly, then a polynomial (float32) or the cosine."""
    r = u - jnp.round(u)
    if r.dtype != jnp.float32:
        return jnp.cos(2 * np.pi * r)
    s = 0.25 - jnp.abs(r)
    q = s * s
    a, b, c, d, e = (np.float32(v) for v in POLY32)
    return s * (a + q * (b + q * (c + q * (d + q * e))))


def hadamard(w: Any) -> Any:
    """Unnormalised Walsh-Hadamard transform over the last axis, a power of two."""
    shape, half = w.shape, 1
    while half < shape[-1]:
        pairs = w.reshape(*shape[:-1], -1, 2, half)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        w = jnp.stack((a + b, a - b), -2)
        half *= 2
    return w.reshape(shape)


def turns(rule: TracedRule, map: Any, x: Any) -> Any:
    """x: (..., d) -> projections in turns (..., F)."""
    if rule.structured:
        p = map["norms"].shape[-1]
        w = jnp.zeros((*x.shape[:-1], 1, p), x.dtype).at[..., 0, : x.shape[-1]].set(x)
        for s in (2, 1, 0):
            w = hadamard(w * map["signs"][s])
        return (w * map["norms"]).reshape(*x.shape[:-1], -1)
    if x.shape[-1] <= FEW_INPUTS:
        u = map["base"]
        for j in range(x.shape[-1]):
            u = u + x[..., j, None] * map["omega"][j]
        return u
    if x.dtype == jnp.float16:
        twice = jnp.concatenate((x, x), -1)
        u = jnp.matmul(twice, map["parts"], preferred_element_type=jnp.float32)
        return map["base"] + map["unit"] * map["power"] * u
    return map["base"] + jnp.matmul(x, map["omega"], precision=FULL)


@jax.jit
def in_parts(omega: Any) -> Any:
    """omega: (d, F) in float32 as two matrices of float16, one below the other, and a power of two:
    omega is their sum times that power, to 2^-23.

    Inputs that float16 holds exactly then need two products of the fast kind, and no more, for a
    projection as accurate as one in float32.
    """
    power = jnp.exp2(jnp.ceil(jnp.log2(jnp.abs(omega).max() + 1e-30)) - 13)
    scaled = omega / power
    # The barrier keeps the compiler from taking rounding to float16 and back for nothing.
    high = lax.optimization_barrier(scaled.astype(jnp.float16))
    low = (scaled - high.astype(jnp.float32)).astype(jnp.float16)
    return jnp.concatenate((high, low)), power


def features(rule: TracedRule, map: Any, x: Any) -> Any:
    """x: (..., d) -> z: (..., S, F)."""
    u = turns(rule, map, x)
    # sin(2 pi u) = cos(2 pi (u - 1/4))
    parts = (wave(u), wave(u - 0.25)) if rule.paired else (wave(u),)
    z = map["amplitude"] * jnp.stack(parts, -2)
    if rule.projected:
        flat = z.reshape(*z.shape[:-2], -1)
        return jnp.matmul(flat, map["modes"], precision=FULL)[..., None, :]
    return z


def combine(rule: TracedRule, graph: Any, which: Any, theta: Any) -> Any:
    """psi_k = sum_l a_kl theta_l with graph number `which`."""
    flat = theta.reshape(theta.shape[0], -1)
    which = 0 if rule.steady else which
    if rule.mixing == "dense":
        mixed = jnp.matmul(graph["A"][which], flat, precision=FULL)
    else:
        source, target, weight = (graph[key][which] for key in ("source", "target", "weight"))
        parts = weight[:, None] * flat[source]
        # A row of zeros takes what fills up the list of edges.
        mixed = jax.ops.segment_sum(parts, target, len(flat) + 1, indices_are_sorted=True)[:-1]
    return mixed.reshape(theta.shape)


def adapt(
    rule: TracedRule, number: Any, map: Any, axis: str | None, psi: Any, bias: Any, s: Any
) -> Any:
    """One gradient step per node on the samples s; returns theta, bias and predictions (K, m)."""
    z = s["z"] if rule.ahead else features(rule, map, s["x"])
    f = (psi * z[:, None]).sum((-2, -1))
    looks = rule.rate != "given"
    q = (z * z).sum((-2, -1)) if looks and rule.S == 1 else None  # |z| = 1 for pairs
    if axis is not None:
        f, q = lax.psum((f, q), axis)
    if rule.biased:
        f = f + number["c"] * bias
    mu = s["rate"]  # (1,) or (K,)
    if looks:
        q = (jnp.ones_like(f[:, 0]) if q is None else q) + number["c"] ** 2
        if rule.rate == "normalised":
            mu = mu / (number["eps"] + q)
        else:
            count = jnp.broadcast_to(s["count"], q.shape)
            own: Any = rule.rate
            mu = mu * jax.vmap(own)(count, q)
    pull = mu[:, None] * slope_of(rule.loss, s["y"], f, number["p"])
    shrink = 1 - mu * number["lam"]
    if rule.weighted:
        w = s["w"]
        pull = jnp.where(w[:, None] > 0, w[:, None] * pull, 0)
        shrink = jnp.where(w > 0, shrink, 1)
    kept = shrink[:, None, None, None] * psi if rule.shrinking else psi
    theta = kept - pull[:, :, None, None] * z[:, None]
    return theta, (bias - pull * number["c"] if rule.biased else bias), f


def sweep(
    rule: TracedRule, axis: str | None, number: Any, map: Any, graph: Any, memory: Any, s: Any
) -> Any:
    """All steps of one realization: new memory, and predictions (n, K, m)."""
    if rule.ahead:
        s = {**s, "z": features(rule, map, s["x"])}
        del s["x"]

    def step(memory: Any, s: Any) -> Any:
        theta, bias, mean, mean_bias = memory
        if rule.mixing != "none" and rule.cta:
            theta = combine(rule, graph, s.get("graph"), theta)
        theta, bias, f = adapt(rule, number, map, axis, theta, bias, s)
        if rule.mixing != "none" and not rule.cta:
            theta = combine(rule, graph, s.get("graph"), theta)
        if rule.averaging:
            mean = mean + s["gain"] * (theta - mean)
            mean_bias = mean_bias + s["gain"] * (bias - mean_bias)
        return (theta, bias, mean, mean_bias), f

    return lax.scan(step, memory, s, unroll=rule.unroll)


MEMORY = ("theta", "bias", "mean", "mean_bias")
# The axis of each array that is shared out when one network's features are divided over devices.
FEATURE_AXIS = {
    "omega": -1,
    "parts": -1,
    "base": -1,
    "amplitude": -1,
    "signs": -2,
    "norms": -2,
    "theta": -1,
}


@lru_cache(maxsize=256)
def compile_sweep(
    rule: TracedRule, layout: tuple[tuple[str, int, bool], ...], mesh: Mesh | None
) -> Any:
    """`sweep` for many realizations at once, compiled; arrays come as one dictionary.

    layout: (name, number of axes, whether each realization has its own) of every array.
    mesh: devices along "runs" or along "features", or None for the default device.
    """
    own = {name: 0 if each else None for name, _, each in layout}
    over = mesh.axis_names[0] if mesh is not None else None
    axis = "features" if over == "features" else None

    def one(arrays: Any) -> Any:
        number, map, graph, memory, s = (
            {key.split(".")[1]: a for key, a in arrays.items() if key.startswith(group)}
            for group in ("number.", "map.", "graph.", "memory.", "step.")
        )
        parts = tuple(memory.get(key) for key in MEMORY)
        parts, f = sweep(rule, axis, number, map, graph, parts, s)
        named = zip(MEMORY, parts, strict=True)
        return {f"memory.{key}": a for key, a in named if a is not None}, f

    many = jax.vmap(one, in_axes=(own,))
    if mesh is None:
        return jax.jit(many)
    spec = {name: _spec(name, ndim, each, str(over)) for name, ndim, each in layout}
    memory_spec = {name: part for name, part in spec.items() if name.startswith("memory.")}
    out = (memory_spec, PartitionSpec("runs") if over == "runs" else PartitionSpec())
    return jax.jit(jax.shard_map(many, mesh=mesh, in_specs=(spec,), out_specs=out, check_vma=False))


def _spec(name: str, ndim: int, each: bool, over: str) -> PartitionSpec:
    """How an array lies on the devices."""
    if over == "runs":
        return PartitionSpec("runs") if each else PartitionSpec()
    short = name.split(".")[1].replace("mean_bias", "").replace("mean", "theta")
    if short not in FEATURE_AXIS:
        return PartitionSpec()
    axes: list[str | None] = [None] * ndim
    axes[FEATURE_AXIS[short]] = "features"
    return PartitionSpec(*axes)


@partial(jax.jit, static_argnums=0)
def scores(rule: TracedRule, map: Any, theta: Any, x: Any) -> Any:
    """theta'z of rows x: (N, d) with theta: (m, S, F); (N, m)."""
    z = features(rule, map, x)
    flat = z.reshape(len(x), -1), theta.reshape(len(theta), -1)
    return jnp.matmul(flat[0], flat[1].T, precision=FULL)
