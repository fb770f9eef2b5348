"""What the nodes see: (x, y) for every node at every step.

A `Stream` holds the samples of all K nodes. Everything else here is a *recipe*: `draw(seed)`
gives a Stream, the same one for the same seed. The paper's examples, rows of a data set dealt
over nodes, targets that drift, samples that never arrive.

>>> stream = Missing(Example2(K=3, n=100), p=0.5).draw(seed=1)
>>> stream.X.shape, stream.y.shape, stream.weight.shape
((100, 3, 5), (100, 3), (100, 3))
"""

from dokl.simulation.streams.changes import AbruptDrift, Missing, Shards, SlowDrift
from dokl.simulation.streams.examples import (
    EXAMPLES,
    Example1,
    Example2,
    Example3,
    Example4,
    Law,
    example,
)
from dokl.simulation.streams.stream import Stream

__all__ = [
    "AbruptDrift",
    "EXAMPLES",
    "Example1",
    "Example2",
    "Example3",
    "Example4",
    "Law",
    "Missing",
    "Shards",
    "SlowDrift",
    "Stream",
    "example",
]
