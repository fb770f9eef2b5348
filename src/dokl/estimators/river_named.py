"""Features that come by name: frequencies that belong to the name, and dicts as sparse rows.

The frequency of input i in z_j is row i of omega. Here that row is drawn from a stream of words
keyed by the input's *name*: it is the same whenever the input appears, in whatever order, on
whatever machine, and need not be kept. So the table below is a cache: what is used least
recently makes room, and is drawn again, equal, when it comes back.

This wants a kernel whose frequencies can be drawn input by input. Gaussian scale mixtures can,
given the mixing variable, one per frequency and shared by all inputs; so can the Laplacian
kernel, whose Cauchy frequencies are independent.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base import random_numbers
from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.kernels import Kernel, Laplacian

_LEAST = 16  # rows of a new table


def label_of(name: Hashable) -> random_numbers.Label:
    """The label under which the words of a named input are drawn.

    Names that are equal as keys of a dict have equal labels.

    >>> label_of("age"), label_of(3) == label_of(3.0)
    (('feature', 'age'), True)
    """
    plain = _plain(name)
    if isinstance(plain, str | int):
        return ("feature", plain)
    return ("feature", "json", json.dumps(plain))


def _plain(name: Any) -> Any:
    if isinstance(name, str) or name is None:
        return name
    if isinstance(name, bool | np.bool_ | int | np.integer):
        return int(name)
    if isinstance(name, float | np.floating) and math.isfinite(name):
        return int(name) if float(name).is_integer() else float(name)
    if isinstance(name, tuple):
        return [_plain(part) for part in name]
    raise BadInput(
        f"a feature's name must be text, a number or a tuple of these, got {name!r}: its "
        "frequencies are drawn from its name"
    )


class NamedFrequencies:
    """omega's rows by name, for F frequencies.

    >>> from dokl.learning.kernels import Gaussian
    >>> rows = NamedFrequencies(Gaussian(1.0), F=3, seed=7)
    >>> bool((rows.row("age") == NamedFrequencies(Gaussian(1.0), 3, seed=7).row("age")).all())
    True
    """

    def __init__(self, kernel: Kernel, F: int, seed: int) -> None:
        self.kernel, self.F, self.seed = kernel, F, random_numbers.check_seed(seed)
        mixing = getattr(kernel, "mixing_scale", None)
        if mixing is None and not isinstance(kernel, Laplacian):
            raise BadInput(
                f"kernel {kernel.name!r} cannot be drawn input by input: use gaussian, matern, "
                "cauchy, rational_quadratic or laplacian"
            )
        self.scale = None if mixing is None else mixing(random_numbers.uniforms(seed, "mixing", F))

    def row(self, name: Hashable) -> Array:
        """The frequencies of one input: (F,)."""
        u = random_numbers.uniforms(self.seed, label_of(name), self.F)
        with np.errstate(over="ignore"):  # checked just below
            if self.scale is None:
                row = self.kernel.frequencies(u)
            else:
                row = np.asarray(self.scale * random_numbers.normal_quantile(u))
        if not np.isfinite(row).all():
            raise BadInput(f"{self.kernel!r} gives infinite frequencies: sigma is too small")
        return row


class Table:
    """The rows in use, in turns: (capacity, F or a little more), at most `limit` of them.

    One call that needs more than `limit` at once makes the table as large as that call.
    """

    def __init__(self, frequencies: NamedFrequencies, limit: int) -> None:
        self.frequencies, self.limit = frequencies, limit
        self.turns = np.zeros((min(_LEAST, limit), frequencies.F))
        self.slot_of: OrderedDict[Hashable, int] = OrderedDict()  # least recently used first

    def slots(self, names: Iterable[Hashable]) -> list[int]:
        """Where the rows of these inputs are, drawing those that are not there."""
        names = list(names)
        known, missing = self.slot_of, []
        for name in names:
            if name in known:
                known.move_to_end(name)
            else:
                missing.append(name)
        if missing:
            self._reserve(len(known) + len(missing), len(names))
            for name in missing:
                self._admit(name)
        return [known[name] for name in names]

    def _reserve(self, wanted: int, at_once: int) -> None:
        """Room for `wanted` rows, though not beyond the limit; by doubling."""
        rows = len(self.turns)
        most = max(self.limit, at_once)
        if rows < min(wanted, most):
            grown = np.zeros((min(most, max(2 * rows, wanted)), self.turns.shape[1]))
            grown[:rows] = self.turns
            self.turns = grown

    def _admit(self, name: Hashable) -> None:
        row = self.frequencies.row(name) / (2 * np.pi)
        used = len(self.slot_of)
        # The rows of the present call were moved to the end, so the first is none of them.
        slot = used if used < len(self.turns) else self.slot_of.popitem(last=False)[1]
        self.turns[slot, : len(row)] = row
        self.slot_of[name] = slot


@dataclass(frozen=True)
class SparseRows:
    """Samples as the engines take sparse ones; scipy's class would cost more than the learning."""

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.data)

    def tocsr(self) -> SparseRows:
        """Itself."""
        return self


def numbers_of(x: Mapping[Hashable, Any], zeros: bool = False) -> tuple[list[Hashable], Array]:
    """Names and values of the inputs that are there; None and NaN are absent inputs, and so is 0
    unless zeros are asked for.
    """
    present = {name: value for name, value in x.items() if (value is not None if zeros else value)}
    names, given = list(present), list(present.values())
    try:
        total, values = sum(given), np.array(given, np.float64)
    except (TypeError, ValueError):
        raise BadInput(_not_a_number(present)) from None
    if values.ndim != 1:
        raise BadInput(_not_a_number(present))
    if not math.isfinite(total):
        missing = np.isnan(values)
        names = [name for name, gone in zip(names, missing, strict=True) if not gone]
        values = values[~missing]
        _check_finite(names, values)
    return names, values


def _not_a_number(present: Mapping[Hashable, Any]) -> str:
    name, value = next((n, v) for n, v in present.items() if not _is_number(v))
    return (
        f"feature {name!r} is {value!r}, not a number: put a OneHotEncoder (text) or another "
        "transformer before the model"
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return np.ndim(value) == 0 and not isinstance(value, str)


def _check_finite(names: Sequence[Hashable], values: Array) -> None:
    wild = np.flatnonzero(np.isinf(values))
    if wild.size:
        raise BadInput(f"feature {names[wild[0]]!r} is infinite")


def numbers_of_frame(X: Any, zeros: bool = False) -> tuple[list[Hashable], Array]:
    """Column names and values (n, columns) of a data frame; absent inputs are 0, or NaN where zeros
    are asked for.
    """
    names = list(X.columns)
    try:
        values = np.array(X.to_numpy(), np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the data frame must hold numbers: {error}") from None
    wild = np.isinf(values).any(axis=0)
    _check_finite(names, np.where(wild, np.inf, 0.0))
    return names, values if zeros else np.where(np.isnan(values), 0.0, values)
