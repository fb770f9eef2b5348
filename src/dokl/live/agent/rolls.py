"""Who may speak of sums in a network, and how their entries are sealed and bounded."""

from __future__ import annotations

from datetime import UTC, datetime

from dokl.live.agent.clock import Clock
from dokl.live.certificates.signing import Seals
from dokl.live.description import Network
from dokl.live.protocol.roll import Roll


def roll_of(network: Network, name: str, clock: Clock | None = None) -> Roll | None:
    """The roll of a network by method "squares", as node `name` has it; None for any other."""
    if not network.model.squares:
        return None
    bounds = (1.0,) if network.inputs.classifying else network.inputs.target_range
    largest = max(map(abs, bounds), default=float("inf"))
    seals = Seals(network.certificate_files(name) if network.secure else None)
    rate, begun = network.exchange.rows_per_second, _begun(network.about.begun, clock or Clock())
    return Roll(frozenset(network.names), seals, largest, rate, begun)


def _begun(day: str, clock: Clock) -> float:
    """The beginning of a day, UTC, by the clock that only goes forward."""
    if not day:
        return float("-inf")
    first = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    return clock.now() - max(0.0, clock.wall() - first)
