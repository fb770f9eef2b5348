"""Small files of rows that say which they are, for tests of sources."""

import json
from types import SimpleNamespace

from dokl.learning.columns import Preprocessor
from dokl.live.inputs import Inputs


def plain_inputs(queue_rows=1000, drop=()):
    prepared = Preprocessor(["a", "b"], {}, "off")
    prepared.freeze()
    agreed = SimpleNamespace(target="y", labels=(), classifying=False, drop=drop, target_range=(),
                             numeric=("a", "b"), ranges=(), outside="refuse", times=(),
                             forms=(), missing=(), says_range="here", says_drop="")  # fmt: skip
    limits = SimpleNamespace(queue_rows=queue_rows)
    return Inputs(SimpleNamespace(inputs=agreed, preprocessor=lambda: prepared, limits=limits))


INPUTS = plain_inputs()
HEADER = "a,b,y\n"


def row(i):
    return f"{i},{i / 2},{-i}\n"


def text(*numbers, header=HEADER):
    return header + "".join(map(row, numbers))


def numbers(arrivals):
    """Which rows came, by their first column."""
    return [int(a) for arrival in arrivals for a in arrival.X[:, 0]]


def through_json(position):
    """As the store keeps it."""
    return json.loads(json.dumps(position))
