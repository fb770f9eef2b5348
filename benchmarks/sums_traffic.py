"""What sums cost a link, and what sending them more rarely costs: twelve stations, virtual time.

    python -m benchmarks.sums_traffic                          # 30 days, D = 300
    python -m benchmarks.sums_traffic --days 92 --components 500
    python -m benchmarks.sums_traffic --bytes-per-second 0     # any number of bytes

Nodes of the live protocol (`dokl.live.protocol`) with the stations of examples/beijing, in one
process and without a clock: each gets `--rate` rows a second and a message takes one turn of
1 / rate seconds, so the same command gives the same figures on every machine. Errors are mean
squares of predictions before the row was learned, after the first fifth; alone: by the node's lone
learner on the same rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dokl.live.certificates.signing import Seals
from dokl.live.description import ExchangePolicy, Network
from dokl.live.inputs import Inputs
from dokl.live.jobs import new
from dokl.live.jobs.inputs import Sample
from dokl.live.jobs.places import Places
from dokl.live.protocol import Protocol
from dokl.live.protocol.effects import LearnedRows, SendHello, SendTheta
from dokl.live.protocol.roll import Roll

BEIJING = Path(__file__).parents[1] / "examples" / "beijing"
START = 1_700_000_000 * 10**9  # an incarnation, in nanoseconds
HOURS = 24


@dataclass
class Station:
    """One node: its protocol, its rows, and what became of them."""

    node: Protocol
    X: Any
    Y: Any
    squares: list[float] = field(default_factory=list)
    bytes: Counter[int] = field(default_factory=Counter)  # to each neighbour, by second
    entries: int = 0


def described(folder: Path, D: int, policy: ExchangePolicy, few: int | None) -> Network:
    """The network of the example, or a ring of a few of its stations, with the map that the sample
    gives.
    """
    places = Places(graph=str(BEIJING / "links.csv"))
    if few is not None:
        names = sorted(path.stem for path in (BEIJING / "stations").glob("*.csv"))[:few]
        places = Places("ring", named=dict.fromkeys(names))
    sample = Sample(str(BEIJING / "sample.csv"), target="log_pm25", node_column="station")
    model = {"method": "squares", "D": D}
    return new.new(folder / "lab.toml", places, sample, model, policy, secure=False)


def stations(network: Network, rows: int) -> dict[str, Station]:
    """Every node with its first rows."""
    found, inputs = {}, Inputs(network)
    roll = Roll(frozenset(network.names), Seals())
    for i, name in enumerate(network.names):
        text = (BEIJING / "stations" / f"{name}.csv").read_bytes().splitlines(keepends=True)
        arrival = inputs.from_csv(b"".join(text[: rows + 1]))
        about = network.learner(name), name, network.neighbours(name), network.exchange
        node = Protocol(*about, START + i, roll=roll, sealed=(0, b""))
        node.latest = START + 10**15
        found[name] = Station(node, arrival.X, arrival.Y)
    return found


def live(network: Network, lab: dict[str, Station], rate: float) -> float:
    """Let all rows be learned, and messages travel; the seconds that this stands for."""
    flying: list[tuple[str, str, bytes]] = []
    for name, station in lab.items():
        for peer in network.neighbours(name):
            station.node.peer_up(peer, 0.0)
    turns = max(len(station.X) for station in lab.values())
    for turn in range(turns):
        now, arriving = turn / rate, flying
        flying = []
        for sender, to, data in arriving:
            lab[to].node.message(sender, data, now)
        for name, station in lab.items():
            row = slice(turn, turn + 1)
            effects = station.node.samples(station.X[row], station.Y[row], now)
            effects += station.node.tick(now)
            for effect in effects:
                if isinstance(effect, LearnedRows):
                    station.squares += ((effect.f - effect.Y) ** 2).mean(axis=1).tolist()
                if isinstance(effect, SendTheta | SendHello):
                    station.entries += isinstance(effect, SendTheta)
                    station.bytes[int(now)] += len(effect.data)
                    flying += [(name, to, effect.data) for to in network.neighbours(name)]
    return turns / rate


def alone(network: Network, lab: dict[str, Station]) -> dict[str, float]:
    """The error of each node's own learner."""
    found = {}
    for name, station in lab.items():
        learner = network.learner(name)
        _, f = learner.learn(learner.start(), station.X, station.Y)
        found[name] = _late(((f - station.Y) ** 2).mean(axis=1))
    return found


def _late(squares: Any) -> float:
    return float(np.mean(squares[len(squares) // 5 :]))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--components", type=int, default=300, help="D; default: %(default)s")
    parser.add_argument("--rate", type=float, default=20.0, help="rows/s; default: %(default)s")
    parser.add_argument("--own", type=int, default=1000, help="centres of single learners")
    parser.add_argument("--bytes-per-second", type=float, help="per neighbour; default: dokl's")
    parser.add_argument(
        "--stations", type=int, help="n stations, as a ring; default: all, as linked"
    )
    parser.add_argument("--alone", action="store_true", help="the own learners, too")
    options = parser.parse_args()
    given = (
        {} if options.bytes_per_second is None else {"bytes_per_second": options.bytes_per_second}
    )
    with tempfile.TemporaryDirectory() as folder:
        network = described(
            Path(folder), options.components, ExchangePolicy(**given), options.stations
        )
        network = replace(network, model=replace(network.model, own_components=options.own))
        lab, began = stations(network, options.days * HOURS), time.process_time()
        seconds = live(network, lab, options.rate)
        errors = {name: _late(station.squares) for name, station in lab.items()}
        lone = alone(network, lab) if options.alone else {}
    titles = f"{'rows':>6} {'entries sent':>12} {'kB/s a link':>12} {'peak of 60 s':>12}"
    more = f"{'MB/s a node':>12} {'known rows':>10} {'error':>8} {'/ alone':>8}"
    print(f"{'station':14} {titles} {more}")
    for name, station in lab.items():
        total, near = sum(station.bytes.values()), len(network.neighbours(name))
        times = range(max(1, int(seconds) - 59))
        peak = max(sum(station.bytes[at + i] for i in range(60)) / min(60, seconds) for at in times)
        known = station.node.facts()["sums"]["rows"]
        share = f"{errors[name] / lone[name]:8.3f}" if lone else f"{'-':>8}"
        print(f"{name:14} {len(station.X):6,} {station.entries:12,} {total / seconds / 1e3:12.1f} "
              f"{peak / 1e3:12.1f} {near * total / seconds / 1e6:12.2f} {known:10,} "
              f"{errors[name]:8.4f} {share}")  # fmt: skip
    mean = float(np.mean(list(errors.values())))
    print(
        f"mean error {mean:.4f}" + (f", alone {np.mean(list(lone.values())):.4f}" if lone else "")
    )
    print(f"{seconds:.0f} s of the network in {time.process_time() - began:.0f} s of processor "
          f"time", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    main()
