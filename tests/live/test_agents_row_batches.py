"""Batches of rows as bytes: exact, small, and checked before anything is made of them."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dokl.base.errors import BadInput
from dokl.live.certificates.signing import Seals
from dokl.live.protocol import batches
from row_net import CONTEXT, entry


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20), st.integers(0, 7))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_rows_come_back_to_the_bit(values, decimals):
    for column in (np.array(values), np.round(np.array(values) % 1000, decimals)):
        sealed = entry(column[:, None], column[::-1, None])
        X, Y = batches.read_rows(CONTEXT, batches.read_batch(CONTEXT, sealed))
        assert X[:, 0].tobytes() == column.tobytes()
        assert Y[:, 0].tobytes() == column[::-1].tobytes()


def test_rows_take_less_than_twice_their_csv():
    rng = np.random.default_rng(0)
    context = batches.Context(b"n" * 8, bytes(8), 8, 1)
    table = np.round(np.cumsum(rng.normal(size=(40, 9)), axis=0) + 20, 1)
    csv = sum(len(",".join(map(str, row))) + 1 for row in table.tolist())
    made = entry(table[:, :8], table[:, 8:], context=context)
    assert len(made) + 64 + 80 < 1.0 * csv  # with the header of a message and a signature


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_rubbish_is_refused(data):
    with pytest.raises(BadInput):
        batches.read_rows(CONTEXT, batches.read_batch(CONTEXT, Seals().seal(data)))


def test_batches_of_other_networks_columns_and_sizes_are_refused():
    sealed = entry([[1.0]], [[2.0]])
    for change in ({"network": b"o" * 8}, {"columns": b"o" * 8}):
        with pytest.raises(BadInput, match=r"another network|other columns"):
            batches.read_batch(replace(CONTEXT, **change), sealed)
    wide = replace(CONTEXT, d=2)
    with pytest.raises(BadInput, match="other rows than its header"):
        batches.read_rows(wide, batches.read_batch(wide, sealed))
    with pytest.raises(BadInput, match="cannot be used"):
        batches.read_rows(CONTEXT, batches.read_batch(CONTEXT, entry([[np.inf]], [[1.0]])))


def test_names_that_nobody_has_proved_are_not_kept_for_ever():
    """Python 3.12 never frees an interned text."""
    origin = "of nobody " + "x" * 200
    given = origin, 1, 0, np.ones((2, 1)), np.ones((2, 1)), 1.0, 2.0, batches.NOTHING
    sealed = Seals().seal(batches.pack_entry(CONTEXT, *given))
    one, other = (batches.read_batch(CONTEXT, sealed) for _ in range(2))
    assert one.origin is other.origin
    again = "".join(list(origin))
    assert sys.intern(again) is again
