"""Whose vectors are mixed, and whose are so far from all others that people should know.

A node compares what it last heard of *all* its neighbours, not only what came since the last
exchange: otherwise one that lies while the others are quiet would be judged alone, and believed.
As many neighbours are left out as the neighbourhood can stand liars (`graphs.most_liars`, by those
who have something to say now), the farthest first (`exchange.robust.scissors`). Honest ones are
left out like that as well, for a round, and it does no harm: next time they are nearer.

Where neighbours are down, a liar among the few that are left could not be told from the rest. It
would go through the whole network with them: a node that took it over is one liar more to all
others. So those that are missing count as honest ones that say nothing, and whoever is far from the
rest is left out, as many as all together could stand.

`far` is another question, and asked where nobody can be left out, too: a vector farther from the
median of all than that is long, and than three times the usual distance from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.network.exchange import Mixing
from dokl.network.exchange.rules import sum_of_squares
from dokl.network.graphs import most_liars

APART = 3.0  # times the usual distance


def left_out(
    rule: str,
    own: Array,
    heard: Sequence[tuple[float, Array]],
    speakers: Sequence[float],
    described: Sequence[float] = (),
) -> list[bool]:
    """Who of those heard, (weight, vector), is not mixed. speakers: the weights of all who have
    something to say, also of those not heard yet: who is heard first must not profit from it.
    described: the weights of all neighbours, those that are down among them.
    """
    if rule != "ios":
        return [False] * len(heard)
    liars, out = most_liars(speakers), [False] * len(heard)
    if liars:
        # Who is not heard yet cannot tell who is far: then the farthest goes in any case.
        mixing = Mixing(rule=rule, liars=liars)
        mixing = mixing if len(heard) == len(speakers) else replace(mixing, far=0.0)
        out = [not use for use in mixing.kept(own, heard)]
    missing = most_liars(described) - liars
    return _without_far(own, heard, out, missing) if missing > 0 else out


def _without_far(
    own: Array, heard: Sequence[tuple[float, Array]], out: list[bool], most: int
) -> list[bool]:
    """Leave out so many more, the farthest, of those that are far from all others."""
    vectors = [theta for _, theta in heard]
    away = [sum_of_squares(np.asarray(theta, np.float64) - own) for theta in vectors]
    off = [i for i, is_far in enumerate(far(own, vectors)) if is_far and not out[i]]
    drop = sorted(off, key=lambda i: -away[i])[:most]
    return [gone or i in drop for i, gone in enumerate(out)]


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
