"""Machine code before anything else: logged, since the first time may take a minute."""

from __future__ import annotations

from dokl.live.agent.clock import Clock
from dokl.live.agent.logs import Log
from dokl.simulation.learner import Learner

TEXTS = {
    "compiling": "machine code, once on this machine; this may take a minute",
    "waiting": "another process compiles: its machine code is loaded after that",
}


def prepare(learner: Learner, log: Log, clock: Clock) -> None:
    """Have everything compiled that an agent needs; lines in the log where that is not done yet."""
    from dokl.base.machine_code import watched  # Numba, which takes long to import

    began, reported = clock.now(), set[str]()

    def watcher(what: str) -> None:
        if what not in reported:
            reported.add(what)
            log("compiling", text=TEXTS[what])

    with watched(watcher):
        learner.prepare()
    if reported:
        log("compiled", seconds=round(clock.now() - began, 1))
