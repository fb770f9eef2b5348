"""The broker of a node, if its description names one: a thread that listens to it."""

from __future__ import annotations

import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from dokl.base.errors import DoklError
from dokl.live.agent.replies import Stopping
from dokl.live.agent.runtime import Agent
from dokl.live.description import Network, SensorSource
from dokl.live.sources.access import BrokerAccess, broker_access
from dokl.live.sources.dead_letters import DeadLetters
from dokl.live.sources.messages import MessageIntake, new_facts


def checked_source(network: Network, name: str) -> tuple[SensorSource, BrokerAccess] | None:
    """The broker of a node and who we are to it, once all that it needs is there; None: no broker.

    MissingExtra or BadInput say what is not there, before anything is started.
    """
    source = network.sources.get(name)
    if source is None:
        return None
    import_module(f"dokl.live.sources.{source.kind}")
    access = broker_access(source.kind, source.brokers)
    access.context()
    return source, access


class SensorFeeder:
    """A thread that hands a broker's messages to an agent; `start` and `stop` it."""

    def __init__(
        self, agent: Agent, source: SensorSource, access: BrokerAccess, folder: Path
    ) -> None:
        self._agent, self._ending = agent, threading.Event()
        agent.source = new_facts(source.where, source.kind)
        dead_letters = DeadLetters(folder / f"{agent.name}.dead.jsonl")
        intake = MessageIntake(agent, dead_letters, self._ending, source.predictions is not None)
        room: Any = import_module(f"dokl.live.sources.{source.kind}")
        self._listener = room.listener(agent, source, access, intake, self._ending)
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more; what was not settled is delivered again the next time."""
        self._ending.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        agent = self._agent
        try:
            self._listener.run()
        except Stopping:
            return
        except Exception as error:  # whatever it is, it must be seen
            known = isinstance(error, DoklError)
            reason = str(error) if known else f"internal error: {error!r}"
            agent.problems["source"] = reason
            agent.log("source failed", reason=reason)
            if agent.source is not None:
                agent.source["finished"] = True
