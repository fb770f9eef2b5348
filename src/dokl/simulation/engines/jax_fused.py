"""Small networks on an NVIDIA GPU: `fused.cu`, compiled for the sizes at hand and called from JAX.

A scan moves theta through device memory several times a step; here it stays on the chip, one
thread block per realization. The kernel is compiled by nvcc on first use for each set of sizes
(some ten seconds), kept in the user's cache folder, and called through JAX's foreign function
interface. Where it does not apply (`tile_for` returns None), the scan does the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from dokl.base.arrays import Array
from dokl.learning.losses import BUILTIN
from dokl.simulation.engines import jax_traced
from dokl.simulation.engines.choice import EngineNotice

SOURCE = Path(__file__).with_name("fused.cu")
CODES = {name: code for code, name in enumerate(BUILTIN)}
# Of one multiprocessor: registers, and bytes of shared memory a block may have.
REGISTERS, SHARED = 65536, 227 * 1024
# Numbers of theta that are worth a block: fewer, and waiting for each other costs more.
SHARE = 4000
_lock = threading.Lock()


class Tile(NamedTuple):
    """How a network lies on thread blocks: R frequencies a thread, G of them at a time."""

    threads: int
    R: int
    G: int
    blocks: int  # at least this many on one multiprocessor: bounds the registers of a thread
    wide: int = 0  # 1: as many blocks as the frequencies need, waiting for each other


class Sizes(NamedTuple):
    """What the kernel is compiled for."""

    K: int  # nodes of a block: all, or one where every node is alone
    M: int
    DIN: int
    S: int
    MIXING: int
    ATC: int
    WEIGHTED: int
    AVERAGE: int
    SHRINK: int
    NODE_RATE: int
    LOSS: int
    AHEAD: int  # features are given


def nvcc() -> str | None:
    """The compiler's path, or None."""
    usual = "/usr/local/cuda/bin/nvcc"
    return shutil.which("nvcc") or (usual if os.access(usual, os.X_OK) else None)


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether this machine can compile and run the kernel."""
    if jax.default_backend() != "gpu" or nvcc() is None:
        return False
    return "nvidia" in jax.local_devices()[0].device_kind.lower()


def sizes_for(
    rule: jax_traced.TracedRule, nodes: int, m: int, d: int, node_rate: bool
) -> Sizes | None:
    """What to compile for a problem, or None where only the scan will do."""
    simple = isinstance(rule.loss, str) and rule.rate == "given" and rule.mixing != "edges"
    if not simple:
        return None
    mixing = rule.mixing != "none"
    switches = mixing, mixing and not rule.cta, rule.weighted, rule.averaging, rule.shrinking
    K, inputs = nodes if mixing else 1, 1 if rule.ahead else d
    numbers: list[int] = [K, m, inputs, rule.S, *map(int, switches), int(node_rate)]
    return Sizes._make([*numbers, CODES[str(rule.loss)], int(rule.ahead)])


def tile_for(sizes: Sizes, F: int, learners: int, links: int = 0) -> Tile | None:
    """The best way to lay F frequencies on blocks, or None if they do not fit.

    learners: networks, or nodes that are alone, which run at the same time.
    """
    if sizes.K * sizes.M > 32:
        return None
    split = max(1, min(multiprocessors() // learners, F * sizes.K * sizes.M // SHARE))
    share = -(-F // split)
    tiles = [t for t in [*_whole(sizes, share), *_in_groups(sizes, share)]
             if _shared_bytes(sizes, t, links) <= SHARED]  # fmt: skip
    # Few threads of much work each do best, up to about ten frequencies a thread.
    best = min(
        tiles, key=lambda t: (t.threads * t.R * (1 + (t.R > t.G)), t.R > 10, -t.R), default=None
    )
    return None if best is None else best._replace(wide=int(split > 1))


def multiprocessors() -> int:
    """How many the GPU has."""
    return int(getattr(jax.local_devices()[0], "core_count", 64))


def _whole(sizes: Sizes, F: int) -> list[Tile]:
    """Tiles that keep psi and z of a step in registers."""
    tiles = []
    for R in range(16, 0, -1):
        threads = 32 * -(-F // (32 * R))
        each = sizes.K * (sizes.M + 1) * sizes.S + (0 if sizes.AHEAD else sizes.DIN + 1)
        registers = 8 * -(-(R * each + sizes.K * sizes.M + 24) // 8)
        if threads <= 1024 and registers <= 160 and threads * registers <= REGISTERS:
            tiles.append(Tile(threads, R, R, REGISTERS // (threads * registers)))
    return tiles


def _in_groups(sizes: Sizes, F: int) -> list[Tile]:
    """Tiles that compute z twice and keep psi in shared memory."""
    tiles = []
    for R in range(2, 17, 2) if sizes.MIXING else ():
        threads = 32 * -(-F // (32 * R))
        G = 2 if sizes.K * sizes.M * sizes.S <= 20 else 1
        if 64 <= threads <= 640:
            tiles.append(Tile(threads, R, G, 1))
    return tiles


def _shared_bytes(sizes: Sizes, tile: Tile, links: int) -> int:
    rows, warps = sizes.K * sizes.M, tile.threads // 32
    theta = rows * sizes.S * tile.threads * tile.R if sizes.MIXING else 0
    other = 3 * sizes.K * (sizes.DIN + 3) + 6 * warps * 32 + 4 * links + 64 * sizes.K
    return 4 * (theta + other)


def pair_links(graphs: list[Any]) -> tuple[Array, Array]:
    """Links two at a time: (n, 4) whole numbers [node, weight, node, weight] and where each row
    of each graph starts, (graphs, K + 1). A row of odd length ends with a link of weight 0, and
    two spare pairs end the list, since the kernel loads ahead.
    """
    K = graphs[0].shape[0]
    starts, rows = np.zeros((len(graphs), K + 1), np.int32), list[list[int]]()
    for g, A in enumerate(graphs):
        for k in range(K):
            starts[g, k] = len(rows)
            at = slice(A.indptr[k], A.indptr[k + 1])
            columns, weights = A.indices[at], A.data[at].astype(np.float32).view(np.int32)
            if len(columns) % 2:
                columns, weights = np.append(columns, columns[:1]), np.append(weights, np.int32(0))
            rows += np.stack([columns, weights], 1).reshape(-1, 4).tolist()
        starts[g, K] = len(rows)
    return np.array([*rows, [0] * 4, [0] * 4], np.int32), starts


@lru_cache(maxsize=64)
def _target(sizes: Sizes, tile: Tile) -> str:
    """The name under which JAX knows the kernel, compiled if need be."""
    name = _key(sizes, tile)
    with _lock:
        library = build(sizes, tile)
        function = ctypes.CDLL(str(library)).DoklSweep
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="CUDA")
    return name


@lru_cache(maxsize=64)
def ready(sizes: Sizes, tile: Tile) -> bool:
    """Whether the kernel is there, compiled if need be; says so where it cannot be."""
    try:
        _target(sizes, tile)
    except (RuntimeError, OSError) as error:
        why = str(error).strip().splitlines()[-1]
        warnings.warn(
            f"the fused kernel does not compile here ({why}): using the slower scan",
            EngineNotice,
            stacklevel=2,
        )
        return False
    return True


def _key(sizes: Sizes, tile: Tile) -> str:
    made_of = f"{sizes}{tile}{jax.__version__}{_architecture()}".encode()
    made_of += SOURCE.read_bytes() + SOURCE.with_suffix(".cuh").read_bytes()
    return "dokl_" + hashlib.sha256(made_of).hexdigest()[:20]


def _architecture() -> str:
    return "sm_" + str(jax.local_devices()[0].compute_capability).replace(".", "")


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dokl" / "kernels"


def build(sizes: Sizes, tile: Tile) -> Path:
    """Compile the kernel into the cache folder, unless it is there; returns the library."""
    library = cache_folder() / f"{_key(sizes, tile)}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    named = sizes._asdict() | {name.upper(): value for name, value in tile._asdict().items()}
    options = [f"-DDOKL_{name}={value}" for name, value in named.items()]
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / "kernel.so"
        command = [
            str(nvcc()), "-O3", "-std=c++17", "-w", f"-arch={_architecture()}", "-shared",
            "-Xcompiler", "-fPIC", f"-I{jax.ffi.include_dir()}", *options, "-o", str(made),
            str(SOURCE),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"nvcc failed\n{done.stderr[-2000:]}")
        made.replace(library)
    return library


@lru_cache(maxsize=256)
def compile_kernel(
    rule: jax_traced.TracedRule, sizes: Sizes, tile: Tile, own: frozenset[str], mesh: Mesh | None
) -> Any:
    """As `traced.compile_sweep`: a function of a dictionary of arrays, here calling the kernel.

    own: names of arrays with one entry for each realization.
    """
    call = partial(_call, rule, sizes, tile, _target(sizes, tile), own)
    if mesh is None:
        return jax.jit(call)

    def sharded(arrays: Any) -> Any:
        spec = {name: PartitionSpec("runs") if name in own else PartitionSpec() for name in arrays}
        part = PartitionSpec("runs")
        return jax.shard_map(call, mesh=mesh, in_specs=(spec,), out_specs=part, check_vma=False)(
            arrays
        )

    return jax.jit(sharded)


def _call(
    rule: jax_traced.TracedRule,
    sizes: Sizes,
    tile: Tile,
    target: str,
    own: frozenset[str],
    arrays: Any,
) -> Any:
    """Arrange the arguments as the kernel takes them."""
    theta, bias = arrays["memory.theta"], arrays["memory.bias"]
    none, zero = jnp.zeros(1, jnp.float32), jnp.zeros((1, 1, 1), jnp.int32)
    numbers = [arrays[f"number.{name}"] for name in ("lam", "c", "p")]
    amplitude, x = arrays["map.amplitude"].reshape(-1)[0], arrays["step.x"]

    def led(name: str) -> Any:
        return arrays[name] if name in own else arrays[name][None]

    if sizes.AHEAD:
        names = [name for name in arrays if name.startswith("map.")]
        axes = {name[4:]: 0 if name in own else None for name in names}
        map = {name[4:]: arrays[name] for name in names}
        x = jax.vmap(partial(jax_traced.features, rule), in_axes=(axes, 0))(map, x)
        omega, base, amplitude = none, zero, jnp.ones((), jnp.float32)
    else:
        omega, base = led("map.omega"), led("map.base")
    pre, starts, pairs = zero, zero, zero
    if sizes.MIXING:
        starts, pairs = led("graph.starts"), led("graph.pairs")
        # Nodes become offsets into theta: [node][output][S][column].
        stride = sizes.M * sizes.S * tile.threads * tile.R
        pairs = pairs.at[..., 0].multiply(stride).at[..., 2].multiply(stride)
        turn = arrays["step.graph"]
        turn = jnp.where(turn < starts.shape[1], turn, -1).astype(jnp.int32)
        never = jnp.full(1, -1, jnp.int32)
        pre = jnp.concatenate([never, turn] if sizes.ATC else [turn, never])
    shape = jax.ShapeDtypeStruct
    y, mean = arrays["step.y"], arrays.get("memory.mean", none)
    mean_bias = arrays.get("memory.mean_bias", none)
    each = (theta, bias, mean, mean_bias, y)
    learners = len(theta) * (theta.shape[1] // sizes.K)
    split = -(-theta.shape[-1] // (tile.threads * tile.R)) if tile.wide else 0
    meeting = shape((2, max(learners * split, 1), 32, 2), jnp.int32)
    outs = tuple(shape(a.shape, jnp.float32) for a in each)
    outs = (*outs, meeting)
    found = jax.ffi.ffi_call(target, outs)(
        jnp.stack([*numbers, amplitude]).astype(jnp.float32), omega, base,
        theta, bias, mean, mean_bias, x, y, arrays.get("step.w", none),
        arrays["step.rate"], arrays.get("step.gain", none), pre, starts, pairs,
    )  # fmt: skip
    memory = {"memory.theta": found[0], "memory.bias": found[1]}
    if sizes.AVERAGE:
        memory |= {"memory.mean": found[2], "memory.mean_bias": found[3]}
    return memory, found[4]
