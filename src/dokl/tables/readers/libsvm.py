"""LIBSVM (SVMlight): a label, then number:value pairs, features numbered from 1."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.cells.cells import number, quote_cell
from dokl.tables.readers.table import Chunk, Options
from dokl.tables.readers.text import OpenFile, decode_lines

LARGEST = 2**31 - 2  # feature number that scikit-learn's parser can read


def read(source: OpenFile, options: Options) -> Iterator[Chunk]:
    """Chunks of sparse rows and labels; lines that are blank or a comment are no rows."""
    named = [*(options.columns or ()), *options.drop, *options.text, *options.numeric]
    if named:
        raise BadInput(
            f"{source.name}: the columns of a LIBSVM file have no names to choose by, and "
            f"{named[0]!r} is asked for"
        )
    d = _n_features(source, options)
    line = 1
    while raw := source.take(options.rows(source.first_line)):
        quick = _quick(raw, d, 0 if options.zero_based else 1) if options.compiled else None
        if quick is not None:
            yield Chunk((), {}, range(line, line + len(raw)), *quick)
            line += len(raw)
            continue
        rows = [(at, row) for at, row in enumerate(raw, line) if row.partition(b"#")[0].strip()]
        line += len(raw)
        if rows and options.refuse is not None:
            rows = _passed(rows, source.name, d, options)
        if rows:
            X, y = _load(rows, source.name, d, options.zero_based)
            yield Chunk((), {}, [at for at, _ in rows], X, y)


def _n_features(source: OpenFile, options: Options) -> int:
    """As given; otherwise a first pass over the file finds the largest number."""
    if options.n_features is not None:
        return options.n_features
    if not source.regular:
        raise BadInput(
            f"{source.name}: a LIBSVM stream does not contain the number of features, and can "
            "be read only once. Give the number of features",
            options=["--n-features N"],
        )
    return max(1, scanned(OpenFile(source.path or "")) + options.zero_based)


def scanned(source: OpenFile) -> int:
    """The largest feature number of a file; numbers ascend, so the last of each line will do."""
    largest = 0
    with contextlib.closing(source):
        for at, line in enumerate(source, 1):
            line = line.partition(b"#")[0] if b"#" in line else line
            last = line.rpartition(b":")[0].rsplit(None, 1)
            if last and last[-1].isdigit():
                found = _feature(last[-1].decode())
                if found > LARGEST:
                    text = f"feature number {quote_cell(last[-1].decode())} is too large"
                    raise BadInput(f"{source.name}, line {at}: {text}, {LARGEST:,} is the largest")
                largest = max(largest, found)
    return largest


def _feature(digits: str) -> int:
    """A feature number; beyond `LARGEST` any that is larger."""
    plain = digits.lstrip("0") or "0"
    return int(plain) if len(plain) <= 10 else LARGEST + 1


def _quick(raw: list[bytes], d: int, first: int) -> tuple[Any, Array] | None:
    """X (n, d) CSR and y (n,) by compiled code; None if anything at all is unusual."""
    from scipy.sparse import csr_matrix

    from dokl.tables.readers.digits import sparse_rows

    found = sparse_rows(b"".join(raw), len(raw), first, d)
    if found is None:
        return None
    y, *matrix = found
    return csr_matrix(tuple(matrix), shape=(len(y), d)), y


def _load(rows: list[tuple[int, bytes]], name: str, d: int, zero_based: bool) -> tuple[Any, Array]:
    """X (n, d) CSR and y (n,), by scikit-learn's parser; what it refuses gets a line number."""
    from sklearn.datasets import load_svmlight_file

    problem = "it cannot be read"
    try:
        block = io.BytesIO(b"".join(row for _, row in rows))
        X, y = load_svmlight_file(block, n_features=d, zero_based=zero_based)
        if np.isfinite(X.data).all() and np.isfinite(y).all():
            return X, y
    except (ValueError, OverflowError) as error:
        problem = str(error)
    for at, row in rows:
        if fault := _fault(decode_lines([row], name, at), 0 if zero_based else 1, d):
            raise fault.at(f"{name}, line {at}")
    raise BadInput(f"{name}, lines {rows[0][0]} to {rows[-1][0]}: {problem}")


def _passed(
    rows: list[tuple[int, bytes]], name: str, d: int, options: Options
) -> list[tuple[int, bytes]]:
    """The lines in which nothing is wrong; the others go where refused rows go."""
    assert options.refuse is not None
    good = []
    for at, row in rows:
        try:
            fault = _fault(decode_lines([row], name, at), 0 if options.zero_based else 1, d)
        except BadInput as error:
            fault = error
        if fault is None:
            good.append((at, row))
        else:
            options.refuse(at, fault, row.decode("utf-8", "replace").rstrip())
    return good


def _fault(line: str, low: int, d: int) -> BadInput | None:
    """What is wrong with a line, or None."""
    label, *pairs = line.partition("#")[0].split()
    if not _finite(label):
        return BadInput(f"the label {quote_cell(label)} is not a number")
    before = low - 1
    for pair in pairs:
        feature, _, value = pair.partition(":")
        if feature == "qid":
            continue
        if not (feature.isascii() and feature.isdigit() and _finite(value)):
            return BadInput(f"{quote_cell(pair)} is not a feature number and a value, like 3:0.5")
        found = _feature(feature)
        if found < low:
            problem = "feature number 0, and they start at 1. Say so if this file starts at 0"
            return BadInput(problem, options=["--zero-based"])
        if found >= low + d:
            return BadInput(f"feature number {feature[:20]}, and there are {d} features")
        if found <= before:
            return BadInput(f"feature number {found} comes after {before}: they must ascend")
        before = found
    return None


def _finite(word: str) -> bool:
    value = number(word)
    return value is not None and not math.isnan(value)
