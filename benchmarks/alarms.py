"""How seldom problems of neighbours are false, and how soon a faulty one is named.

    python -m benchmarks.alarms                      # 10,000 node-hours of each kind
    python -m benchmarks.alarms --hours 1000 --sums 1

Honest payoffs of three kinds go through the tests of `dokl.learning.alarms` as live nodes make
them, every half second, of 11 others, by two tests each:

    fair       the boundary: independent, of mean 0 (a coin, and uniform)
    slow       as large as Beijing's, and an AR(1) process of correlation 0.9 from test to test
    beijing    what twelve stations report of each other, day by day, in blocks of ten days drawn
    again

`--sums` hours are whole: streams whose weather, offsets and errors change slowly, sums, solutions
and judgements (`agents.protocol.standing`). `--vectors` hours are whole networks by gradient steps,
in virtual time: messages are lost, and every half minute a node starts again from nothing or is cut
off for up to 20 s. Then one station of Beijing has its targets flipped, and the judgements until
each other one names it are counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from dokl.learning import alarms
from dokl.learning.alarms import SECONDS
from dokl.learning.squares import sums as added_up
from dokl.live.description import read
from dokl.live.protocol import standing
from dokl.live.protocol.standing import TESTS, Standing
from dokl.network.sums import checks
from dokl.network.sums.origins import Entry

HERE = Path(__file__).resolve().parent.parent
OTHERS, BLOCK, D = 11, 10, 300
PER_HOUR = round(3600 / SECONDS)


def main() -> None:
    ask = argparse.ArgumentParser(prog="python -m benchmarks.alarms")
    ask.add_argument("--hours", type=int, default=10_000, help="of one node, of each kind")
    ask.add_argument("--sums", type=float, default=2.0, help="hours with sums and solutions")
    ask.add_argument("--vectors", type=float, default=2.0, help="hours of nodes by gradient steps")
    args = ask.parse_args()
    limit = alarms.threshold(TESTS * OTHERS * PER_HOUR)
    print(f"{OTHERS} others, {PER_HOUR:,} judgements an hour: named at evidence {limit:.1f}")
    honest, faulty = beijing(None), beijing(7)
    rng = np.random.default_rng(1)
    margins = np.array([checks.HURTS, checks.OPPOSED])[:, None]
    for kind in ("fair", "slow", "beijing"):
        began = time.monotonic()
        count, most = false_alarms(kind, honest, margins, args.hours, limit, rng)
        print(f"{kind:8} {args.hours:7,} node-hours: {count} false alarms; the largest evidence "
              f"{most:.1f}  ({time.monotonic() - began:.0f} s)", flush=True)  # fmt: skip
    named, most, turns = whole_hours(args.sums)
    print(f"sums     {args.sums:7.1f} node-hours ({turns:,} judgements): {named} false alarms; the "
          f"largest evidence {most:.1f}")  # fmt: skip
    for shape in ("complete", "cycle"):
        named, most, faults = vectors(shape, args.vectors / 2)
        print(f"{shape:8} {args.vectors / 2:7.1f} node-hours by gradient, {faults} restarts and "
              f"partitions: {named} false alarms; the largest evidence {most:.1f}")  # fmt: skip
    soon = detections(faulty, margins, limit)
    print(f"flipped targets of one station of twelve, a judgement a day: named by all {len(soon)} "
          f"judges after {min(soon)} to {max(soon)} judgements")  # fmt: skip


# -- payoffs -----------------------------------------------------------------------------------
def beijing(flipped: int | None, judges: int = 5) -> np.ndarray:
    """Payoffs (2, pairs, days) of the stations at some judges: hurts, opposed. With one flipped:
    of it alone.
    """
    sys.path.insert(0, str(HERE / "examples" / "beijing"))
    from beijing_data import from_extract

    import live

    with tempfile.TemporaryDirectory() as folder:
        learner = read(live.described(Path(folder), True, D)).learner()
    stations = from_extract()
    X, Y = stations.inputs(), stations.target
    n, K, _ = X.shape
    Y = Y * np.where(np.arange(K) == flipped, -1.0, 1.0)
    Z = [np.asarray(learner.made.transform(X[:, k].astype(float))) for k in range(K)]
    own = [added_up.no_rows(learner.D, 1) for _ in range(K)]
    sent, days = list(own), []
    for day in range(n // 24):
        part = slice(24 * day, 24 * day + 24)
        fresh = [_fresh(Z[k][part], Y[part, k]) for k in range(K)]
        if all(each.rows for each in sent):
            rows = [_judgements(own, sent, fresh, k, learner.rho, flipped) for k in range(judges)]
            days.append(np.concatenate(rows, axis=1))
        own = [a + b for a, b in zip(own, fresh, strict=True)]
        sent = [a if a.rows - b.rows >= 50 else b for a, b in zip(own, sent, strict=True)]
    return np.stack(days, axis=2)


def _fresh(Z: np.ndarray, y: np.ndarray) -> Any:
    there = ~np.isnan(y)
    return added_up.add(added_up.no_rows(Z.shape[1], 1), Z[there], y[there][:, None])


def _judgements(own: Any, sent: Any, fresh: Any, k: int, rho: float, flipped: int | None) -> Any:
    """Payoffs (2, others) at one judge, of all others or of the flipped one."""
    whom = [j for j in range(len(sent)) if j != k and flipped in (None, j)]
    whole = own[k]
    for j in range(len(sent)):
        whole = whole + sent[j] if j != k else whole
    usual, found = checks.squared_error(checks._best(whole, rho), fresh[k]), []
    for j in whom:
        other = checks.squared_error(checks._best(whole - sent[j], rho), fresh[k])
        alone = checks.solo(Entry("", 0, sent[j]), rho)
        found.append((alarms.worse(usual, other), -checks._likeness(alone, fresh[k])))
    return np.array(found).T


def drawn(kind: str, honest: np.ndarray, chains: int, rng: np.random.Generator) -> Any:
    """Payoffs, (2, chains) at a time, for ever."""
    if kind == "fair":
        while True:
            yield np.stack([rng.choice((-1.0, 1.0), chains), rng.uniform(-1, 1, chains)])
    mean, spread = honest.mean(axis=(1, 2))[:, None], honest.std(axis=(1, 2))[:, None]
    state = rng.normal(size=(2, chains))
    while kind == "slow":
        state = 0.9 * state + np.sqrt(1 - 0.81) * rng.normal(size=state.shape)
        yield np.clip(mean + spread * state, -1.0, 1.0)
    pairs, days = honest.shape[1:]
    while True:
        pair, first = rng.integers(pairs, size=chains), rng.integers(days - BLOCK, size=chains)
        for day in range(BLOCK):
            yield honest[:, pair, first + day]


def false_alarms(
    kind: str, honest: np.ndarray, margins: np.ndarray, hours: int, limit: float,
    rng: np.random.Generator,
) -> tuple[int, float]:  # fmt: skip
    """How many, and the largest evidence; all nodes at once, for an hour each."""
    evidence = np.zeros((2, hours * OTHERS))
    margins = np.zeros_like(margins) if kind == "fair" else margins
    count, most, payoffs = 0, 0.0, drawn(kind, honest, hours * OTHERS, rng)
    for _ in range(PER_HOUR):
        evidence = np.maximum(evidence, 0.0) + np.log1p(alarms.BET * (next(payoffs) - margins))
        most = max(most, float(evidence.max()))
        count += int((evidence >= limit).sum())
        evidence[evidence >= limit] = 0.0
    return count, most


# -- whole judgements ----------------------------------------------------------------------------
def whole_hours(hours: float, others: int = 4, rows: int = 20) -> tuple[int, float, int]:
    """Nodes that judge by sums of streams that change slowly: false alarms, largest evidence."""
    sys.path[:0] = [str(HERE / "tests"), str(HERE / "tests" / "learning")]
    import test_alarms as small

    turns, named, most = round(hours * PER_HOUR), 0, 0.0
    rng, held = np.random.default_rng(2), Standing()
    streams = [small.likewise(rng, turns * rows, k) for k in range(others + 1)]
    totals = [added_up.no_rows(small.D, 1) for _ in streams]
    for turn in range(turns):
        part = slice(turn * rows, (turn + 1) * rows)
        totals = [
            added_up.add(each, Z[part], y[part])
            for each, (Z, y) in zip(totals, streams, strict=True)
        ]
        sent = {f"n{k}": Entry(f"n{k}", 0, each) for k, each in enumerate(totals) if k}
        held = standing.judge(held, sent, "n0", totals[0], small.RHO, SECONDS * turn)
        named += len(held.trial.out)
        found = [*held.trial.hurts.values(), *held.trial.opposed.values()]
        most = max(most, *found) if found else most
    return named, most, turns


def vectors(shape: str, hours: float, nodes: int = 5) -> tuple[int, float, int]:
    """Honest nodes of a network by gradient steps: false alarms, largest evidence, faults."""
    sys.path.insert(0, str(HERE / "tests"))
    import networkx as nx

    from fake_link import PUSH, Link, described, rows

    network = described(getattr(nx, f"{shape}_graph")(nodes))
    link = Link(network, PUSH, seed=3, loss=0.05).start()
    rng, most, named, turn = np.random.default_rng(5), 0.0, set[tuple[str, str]](), 0
    while link.now < 3600 * hours / nodes:
        turn += 1
        for name in link.nodes:
            link.feed(name, *rows(rng, int(rng.integers(1, 8))))
        link.run(SECONDS)
        for name, node in link.nodes.items():
            named |= {(name, text) for text in node.disputes()}
            peers = node._node.peers.values()
            most = max(most, *(max(p.far.evidence, p.record.alarm.evidence) for p in peers))
        if turn % 60 == 0:
            _trouble(link, rng, restart=turn % 120 == 0)
    return len(named), most, turn // 60


def _trouble(link: Any, rng: np.random.Generator, restart: bool) -> None:
    """One node is down, and starts again from nothing; or it is cut off from all others."""
    name = str(rng.choice(sorted(link.nodes)))
    if restart:
        link.kill(name)
        link.run(float(rng.uniform(0.1, 8)))
        link.start(name)
    else:
        link.part(*((name, other) for other in link._near(name)))
        link.run(float(rng.uniform(1, 20)))
        link.heal()


def detections(faulty: np.ndarray, margins: np.ndarray, limit: float) -> list[int]:
    """Judgements until each judge names the one that is flipped; the number of days if it never
    does.
    """
    found = []
    for pair in range(faulty.shape[1]):
        evidence = np.zeros((2, 1))
        for day in range(faulty.shape[2]):
            payoff = faulty[:, pair, day][:, None] - margins
            evidence = np.maximum(evidence, 0.0) + np.log1p(alarms.BET * payoff)
            if evidence.max() >= limit:
                break
        found.append(day + 1)
    return found


if __name__ == "__main__":
    main()
