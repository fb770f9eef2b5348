"""Whose vectors are mixed, and whose are so far from all others that people should know.

A node compares what it last heard of *all* its neighbours, not only what came since the last
exchange: otherwise one that lies while the others are quiet would be judged alone, and believed.
As many neighbours are left out as the neighbourhood can stand liars (`graphs.most_liars`, by those
who have something to say now), the farthest first (`exchange.robust.scissors`). Honest ones are
left out like that as well, for a round, and it does no harm: next time they are nearer.

`far` is another question, and asked where nobody can be left out, too: a vector farther from the
median of all than that is long, and than three times the usual distance from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dokl.arrays import Array
from dokl.exchange import Mixing
from dokl.exchange.rules import sum_of_squares
from dokl.graphs import most_liars

APART = 3.0  # times the usual distance


def left_out(
    rule: str, own: Array, heard: Sequence[tuple[float, Array]], speakers: Sequence[float]
) -> list[bool]:
    """Who of those heard, (weight, vector), is not mixed. speakers: the weights of all who have
    something to say, also of those not heard yet: who is heard first must not profit from it.
    """
    liars = most_liars(speakers) if rule == "ios" else 0
    if not liars:
        return [False] * len(heard)
    # Who is not heard yet cannot tell who is far: then the farthest goes in any case.
    mixing = Mixing(rule=rule, liars=liars)
    mixing = mixing if len(heard) == len(speakers) else replace(mixing, far=0.0)
    return [not use for use in mixing.kept(own, heard)]


def far(own: Array, vectors: Sequence[Array]) -> list[bool]:
    """Which of these is far from all others."""
    every = np.stack([np.asarray(each, np.float64) for each in (own, *vectors)])
    # Of two nobody is in the middle: one's own is what one knows.
    middle = np.median(every, axis=0) if len(vectors) > 1 else every[0]
    apart = np.sqrt([sum_of_squares(each - middle) for each in every])
    limit = max(float(np.sqrt(sum_of_squares(middle))), APART * float(np.median(apart)))
    if len(vectors) == 1:
        limit = float(np.sqrt(sum_of_squares(middle)))
    return [bool(each > limit) for each in apart[1:]]
