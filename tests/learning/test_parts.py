"""Chunks in parts: where they are cut, and that a network sees the same steps."""

import numpy as np
import pytest

from dokl.estimators.nodes import in_order
from dokl.learning.experts.kinds import PILOTS
from dokl.tables.jobs.train import _at_steps, stops


@pytest.mark.parametrize(("missing", "more"), [(0.0, 0), (0.15, 0.03)])
def test_steps_of_parts_are_those_of_the_whole(missing, more):
    """All of them where no row is missing; else each part finds the order of its nodes anew."""
    rng, K = np.random.default_rng(3), 6
    owner = np.concatenate([np.flatnonzero(rng.random(K) >= missing) for _ in range(200)])
    ends = _at_steps(stops(0, len(owner), PILOTS), [f"s{k}" for k in owner])
    whole, starts = in_order(K, owner), [0, *ends[:-1]]
    steps = [in_order(K, owner[a:b]) for a, b in zip(starts, ends, strict=True)]
    assert ends[-1] == len(owner)
    assert len(whole) <= sum(map(len, steps)) <= (1 + more) * len(whole)
    assert set(ends) <= set((1 + whole.max(axis=1)).tolist())
