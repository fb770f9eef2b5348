"""Rows from files: where they come from, which columns a model wants of them, and wrong ones.

A row that cannot be used is an error that names its line, is passed over and written to a file with
the reason, or is where the work stops.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName, listed, shortened
from dokl.base.random_numbers import uniforms
from dokl.estimators.auto import Auto
from dokl.estimators.learner import MANY_INPUTS, Estimator
from dokl.learning.columns import Preprocessor
from dokl.tables.models import TableModel
from dokl.tables.models.rows import forms, kinds, missing_spellings, nodes_for, targets_for
from dokl.tables.models.scores import Score
from dokl.tables.models.series import optional_columns
from dokl.tables.readers import MISSING, Chunk, Form, NoColumn, Options, Reader, open_table

MODES = ("stop", "skip")
HEADER = ("line", "reason", "row")


@dataclass
class OnError:
    """What to do with a row that cannot be used.

    mode: None makes it an error that leaves all files as they were; "stop" uses the rows before it
    and then raises, so that what was done by then is kept; "skip" passes over it, and writes it to
    `path` with its reason. count: rows passed over. fault: why it stopped.
    """

    mode: str | None = None
    path: Path | None = None
    count: int = 0
    fault: BadInput | None = None
    again: bool = False
    _line: int = field(default=0, repr=False)
    _file: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mode not in (None, *MODES):
            raise UnknownName("way to deal with errors", self.mode, MODES)

    def with_reports(self, options: Options) -> Options:
        """Options of a reader that reports bad rows; as they are where a bad row is an error."""
        return options if self.mode is None else replace(options, refuse=self.refuse)

    def refuse(self, line: int, reason: BadInput, row: str) -> None:
        """A row that cannot be used."""
        if self.mode == "stop":
            if self.fault is None or line < self._line:
                self.fault, self._line = reason, line
            return
        if self.again:  # another pass over the same file
            return
        self.count += 1
        if self._file is None and self.path is not None:
            self._file = open(self.path, "w", encoding="utf-8", newline="")  # noqa: SIM115
            csv.writer(self._file).writerow(HEADER)
        if self._file is not None:
            csv.writer(self._file).writerow((line, reason, row))

    def chunks(self, reader: Reader) -> Iterator[Chunk]:
        """The chunks of a reader; where it is to stop, up to the row that is wrong."""
        for chunk in reader:
            if self.fault is None:
                yield chunk
                continue
            before = np.array([line < self._line for line in chunk.lines], bool)
            if before.any():
                yield chunk.rows(before)
            self.check(reader)
        self.check(reader)

    def check(self, reader: Reader) -> None:
        """Stop where a row was wrong, if it is to stop there."""
        if self.fault is not None:
            raise self.fault.at(f"{reader.name}, line {self._line}")

    def usable(self, chunk: Chunk, keep: Array, strange: dict[int, BadInput]) -> Array:
        """Which rows to keep (n,), of those kept so far, where some are strange: {row: why}."""
        keep = keep.copy()
        if self.mode == "stop":
            first = min(strange)
            self.refuse(chunk.lines[first], strange[first], "")
            keep[first:] = False
        for i, why in strange.items() if self.mode == "skip" else ():
            self.refuse(chunk.lines[i], why, _row(chunk, i))
            keep[i] = False
        return keep

    def close(self) -> None:
        """Close the file of refused rows."""
        if self._file is not None:
            self._file.close()

    @property
    def words(self) -> str:
        """How many rows were passed over, and where they are."""
        where = "" if self.path is None else f"; they are in {self.path}, with the reasons"
        rows = "row that cannot be used was" if self.count == 1 else "rows that cannot be used were"
        return f"{self.count:,} {rows} passed over{where}"


@contextmanager
def closing(faults: OnError) -> Iterator[None]:
    """Close the file of refused rows at the end."""
    try:
        yield
    finally:
        faults.close()


def _row(chunk: Chunk, i: int) -> str:
    return ", ".join(f"{name}={column[i]}" for name, column in chunk.columns.items())


# -- where rows come from -------------------------------------------------------------------------
@dataclass(frozen=True)
class Wanted:
    """The columns that a model knows, and what they hold; all others are passed over.

    n_features: of a model that learned from LIBSVM rows, which have no names. trained: those of the
    columns that were there in training. chunk: rows at a time, unless the number is given.
    compiled: whether rows will be wanted so fast that they are read by compiled code. forms: how
    cells are written that are neither plain numbers nor text; missing: what stands for no value.
    optional: columns of text that are taken if they are there.
    """

    columns: tuple[str, ...] | None = None
    text: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    n_features: int | None = None
    trained: tuple[str, ...] = ()
    chunk: int | None = None
    compiled: bool = True
    forms: Mapping[str, Form] = field(default_factory=dict)
    missing: Sequence[str] = MISSING
    optional: tuple[str, ...] = ()

    def instead(self, options: Options) -> Options:
        """The options, for these columns and no others."""
        return replace(
            options,
            columns=self.columns,
            drop=(),
            text=self.text,
            numeric=self.numeric,
            n_features=self.n_features,
            chunk=options.chunk or self.chunk,
            compiled=self.compiled,
            forms=self.forms,
            missing=self.missing,
            optional=self.optional,
        )


@dataclass(frozen=True)
class Source:
    """A file to read, "-" for stdin, and how; on_error: what becomes of rows that are wrong."""

    path: str
    options: Options = field(default_factory=Options)
    on_error: OnError = field(default_factory=OnError)

    def open(
        self, wanted: Wanted | None = None, live: bool = False, target: str | None = None
    ) -> Reader:
        """Open it; only one chunk will be in memory. live: do not wait for a full chunk.

        wanted: what a model knows of columns, instead of what was given. target: the column
        that will be predicted, where there is no model yet.
        """
        options = replace(self.options, quantity=target)
        options = options if wanted is None else wanted.instead(options)
        try:
            return open_table(self.path, self.on_error.with_reports(options), live)
        except NoColumn as error:
            if wanted is None or error.column not in wanted.trained:
                raise
            known = listed(wanted.trained)
            raise BadInput(f"{error}. The model was trained with columns {known}") from None


# Lines of a file whose rows are shuffled together, in memory; those beyond are shuffled apart.
SHUFFLED_LINES = 200_000


def shuffled(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The rows of these chunks in random order, a chunk for each block of lines. The place of a row
    depends on its line alone: a training that was stopped goes on in the same order, whatever
    columns it reads by then, and in chunks of whatever size.
    """
    for block, parts in itertools.groupby(_by_block(chunks), itemgetter(0)):
        whole = Chunk.joined([part for _, part in parts])
        place = uniforms(0, ("shuffle", block), SHUFFLED_LINES)
        yield whole.rows(np.argsort(place[np.asarray(whole.lines) % SHUFFLED_LINES]))


def _by_block(chunks: Iterable[Chunk]) -> Iterator[tuple[int, Chunk]]:
    """The rows of each block of lines, with its number."""
    for chunk in chunks:
        blocks = np.asarray(chunk.lines) // SHUFFLED_LINES
        for block in np.unique(blocks).tolist():
            yield block, chunk.rows(blocks == block)


# -- what a model wants of them -------------------------------------------------------------------
# Rows at a time where each takes long, so that there is something to see every second.
FEW_ROWS = 1024
# After fewer rows than this it is too early to say that nothing was learned.
ENOUGH = 100


def wanted(model: TableModel, *more: str, target: bool, node: bool | None) -> Wanted:
    """The columns to read: the inputs, `more` (as text), the target, the node (None: if there)."""
    chunk = FEW_ROWS if hasattr(model.estimator, "bank_") else None
    compiled = any(hasattr(model.estimator, name) for name in ("state_", "network_"))
    how: dict[str, Any] = {"chunk": chunk, "compiled": compiled}
    if model.preprocessor is None:
        return Wanted(n_features=getattr(model.estimator, "n_features_in_", None), **how)
    known = kinds(model, target, bool(node))
    odd = {name: form for name, form in known.items() if isinstance(form, Form)}
    numeric = tuple(name for name, levels in known.items() if levels is None)
    text = [name for name in known if name not in numeric and name not in odd]
    text += [name for name in more if name not in known]
    how |= {"forms": odd, "missing": missing_spellings(model)}
    more_if_there = [] if target else [n for n in optional_columns(model) if n not in known]
    odd |= {name: forms(model).get(name, Form()) for name in more_if_there}
    how["optional"] = (model.node,) if node is None and model.node is not None else ()
    how["optional"] += tuple(more_if_there)
    named = tuple(name for name in odd if name not in more_if_there)
    return Wanted((*numeric, *named, *text), tuple(text), numeric, trained=tuple(known), **how)


def targets(model: TableModel, chunk: Chunk, node: bool = True) -> tuple[Array, Array]:
    """The targets there are, and which rows (n,) have one, and a node where they need it."""
    if chunk.y is None and (model.target is None or model.target not in chunk.columns):
        known = "--target must be" if model.target is None else f"no {model.target!r} among"
        raise BadInput(f"the target is needed: {known} one of {listed(chunk.names)}")
    return targets_for(model, chunk, node=node)


def usable(
    model: TableModel, chunk: Chunk, source: Source, name: str, by_node: bool
) -> tuple[Array, Array, list[str] | None]:
    """Targets, the rows to keep (n,), and their nodes, where these are asked for.

    A label never seen, or a node that is not in the network, is an error that names its line; or
    what `on_error` makes of it.
    """
    y, keep = targets(model, chunk, by_node)
    strange = _strange_labels(model, y, keep) if model.classifying and model.started else {}
    strange |= _strange_nodes(model, chunk, keep) if by_node else {}
    fine = _refuse(strange, chunk, source, keep, name)
    return y[fine[keep]], fine, nodes_for(model, chunk, fine) if by_node else None


def rows_in_order(
    model: TableModel, chunk: Chunk, source: Source, name: str, learn: bool = True
) -> Chunk:
    """The chunk without rows that cannot follow those before, where a model has lags: such a row is
    an error that names its line, or what `on_error` makes of it. learn: rows must follow those that
    were learned.
    """
    if model.series is None:
        return chunk
    series = model.series if learn else model.series.before(chunk.columns)
    strange = series.lags.strange(chunk.columns)
    fine = _refuse(strange, chunk, source, np.ones(chunk.n, bool), name)
    return chunk if fine.all() else chunk.rows(fine)


def _refuse(
    strange: dict[int, BadInput], chunk: Chunk, source: Source, keep: Array, name: str
) -> Array:
    """The rows to keep (n,) without the strange ones, {row: why}, or an error, by `on_error`."""
    if not strange:
        return keep
    if source.on_error.mode is None:
        first = min(strange)
        why = strange[first]
        raise BadInput(f"{name}, line {chunk.lines[first]}{why}", options=why.options)
    wrong = {
        row: BadInput(str(why).removeprefix(": ").removeprefix(", "), options=why.options)
        for row, why in strange.items()
    }
    return source.on_error.usable(chunk, keep, wrong)


def _strange_labels(model: TableModel, y: Array, keep: Array) -> dict[int, BadInput]:
    """Rows whose label was never seen, with the error; a message goes on after "line 3"."""
    strange = np.flatnonzero(~np.isin(y, model.classes_))
    at = np.flatnonzero(keep)[strange].tolist()
    return {
        row: _never_seen(model, label) for row, label in zip(at, y[strange].tolist(), strict=True)
    }


def _never_seen(model: TableModel, label: object) -> BadInput:
    numbers = "" if isinstance(label, str) else ", or use --task regression"
    return BadInput(
        f": label {label!r} was never seen; the classes are {listed(model.labels or ())}. Name all "
        f"of them with --classes when you start{numbers}"
    )


def nodes_or_none(model: TableModel, chunk: Chunk, keep: Array) -> list[str | None]:
    """The node of each row to keep, None where the network has none of that name."""
    known = _network_nodes(model)
    return [node if node in known else None for node in nodes_for(model, chunk, keep)]


def without_strange_nodes(
    model: TableModel, chunk: Chunk, source: Source, keep: Array, name: str
) -> Array:
    """The rows to keep (n,), less those whose node is not in the network; such a row is an error
    that names its line, or what `on_error` makes of it.
    """
    return _refuse(_strange_nodes(model, chunk, keep), chunk, source, keep, name)


def _network_nodes(model: TableModel) -> set[str]:
    estimator = model.estimator
    return set(estimator.nodes_ if hasattr(estimator, "nodes_") else estimator.graph.nodes)


def _strange_nodes(model: TableModel, chunk: Chunk, keep: Array) -> dict[int, BadInput]:
    """Rows whose node is not in the network, with the error; a message goes on after "line 3"."""
    known, at = _network_nodes(model), np.flatnonzero(keep).tolist()
    there = f"the network, whose nodes are {listed(sorted(known))}"
    without = ["--together, in predict and evaluate, needs none"]
    return {
        at[i]: BadInput(f", column {model.node!r}: {_no_node(node)} {there}", options=without)
        for i, node in enumerate(nodes_for(model, chunk, keep))
        if node not in known
    }


def _no_node(node: str | None) -> str:
    return "the cell is empty, and names no node of" if node is None else f"node {node!r} is not in"


def notices(model: TableModel, score: Score | None = None) -> list[str]:
    """What the user may not have meant. score: of rows before they were learned."""
    prepared = model.preprocessor
    found = [] if score is None else _nothing_learned(model, score)
    alone = isinstance(model.estimator, Auto)
    return found if prepared is None else found + _unknown_levels(prepared, alone)


def _nothing_learned(model: TableModel, score: Score) -> list[str]:
    if score.n < ENOUGH or score.beats_a_constant():
        return []
    constant = "the commonest class" if model.classifying else "the mean"
    found = f"nothing was learned: of these {score.n:,} rows, always predicting {constant} errs no "
    found += "more than the model did. "
    if not isinstance(model.estimator, Estimator):
        return [f"{found}The columns may not predict the target"]
    d = model.estimator.n_features_in_
    return [
        f"{found}By --method gradient all {d:,} inputs count equally: leave out irrelevant "
        f"columns (--drop COLUMN), try a larger --sigma, or take --method bank, which learns which "
        f"inputs matter" + (" and takes minutes for that many" if d > MANY_INPUTS else "")
    ]


def _unknown_levels(prepared: Preprocessor, alone: bool) -> list[str]:
    """alone: whether a column could be a group instead."""
    return [
        f"column {name!r}: {count:,} texts are {_none_of(prepared, name)}: "
        f"{', '.join(repr(shortened(text)) for text in prepared.new_levels[name])}; "
        "they count as none of them. "
        f"{_instead(prepared, name, alone)}"
        for name, count in prepared.unseen.items()
        if count
    ]


def _none_of(prepared: Preprocessor, name: str) -> str:
    known, beyond = prepared.levels[name], prepared.not_kept.get(name, 0)
    if beyond:
        return (
            f"none of the {len(known)} levels that are inputs, the most frequent of the "
            f"{len(known) + beyond:,} that the first rows had"
        )
    some = listed(map(shortened, known), 5) or "none"
    return f"none of the levels that the first rows had ({some}), but new"


def _instead(prepared: Preprocessor, name: str, alone: bool) -> str:
    if not prepared.not_kept.get(name):
        return "--levels names all levels at the start"
    if alone:
        return f"--group {quote(name)} gives each level a place of its own"
    return f"--levels {quote(name)}=A,B,... names those that are to be inputs"
