"""What is shown of a network: records made of statuses, the same for table, JSON and page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dokl.agents.description import Network
from dokl.dashboard.status import Status

UP, DOWN = "up", "down"


@dataclass(frozen=True)
class NodeView:
    """One node. What a node that is down said last is kept; its rates are None."""

    name: str
    state: str
    why: str | None = None
    samples: float | None = None
    samples_per_s: float | None = None
    kind: str = "mse"
    error: float | None = None
    disagreement: float | None = None
    oldest_message_s: float | None = None
    bytes_per_s: float | None = None
    uptime_s: float | None = None
    neighbours_up: int = 0
    neighbours: int = 0
    assumptions: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class LinkView:
    """One link, by the older of its two directions."""

    a: str
    b: str
    state: str
    age_s: float | None = None


@dataclass(frozen=True)
class View:
    """The network at one moment; `at` is wall-clock seconds, version counts its descriptions."""

    network: str
    at: float
    version: int
    nodes: tuple[NodeView, ...]
    links: tuple[LinkView, ...]
    remarks: tuple[str, ...] = ()

    @property
    def totals(self) -> dict[str, float | int | None]:
        """All nodes together; errors and disagreements of those that are up."""
        here = [node for node in self.nodes if node.state == UP]
        errors = _known(node.error for node in here)
        apart = _known(node.disagreement for node in here)
        return {
            "up": len(here),
            "down": len(self.nodes) - len(here),
            "samples": sum(_known(node.samples for node in self.nodes)),
            "samples_per_s": _total(node.samples_per_s for node in here),
            "bytes_per_s": _total(node.bytes_per_s for node in here),
            "error": median(errors) if errors else None,
            "disagreement": median(apart) if apart else None,
        }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _total(values: Iterable[float | None]) -> float | None:
    found = _known(values)
    return sum(found) if found else None


def link_views(network: Network, heard: Mapping[str, Status | None]) -> tuple[LinkView, ...]:
    """Each link as its ends see it; an end that says nothing has no say."""
    return tuple(_link(a, b, heard) for a, b in network.links)


def _link(a: str, b: str, heard: Mapping[str, Status | None]) -> LinkView:
    ends = ((heard.get(a), b), (heard.get(b), a))
    seen = [said.peers[other] for said, other in ends if said is not None and other in said.peers]
    if not seen or not all(peer.up for peer in seen):
        return LinkView(a, b, DOWN)
    ages = _known(peer.age for peer in seen)
    return LinkView(a, b, UP, max(ages) if ages else None)


def oldest_message(said: Status) -> float | None:
    """The age of the oldest last message of the neighbours that are connected."""
    return max(_known(peer.age for peer in said.peers.values() if peer.up), default=None)


def remarks(network: Network, heard: Mapping[str, Status | None]) -> list[str]:
    """What no agent can say by itself: strangers at an address, and different fingerprints."""
    out = []
    for name, said in heard.items():
        if said is not None and (said.name, said.network) != (name, network.about.name):
            out.append(f"at the address of {name} answers {said.name} of network {said.network}")
    marks = sorted({said.fingerprint for said in heard.values() if said and said.fingerprint})
    if len(marks) > 1:
        out.append(f"agents have different fingerprints and cannot learn together: {_few(marks)}")
    return out


def _few(words: Sequence[str], most: int = 4) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
