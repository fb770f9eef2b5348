"""All faults together, by a seed: a short run of `python -m benchmarks.chaos`."""

import pytest
from benchmarks.chaos.__main__ import chaos
from benchmarks.chaos.schedule import KINDS, drawn


@pytest.mark.parametrize("method", ["gradient", "squares"])
def test_nothing_is_lost_or_doubled_whatever_happens(method):
    said = []
    verdict = chaos(method, 25.0, seed=5, nodes=4, rate=60.0, every=2.2, say=said.append)
    assert verdict is not None
    about = "\n".join([*said, *verdict.wrong])
    assert verdict.good, about
    assert {outcome.fault.kind for outcome in verdict.outcomes} == set(KINDS)
    assert sum(books.acknowledged for books in verdict.books) > 1000
    assert max(books.error / books.alone for books in verdict.books) < 2.0, about


def test_a_schedule_is_the_same_for_the_same_seed():
    given = 10.0, 100.0, 3.0, "squares", ["n0", "n1"], "n1", "n0"
    assert drawn(3, *given) == drawn(3, *given) != drawn(4, *given)
