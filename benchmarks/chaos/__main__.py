"""Kill, hang, part, flood, lie, damage journals and restart a broker, all together, for minutes.

    python -m benchmarks.chaos --minutes 10
    python -m benchmarks.chaos --minutes 3 --share sums --nodes 6 --seed 7
    python -m benchmarks.chaos --minutes 3 --share rows --rate 10

Prints the schedule, what happens, and at the end what came of it. Ctrl-C ends it, and still says
what came of it up to there. The exit status is 1 if a row was lost or doubled, a node did not
recover, or something else was wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.arena import Arena
from benchmarks.chaos.faults import Trouble
from benchmarks.chaos.schedule import KINDS, drawn
from benchmarks.chaos.verdict import Verdict, Watch, books, report, settled_totals

SETTLE = 60.0  # seconds for the last rows, and for accounts to agree


def main() -> None:
    ask = argparse.ArgumentParser(prog="python -m benchmarks.chaos")
    ask.add_argument("--minutes", type=float, default=10.0)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--method", default="gradient", choices=["gradient", "squares"])
    ask.add_argument("--share", choices=["sums", "rows"], help="by method squares, whatever else")
    ask.add_argument("--nodes", type=int, default=5, help="honest ones; 4 or more")
    ask.add_argument("--rate", type=float, default=100.0, help="rows a second for each node")
    ask.add_argument("--every", type=float, default=4.0, help="seconds from fault to fault, mean")
    ask.add_argument("--only", nargs="+", default=KINDS, choices=KINDS, metavar="KIND",
                     help=f"some kinds of faults alone: {', '.join(KINDS)}")  # fmt: skip
    args = ask.parse_args()
    if args.nodes < 4:
        ask.error("with fewer than 4 honest nodes no node tolerates a faulty one")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    verdict = chaos(
        {"rows": "rows", "sums": "squares", None: args.method}[args.share],
        60 * args.minutes, args.seed, args.nodes, args.rate, args.every, args.only,
        say=lambda text: print(text, flush=True),
    )  # fmt: skip
    sys.exit(0 if verdict is not None and verdict.good else 1)


def chaos(
    method: str, seconds: float, seed: int, nodes: int, rate: float, every: float,
    kinds: Sequence[str] = KINDS, *, say: Callable[[str], None],
) -> Verdict | None:  # fmt: skip
    """One run; None if it ended before a result."""
    with tempfile.TemporaryDirectory(prefix="dokl-chaos-") as folder:
        say(f"{nodes} agents and a faulty node, by {method}, {rate:g} rows/s each, seed {seed}, "
            f"{seconds:g} s; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")  # fmt: skip
        with Arena(Path(folder), method, nodes, seed, rate) as arena:
            try:
                return _run(arena, seconds, seed, every, kinds, say)
            except KeyboardInterrupt:
                say("ended before all was settled")
                return None


def _run(
    arena: Arena, seconds: float, seed: int, every: float, kinds: Sequence[str],
    say: Callable[[str], None],
) -> Verdict:  # fmt: skip
    begin, end = max(3.0, 0.1 * seconds), 0.9 * seconds
    who = arena.method, arena.names, arena.sensing, arena.secure
    faults = drawn(seed, begin, end, every, *who, kinds)
    say("schedule")
    for fault in faults:
        say(f"  {fault}")
    arena.begin()
    watch = Watch(arena, every=min(2.0, seconds / 20))
    watch.start()
    say("all agents answer")
    trouble = Trouble(arena, time.monotonic(), say)
    try:
        if not trouble.over.wait(begin):
            watch.phase = "during"
        trouble.run(faults)
        trouble.over.wait(max(0.0, seconds - trouble.now()))
    except KeyboardInterrupt:
        say("Ctrl-C: no more faults; what was done is looked at")
        trouble.stop()
    watch.phase = "after"
    return _settled(arena, trouble, watch, say)


def _settled(arena: Arena, trouble: Trouble, watch: Watch, say: Callable[[str], None]) -> Verdict:
    """Let everybody finish, stop the agents, and look into their books."""
    say(f"{trouble.now():7.1f} s  the last rows")
    wrong = list(trouble.wrong)
    for name, feeder in arena.feeders.items():
        if not feeder.finish(SETTLE):
            wrong.append(f"the client of {name} could not send its last rows")
    if not arena.sensor.finish(SETTLE):
        wrong.append("the sensor could not publish its last readings")
    totals, off = settled_totals(arena, SETTLE)
    watch.finish()
    faces = arena.faces()
    last = watch.look(faces)
    statuses = {name: face.status() for name, face in faces.items()}
    for face in faces.values():
        face.close()
    wrong += off + [f"{name} does not answer" for name, found in statuses.items() if found is None]
    for name, status in statuses.items():
        for problem in (status or {}).get("problems", ()):
            say(f"           {name} says: {problem}")
    wrong += watch.accused()
    for name in arena.names:
        code = arena.lab.stop(name)
        if code != 0:
            wrong.append(f"{name} ended with {code}: {arena.lab.tail(name)[-300:]}")
    there = {name: status for name, status in statuses.items() if status is not None}
    verdict = _verdict(arena, trouble, watch, there, last, totals, wrong)
    say(report(verdict))
    return verdict


def _verdict(
    arena: Arena, trouble: Trouble, watch: Watch, statuses: dict[str, dict[str, Any]],
    last: dict[str, float], totals: dict[str, str], wrong: list[str],
) -> Verdict:  # fmt: skip
    accounts = [feeder.account for feeder in arena.feeders.values()]
    refused = sum((account.refused for account in accounts), Counter[str]())
    return Verdict(
        books(arena, statuses, last) if len(statuses) == len(arena.names) else [],
        trouble.outcomes,
        watch.errors,
        refused,
        sum(account.silent for account in accounts),
        sum(account.repeated for account in accounts),
        sum(account.again for account in accounts),
        [wait for account in accounts for wait in account.waits],
        totals,
        wrong,
    )


if __name__ == "__main__":
    main()
