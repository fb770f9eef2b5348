"""Chaos: a real network of agents as processes on loopback, under seeded faults, all together.

schedule   what happens when, drawn from a seed
arena      the network: agents, proxies on every link, a broker, places for faults
feeding    clients that send rows with keys and keep account of what was acknowledged
sensors    a sensor at the broker that sends again what was not confirmed
attacks    a neighbour with a good certificate that sends bad vectors, sums or rows
faults     doing it: kill, hang, part, flood, lie, damage, and how long it took to recover
verdict    what was lost, doubled, refused, how fast all recovered, and what it did to the error

    python -m benchmarks.chaos --minutes 10
    python -m benchmarks.chaos --minutes 3 --share sums --seed 7
    python -m benchmarks.chaos --minutes 3 --share rows --rate 10

The labs of `tests/processes` are used here, too: networks, proxies, floods and brokers for trying
things.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIVE = str(ROOT / "tests" / "processes")
if LIVE not in sys.path:
    sys.path.insert(0, LIVE)
