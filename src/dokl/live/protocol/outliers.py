"""Which vectors are mixed, and which are so far from all others that people should know.

A node compares what it last received from *all* its neighbours, not only what came since the last
exchange: otherwise a faulty one that sends while the others are quiet would be judged alone.
As many neighbours are left out as the neighbourhood tolerates (`graphs.most_faulty`, by those who
send now), the farthest first (`exchange.robust.iterative_outliers`). Honest ones are sometimes left
out as well, for a round. That does no harm: next time they are nearer.

Where neighbours are down, a faulty node among the few that are left looks like the rest, and its
vector would go through the whole network: a node that takes it over is one faulty node more to all
others. So missing neighbours count as silent honest ones, and those far from the rest are left out,
as many as all together tolerate.

`far` is another question, asked also where none can be left out: a vector farther from the
median of all than that is long, and than three times the usual distance from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.network.exchange import Mixing
from dokl.network.exchange.rules import sum_of_squares
from dokl.network.graphs import most_faulty

APART = 3.0  # times the usual distance


def left_out(
    rule: str,
    own: Array,
    known: Sequence[tuple[float, Array]],
    speakers: Sequence[float],
    described: Sequence[float] = (),
) -> list[bool]:
    """Who of those received, (weight, vector), is not mixed. speakers: the weights of all who have
    something to send, also of those not received yet: to come first must not pay.
    described: the weights of all neighbours, those that are down among them.
    """
    if rule != "ios":
        return [False] * len(known)
    faulty, out = most_faulty(speakers), [False] * len(known)
    if faulty:
        # Who is not received yet cannot show who is far: then the farthest goes in any case.
        mixing = Mixing(rule=rule, faulty=faulty)
        mixing = mixing if len(known) == len(speakers) else replace(mixing, far=0.0)
        out = [not use for use in mixing.kept(own, known)]
    missing = most_faulty(described) - faulty
    return _without_far(own, known, out, missing) if missing > 0 else out


def _without_far(
    own: Array, known: Sequence[tuple[float, Array]], out: list[bool], most: int
) -> list[bool]:
    """Leave out n more, the farthest, of those that are far from all others."""
    vectors = [theta for _, theta in known]
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
