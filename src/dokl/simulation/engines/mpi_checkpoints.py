"""Checkpoints of a run over ranks: one file per rank, and a manifest that names a complete set.

    folder/checkpoint.json              which set is whole, and of what run; replaced last
    folder/00000012/rank00003.safetensors   a rank's vectors, means, counts
    folder/00000012/record.safetensors      what rank 0 has recorded so far

A crash at any moment leaves the last complete set in force. The state is all there is (engines
draw no randomness), so a resumed run ends with the same bits.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base import files
from dokl.base.arrays import Array, Block, is_sparse
from dokl.base.errors import BadFile, BadInput
from dokl.network import state as states
from dokl.network.state import State
from dokl.simulation.driver import Realization
from dokl.simulation.engines import mpi_ranks

MANIFEST, KIND = "checkpoint.json", "checkpoint"
DEFAULT_SECONDS = 300.0


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is written down; every 300 s by default.

    resume: go on from the folder's last complete set; from the beginning if there is none.
    """

    folder: Path
    every_seconds: float | None = None
    every_steps: int | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        for name in ("every_seconds", "every_steps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"{name} must be positive, got {value!r}")

    def below(self, name: str) -> Checkpoint:
        """The same in a folder of its own."""
        folder = Path(self.folder) / name
        return Checkpoint(folder, self.every_seconds, self.every_steps, self.resume)


class Keeper:
    """Keeps one run's checkpoints; all ranks have one and call it together.

    run, clock: the realization that is under way, and how many of its steps are done. On rank 0,
    done: what those before it gave; now: what was recorded of it, to be resumed.
    """

    def __init__(
        self, comm: mpi_ranks.Comm, plan: Checkpoint | None, settings: dict[str, Any]
    ) -> None:
        """Settings: what must be the same when the run is resumed."""
        self._comm, self._plan, self._settings = comm, plan, settings
        self._written = time.monotonic()
        self.steps = None if plan is None else plan.every_steps
        found = comm.bcast(mpi_ranks.attempt(comm, self._find)) or {}
        self._set, self.run, self.clock = (int(found.get(k, 0)) for k in ("set", "run", "clock"))
        self.done, self.now = mpi_ranks.attempt(comm, self._record)

    def _find(self) -> dict[str, Any] | None:
        """The manifest of the run to go on with, read by rank 0."""
        plan = self._plan
        if plan is None or self._comm.rank > 0:
            return None
        folder = Path(plan.folder)
        _make(folder)
        path = folder / MANIFEST
        if not path.exists():
            return None
        if not plan.resume:
            raise BadInput(
                f"{folder} holds a checkpoint already: resume it, or name another folder"
            )
        return _understood(path, self._settings)

    def _place(self, name: str) -> Path:
        assert self._plan is not None
        return Path(self._plan.folder) / f"{self._set:08d}" / name

    # -- reading -------------------------------------------------------------------------------
    def _record(self) -> tuple[list[Realization], dict[str, Array]]:
        if self._set == 0 or self._comm.rank > 0:
            return [], {}
        meta, arrays = files.read(self._place("record.safetensors"), KIND)
        done = [_result(arrays, f"{i}.", about) for i, about in enumerate(meta["done"])]
        return done, {k.removeprefix("now."): v for k, v in arrays.items() if k.startswith("now.")}

    def state(self, digest: str) -> State:
        """This rank's state, if it belongs to this data and this share of the nodes."""
        path = self._place(_rank_file(self._comm.rank))
        meta, arrays = files.read(path, KIND)
        if meta["digest"] != digest:
            raise BadInput(
                f"{path}: the data, the features or the network are not those of the checkpoint"
            )
        return _state(arrays, "", meta)

    # -- writing -------------------------------------------------------------------------------
    def due(self, clock: int) -> bool:
        """Whether to write now; rank 0's watch decides for all."""
        plan = self._plan
        if plan is None:
            return False
        if plan.every_steps is not None and clock % plan.every_steps == 0:
            return True
        if plan.every_steps is not None and plan.every_seconds is None:
            return False
        wait = DEFAULT_SECONDS if plan.every_seconds is None else plan.every_seconds
        return bool(self._comm.bcast(time.monotonic() - self._written >= wait))

    def keep(self, clock: int, state: State, digest: str, now: dict[str, Array]) -> None:
        """Write down a realization after n steps; now: what rank 0 has recorded of it."""
        self._keep(clock, lambda: self._write(state, digest, now))

    def finish(self, results: list[Realization], last: bool) -> None:
        """A realization is done. The last set has no vectors, only results: resuming a finished
        run returns them.
        """
        self.done, self.now, self.run = [*self.done, *results], {}, self.run + 1
        self._keep(results[0].steps if last else 0, lambda: self._write(None, "", {}))

    def _keep(self, clock: int, write: Callable[[], None]) -> None:
        self.clock = clock
        if self._plan is not None:
            before, self._set = self._set, self._set + 1
            mpi_ranks.attempt(self._comm, self._make_room)
            mpi_ranks.attempt(self._comm, write)
            mpi_ranks.attempt(self._comm, lambda: self._declare(before))
            self._written = time.monotonic()

    def _make_room(self) -> None:
        if self._comm.rank == 0:
            _make(self._place(""))

    def _write(self, state: State | None, digest: str, now: dict[str, Array]) -> None:
        if state is not None:
            path = self._place(_rank_file(self._comm.rank))
            files.write(path, KIND, {"digest": digest}, states.to_arrays(state))
        if self._comm.rank == 0:
            about = [{"points": result.points} for result in self.done]
            arrays = {f"now.{name}": value for name, value in now.items()}
            for i, result in enumerate(self.done):
                arrays |= {f"{i}.curve.{name}": value for name, value in result.curves.items()}
                if result.kept is not None:
                    arrays |= states.to_arrays(result.kept, prefix=f"{i}.state.")
            files.write(self._place("record.safetensors"), KIND, {"done": about}, arrays)

    def _declare(self, before: int) -> None:
        """The new set is whole: say so, then drop the old one."""
        if self._comm.rank == 0:
            about = {"set": f"{self._set:08d}", "run": self.run, "clock": self.clock}
            about |= {"ranks": self._comm.size, "settings": self._settings}
            folder = self._place("").parent
            files.atomic_text(folder / MANIFEST, json.dumps(about, indent=1))
            with suppress(OSError):
                shutil.rmtree(folder / f"{before:08d}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"{folder}: the folder cannot be made ({error.strerror})") from None


def _rank_file(rank: int) -> str:
    return f"rank{rank:05d}.safetensors"


def _understood(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """A manifest whose settings are ours; otherwise a message that names the first difference."""
    try:
        manifest: dict[str, Any] = json.loads(files.read_text(path))
        kept, _ = manifest["settings"], [manifest[key] for key in ("set", "run", "clock")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadFile(f"{path}: not a checkpoint's manifest ({error})") from None
    for key, value in json.loads(json.dumps(settings)).items():
        if kept.get(key) != value:
            raise BadInput(
                f"{path}: the checkpoint was made with {key} = {kept.get(key)!r}, this run has "
                f"{value!r}: resume with the same settings and the same number of ranks"
            )
    return manifest


def _state(arrays: dict[str, Array], prefix: str, meta: dict[str, Any]) -> State:
    """The state in a file; version 0.1 kept its counters beside the arrays."""
    old = {prefix + name: np.asarray(meta[name]) for name in ("clock", "peak") if name in meta}
    try:
        return states.from_arrays(arrays | old, prefix=prefix)
    except (KeyError, ValueError) as error:
        raise BadFile(f"a checkpoint's file lacks or spoils {error}") from None


def _result(arrays: dict[str, Array], prefix: str, about: dict[str, Any]) -> Realization:
    start = prefix + "curve."
    curves = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
    kept = "clock" in about or prefix + "state.clock" in arrays
    state = _state(arrays, prefix + "state.", about) if kept else None
    return Realization(curves, [int(p) for p in about["points"]], state)


def digest_of(block: Block, *more: object) -> str:
    """A hash of samples and of whatever else must be the same (texts, arrays)."""
    X = block.X
    parts: list[Any] = [X.data, X.indices, X.indptr] if is_sparse(X) else [X]
    parts += [block.Y, block.index, *([] if block.weight is None else [block.weight]), *more]
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part)
        digest.update(data if isinstance(data, bytes) else data.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
