"""What is shown of a network: records made of statuses, the same for table, JSON and page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from dokl.live.dashboard.status import Status
from dokl.live.description import Network

UP, DOWN = "up", "down"


@dataclass(frozen=True)
class NodeView:
    """One node. The last report of a node that is down is kept; its rates are None.

    says: what is wrong with it: why it is down, and its problems. remarks: what is worth knowing
    and no problem.
    """

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
    ended: bool = False
    says: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    sharing: float | None = None


@dataclass(frozen=True)
class Trouble:
    """One problem, reported once, in words.

    kind: down, link, remark or problem. who: the nodes that it is about.
    """

    kind: str
    who: tuple[str, ...]
    text: str


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
    troubles: tuple[Trouble, ...] = ()

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


def link_views(network: Network, latest: Mapping[str, Status | None]) -> tuple[LinkView, ...]:
    """Each link as its ends see it; an end without a report does not count."""
    return tuple(_link(a, b, latest) for a, b in network.links)


def _link(a: str, b: str, latest: Mapping[str, Status | None]) -> LinkView:
    ends = ((latest.get(a), b), (latest.get(b), a))
    seen = [
        status.peers[other]
        for status, other in ends
        if status is not None and other in status.peers
    ]
    if not seen or not all(peer.up for peer in seen):
        return LinkView(a, b, DOWN)
    ages = _known(peer.age for peer in seen)
    return LinkView(a, b, UP, max(ages) if ages else None)


def oldest_message(status: Status) -> float | None:
    """The age of the oldest last message of the neighbours that are connected."""
    return max(_known(peer.age for peer in status.peers.values() if peer.up), default=None)


def remarks(network: Network, latest: Mapping[str, Status | None]) -> list[str]:
    """What no single agent can report: strangers at an address, and different fingerprints."""
    out = []
    for name, status in latest.items():
        if status is not None and (status.name, status.network) != (name, network.about.name):
            out.append(
                f"at the address of {name} answers {status.name} of network {status.network}"
            )
    marks = sorted(
        {status.fingerprint for status in latest.values() if status and status.fingerprint}
    )
    if len(marks) > 1:
        out.append(f"agents have different fingerprints and cannot learn together: {_few(marks)}")
    return out


# -- in an operator's words ----------------------------------------------------------------------
def with_words(node: NodeView, neighbours: Iterable[str]) -> NodeView:
    """The node with remarks, problems apart from remarks; not again that a
    neighbour is down, which has a row too.
    """
    ended = ("its source has ended",) if node.ended and node.state == UP else ()
    why = (node.why,) if node.why else ()
    rest = (text for text in node.assumptions if not _of_silence(text, neighbours))
    remarks = (*ended, *rest, *_worth(node.sharing))
    return replace(node, says=(*why, *node.problems), remarks=remarks)


def _worth(ratio: float | None) -> tuple[str, ...]:
    """What sharing is worth to a node, where nodes exchange sums.

    >>> _worth(0.917), _worth(None)
    (('with the others its error is 0.92 of what it is alone',), ())
    """
    if ratio is None:
        return ()
    return (f"with the others its error is {ratio:.2f} of what it is alone",)


def _of_silence(text: str, neighbours: Iterable[str]) -> bool:
    """Whether the assumption that does not hold is that a neighbour is there."""
    return any(text.startswith(f"neighbour {name!r} is down:") for name in neighbours)


def troubles(network: Network, view: View) -> tuple[Trouble, ...]:
    """All that is wrong, each thing once, nodes that are down first."""
    down = {node.name for node in view.nodes if node.state == DOWN}
    out = [_is_down(network, node, down) for node in view.nodes if node.state == DOWN]
    out += [
        Trouble("link", (a, b), f"the link between {a} and {b} is down; both continue without it")
        for a, b in _cut(view, down)
    ]
    out += [Trouble("remark", (), remark) for remark in view.remarks]
    nodes: dict[str, list[str]] = {}
    for node in view.nodes:
        for text in node.problems:
            nodes.setdefault(text, []).append(node.name)
    return tuple(out + [Trouble("problem", tuple(who), text) for text, who in nodes.items()])


def _is_down(network: Network, node: NodeView, down: set[str]) -> Trouble:
    left = [name for name in network.neighbours(node.name) if name not in down]
    if not left:
        others = (
            "no node is linked with it"
            if not network.neighbours(node.name)
            else "all its neighbours are down, too"
        )
    else:
        verb = "continues" if len(left) == 1 else "continue"
        more = {1: "", 2: f" and {left[-1]}"}.get(len(left), f" and {len(left) - 1} others")
        others = f"{left[0]}{more} {verb} without it"
    why = f" ({node.why})" if node.why else ""
    return Trouble("down", (node.name,), f"{node.name} is down{why}; {others}")


def _cut(view: View, down: set[str]) -> list[tuple[str, str]]:
    """Links that are down although both ends are up, and at least one reports it."""
    return [
        (link.a, link.b)
        for link in view.links
        if link.state == DOWN and link.a not in down and link.b not in down
    ]


def _few(words: Sequence[str], most: int = 4) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
