"""One call of the JAX engine: the tables of its steps, cut into chunks and fed to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dokl.base.arrays import Array, Block, is_sparse
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem, average_gain
from dokl.simulation.engines import jax_fused as fused
from dokl.simulation.engines import jax_traced, jax_translate

# Bytes of features and samples held at once, and steps of one call, by kind of device; a GPU
# that says how much memory it has gives a sixteenth of it.
SCRATCH = {"cpu": 1 << 26, "gpu": 1 << 29, "tpu": 1 << 29}
LONGEST = {"cpu": 1024, "gpu": 4096, "tpu": 4096}
# From this many numbers (theta times steps) in a call on, compiling the fused kernel pays.
FUSED_FROM = 1e9
# Steps of a scan that a GPU takes per turn of its loop, where it has little to do in each.
UNROLL = 4


def scratch_bytes() -> tuple[str, int]:
    """Kind of the default device, and how many bytes of it a call may fill."""
    kind = jax.default_backend() if jax.default_backend() in SCRATCH else "gpu"
    if kind == "cpu":
        return kind, SCRATCH[kind]
    stats = jax.local_devices()[0].memory_stats() or {}
    return kind, max(SCRATCH[kind], int(stats.get("bytes_limit", 0)) // 16)


@dataclass(frozen=True)
class JaxPlan:
    """A problem and an exchange as arrays for JAX, in one precision."""

    problem: Problem
    exchange: Exchange
    dtype: Any
    rule: jax_traced.TracedRule
    map: dict[str, Array]
    graph: dict[str, Array]
    graphs: list[Any]
    kept: dict[str, Any] = field(default_factory=dict, compare=False)  # what lies on the device


@dataclass(frozen=True)
class Batch:
    """Plans of one kind whose arrays lie on the device, those that are the same only once."""

    plans: Sequence[JaxPlan]
    mesh: Mesh | None
    arrays: dict[str, Any]
    own: frozenset[str]  # names of arrays with one entry for each realization
    width: int  # frequencies, filled up so that they divide over devices

    @property
    def first(self) -> JaxPlan:
        """What all plans have in common can be read from it."""
        return self.plans[0]


@dataclass(frozen=True)
class Exact:
    """Rows that are whole numbers up to 2048 times a unit, such as pixels: float16 holds them."""

    values: Any  # (N, d) float16, on the device
    unit: float

    @property
    def shape(self) -> tuple[int, int]:
        """(N, d)."""
        N, d = self.values.shape
        return int(N), int(d)

    def plain(self, rows: Any) -> Any:
        """Some of the rows in float32, as they were given."""
        return rows.astype(jnp.float32) * np.float32(self.unit)

    @classmethod
    def of(cls, X: Any) -> Exact | None:
        """X: (N, d) float32 on the device as such rows, if it is that."""
        for scale in (1.0, 255.0):
            r = X * np.float32(scale)
            k = jnp.round(r)
            tolerance = 0 if scale == 1 else 2e-7 * jnp.abs(k)
            if bool(((jnp.abs(k) <= 2048) & (jnp.abs(r - k) <= tolerance)).all()):
                return cls(k.astype(jnp.float16), 1 / scale)
        return None


class ChunkedCall:
    """One call of `advance_many`: the tables of its steps, cut into chunks."""

    def __init__(self, batch: Batch, states: Sequence[State], blocks: Sequence[Block]) -> None:
        self.batch, self.states, self.blocks = batch, states, blocks
        first = batch.first
        self.K, self.m, self.D = states[0].theta.shape
        self.n, clock = blocks[0].n, states[0].clock
        self.at = [np.maximum(b.index, 0) for b in blocks]
        pairs = zip(blocks, self.at, strict=True)
        weights = [None if b.weight is None else b.weight[a] for b, a in pairs]
        self.present = [
            b.index >= 0 if w is None else (b.index >= 0) & (w > 0)
            for b, w in zip(blocks, weights, strict=True)
        ]
        self.full = all(p.all() for p in self.present) and all(w is None for w in weights)
        self.tables: dict[str, Array] = {}  # (n, ...) or (runs, n, ...)
        self._count(first, weights)
        clocks = np.arange(clock, clock + self.n)
        if first.rule.mixing != "none":
            # As `diffusion.combines_now`, for all steps at once.
            turn, graphs = clocks if first.rule.cta else clocks + 1, len(first.graphs)
            which = np.where(turn % first.exchange.every == 0, clocks % graphs, graphs)
            self.tables["graph"] = which.astype(np.int32)
        if first.rule.averaging:
            gains: Any = average_gain(first.exchange.average, clocks + 1)  # type: ignore[arg-type]
            self.tables["gain"] = gains.astype(first.dtype)

    def _count(self, first: JaxPlan, weights: list[Array | None]) -> None:
        """Rates from the number of samples each node has had; weights where they matter."""
        starts = np.stack([state.count for state in self.states])
        if self.full and (starts == starts[0, 0]).all():
            count = starts[0, 0] + np.arange(1, self.n + 1)[:, None]  # (n, 1): all alike
        else:
            count = starts[:, None] + np.cumsum(np.stack(self.present), axis=1)
        # The rate of a node before its first sample is never used.
        rate = jax_translate.rates(first.problem.gradient.schedule, np.maximum(count, 1))
        self.tables["rate"] = rate.astype(first.dtype)
        own = not isinstance(first.rule.rate, str)
        if own:
            self.tables["count"] = np.maximum(count, 1).astype(np.int32)
        if not self.full or own:
            each = [
                p.astype(first.dtype) if w is None else np.where(p, w, 0).astype(first.dtype)
                for p, w in zip(self.present, weights, strict=True)
            ]
            self.tables["w"] = np.stack(each)

    @cached_property
    def fused(self) -> tuple[fused.Sizes, fused.Tile] | None:
        """What to compile the kernel for; None: use the scan."""
        first, mesh = self.batch.first, self.batch.mesh
        work = len(self.blocks) * self.n * self.K * self.m * self.D
        if first.dtype != np.float32 or work < FUSED_FROM or not fused.available():
            return None
        if mesh is not None and mesh.axis_names[0] == "features":
            return None
        rule, d = replace(first.rule, weighted="w" in self.tables), first.problem.map.d
        sizes = fused.sizes_for(rule, self.K, self.m, d, self.tables["rate"].ndim == 3)
        if sizes is None:
            return None
        links = first.graph["pairs"].shape[-2] + 2 * self.K if "pairs" in first.graph else 0
        devices = 1 if mesh is None else mesh.size
        learners = -(-len(self.blocks) // devices) * (self.K // sizes.K)
        tile = fused.tile_for(sizes, self.batch.width, learners, links)
        return (sizes, tile) if tile is not None and fused.ready(sizes, tile) else None

    @cached_property
    def rule(self) -> jax_traced.TracedRule:
        """The rule of this call."""
        rule, d = self.batch.first.rule, self.batch.first.problem.map.d
        if self.fused is None and jax.default_backend() != "cpu":
            # A GPU reads stored features faster than it reads d rows of frequencies twice.
            unroll = UNROLL if rule.mixing == "none" else 1
            rule = replace(rule, ahead=rule.ahead or d >= 2 * self.K, unroll=unroll)
        return rule

    def run(self) -> tuple[dict[str, Any], list[Array]]:
        """All chunks in turn; JAX computes one while the samples of the next are gathered."""
        memory, outs, start = self.memory(), [], 0
        longest = self.longest()
        if self.fused is not None:  # chunks of one length
            longest = -(-self.n // -(-self.n // longest))
        while start < self.n:
            stop = min(start + longest, self.n)
            function, arrays = self.chunk(memory, start, stop, longest)
            memory, f = function(arrays)
            outs.append(f[: len(self.blocks), : stop - start])
            start = stop
        parts = [np.asarray(f) for f in outs]
        if not parts:
            return memory, [np.empty((0, self.K, self.m), self.batch.first.dtype)] * len(self.at)
        return memory, list(np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0])

    def longest(self) -> int:
        """Steps of a chunk, a power of two: what the scratch memory allows."""
        first, (kind, scratch) = self.batch.first, scratch_bytes()
        d = first.problem.map.d
        numbers = self.K * (d + 2 * self.m + 2)
        if self.rule.ahead:
            # The features twice: projections and cosines exist side by side.
            numbers += self.K * 2 * first.map["amplitude"].size * (2 if first.rule.paired else 1)
        bytes_each = numbers * np.dtype(first.dtype).itemsize * len(self.blocks)
        devices = 1 if self.batch.mesh is None else self.batch.mesh.size
        steps = int(max(1, min(LONGEST[kind], scratch * devices // bytes_each)))
        return 1 << (steps.bit_length() - 1)

    def chunk(self, memory: dict[str, Any], start: int, stop: int, longest: int) -> Any:
        """(function, arrays) of steps start to stop; the scan's are filled up with steps of rate 0
        to a power of two.
        """
        length = min(longest, 1 << (stop - start - 1).bit_length())
        fill = 0 if self.fused is not None else length - (stop - start)
        batch, step, own = self.batch, self._samples(start, stop, fill), {"x", "y", "w"}
        for name, table in self.tables.items():
            shared = name in ("graph", "gain") or table.ndim == 2
            part = table[start:stop] if shared else table[:, start:stop]
            last = len(batch.first.graphs) if name == "graph" else int(name == "count")
            step[name] = fill_up(part, fill, 0 if shared else 1, last)
            own |= set() if shared else {name}
        rule = replace(self.rule, weighted="w" in step)
        if self.fused is None and rule.mixing != "none" and (step["graph"] == 0).all():
            rule = replace(rule, steady=True)
            del step["graph"]
        names = {f"step.{name}" for name in own} | set(memory) | batch.own
        names |= {"map.parts", "map.power"} if "map.omega" in names else set()
        names |= {"map.unit"} if np.ndim(batch.arrays.get("map.unit", 1.0)) else set()
        arrays = batch.arrays | memory | {f"step.{name}": a for name, a in step.items()}
        if batch.mesh is not None and batch.mesh.axis_names[0] == "runs":
            even = {name: even_out(arrays[name], batch.mesh.size) for name in names & set(arrays)}
            arrays |= even
        if self.fused is not None:
            return fused.compile_kernel(rule, *self.fused, frozenset(names), batch.mesh), arrays
        layout = tuple((name, np.ndim(a), name in names) for name, a in arrays.items())
        return jax_traced.compile_sweep(rule, layout, batch.mesh), arrays

    def _samples(self, start: int, stop: int, fill: int) -> dict[str, Any]:
        """x: (runs, n, K, d) and y: (runs, n, K, m) of some steps."""
        dtype = self.batch.first.dtype
        y = [b.Y[a[start:stop]] for b, a in zip(self.blocks, self.at, strict=True)]
        x = [rows_of(b.X, a[start:stop], dtype) for b, a in zip(self.blocks, self.at, strict=True)]
        exact = [isinstance(b.X, Exact) for b in self.blocks]
        if all(exact):
            self._keep_parts()
        elif any(exact):  # realizations side by side are of one type
            x = [b.X.plain(r) if e else r for b, r, e in zip(self.blocks, x, exact, strict=True)]
        stack = jnp.stack if isinstance(x[0], jax.Array) else np.stack
        step = {"x": stack(x), "y": np.stack(y).astype(dtype)}
        if not self.full:  # what nobody looks at may be anything, also NaN
            absent = ~np.stack(self.present)[:, start:stop]
            step["x"] = jnp.where(absent[..., None], jnp.zeros_like(step["x"]), step["x"])
        return {name: fill_up(a, fill, 1, 0) for name, a in step.items()}

    def _keep_parts(self) -> None:
        """The frequencies in parts, for rows that float16 holds, and the unit of the rows."""
        arrays, own = self.batch.arrays, "map.omega" in self.batch.own
        units = np.array([block.X.unit for block in self.blocks], np.float32)
        arrays["map.unit"] = units[0] if (units == units[0]).all() else units
        if "map.parts" not in arrays:
            split = jax.vmap(jax_traced.in_parts) if own else jax_traced.in_parts
            arrays["map.parts"], arrays["map.power"] = split(arrays["map.omega"])

    def memory(self) -> dict[str, Any]:
        """The states as JAX takes them: theta (runs, K, m, S, F), on the device."""
        dtype, states = self.batch.first.dtype, self.states
        memory = {"memory.theta": self._spread(np.stack([s.theta for s in states]))}
        memory["memory.bias"] = np.stack([s.bias for s in states]).astype(dtype)
        if self.batch.first.rule.averaging:
            means = [s.delivered() for s in states]
            memory["memory.mean"] = self._spread(np.stack([theta for theta, _ in means]))
            memory["memory.mean_bias"] = np.stack([bias for _, bias in means]).astype(dtype)
        return memory

    def _spread(self, theta: Array) -> Array:
        """(runs, K, m, D) -> (runs, K, m, S, width)."""
        S = self.batch.first.rule.S
        apart = theta.reshape(*theta.shape[:-1], S, -1).astype(self.batch.first.dtype)
        return np.pad(apart, [(0, 0)] * 4 + [(0, self.batch.width - apart.shape[-1])])

    def state(self, i: int, memory: dict[str, Any]) -> State:
        """The state of realization i after the block."""
        old, block = self.states[i], self.blocks[i]
        F = self.D // self.batch.first.rule.S

        def gathered(name: str) -> Array:
            part = np.asarray(memory[f"memory.{name}"][i])
            return np.array(part[..., :F]).reshape(self.K, self.m, self.D)

        def own(name: str) -> Array:
            return np.array(memory[f"memory.{name}"][i])

        nodes = {"theta": gathered("theta"), "bias": own("bias")}
        nodes["count"] = old.count + self.present[i].sum(axis=0)
        if "memory.mean" in memory:
            nodes |= {"mean_theta": gathered("mean"), "mean_bias": own("mean_bias")}
        used = block.Y[self.at[i]] if self.full else block.Y[self.at[i]][self.present[i]]
        peak = float(np.abs(used).max(initial=old.peak))
        peak = np.inf if np.isnan(peak) else peak
        return State(nodes, old.clock + self.n, peak)


def rows_of(X: Any, at: Array, dtype: Any) -> Any:
    """Rows X[at]: (n, K, d), dense."""
    if is_sparse(X):
        rows = X[at.ravel()]
        return rows.toarray().astype(dtype, copy=False).reshape(*at.shape, -1)
    if isinstance(X, Exact):
        return X.values[at]
    if isinstance(X, jax.Array):
        return X[at]
    return X[at].astype(dtype, copy=False)


def fill_up(a: Any, fill: int, axis: int, value: int) -> Any:
    """`fill` more steps at the end."""
    if not fill:
        return a
    pad = [(0, fill if i == axis else 0) for i in range(a.ndim)]
    library = jnp if isinstance(a, jax.Array) else np
    return library.pad(a, pad, constant_values=value)


def even_out(a: Any, devices: int) -> Any:
    """More realizations, copies of the first, until they divide over the devices."""
    more = -len(a) % devices
    return a if not more else jnp.concatenate([a, jnp.repeat(a[:1], more, axis=0)])
