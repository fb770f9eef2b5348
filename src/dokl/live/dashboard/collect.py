"""Poll every agent's status at once, and remember a bounded past of each.

A round lasts no longer than its timeout, however many agents hang: each is asked in a thread of
its own, and never twice at a time. When the description's file changes, nodes come and go.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dokl.base.errors import DoklError
from dokl.live.dashboard.fetch import Face
from dokl.live.dashboard.layout import given_places, places
from dokl.live.dashboard.status import Newest, Status
from dokl.live.dashboard.view import (
    DOWN,
    UP,
    NodeView,
    View,
    link_views,
    oldest_message,
    remarks,
    troubles,
    with_words,
)  # fmt: skip
from dokl.live.description import Network, read

TIMEOUT = 3.0
KEPT_POINTS = 600  # per node: ten minutes at a look a second
RATE_LOOKS = 6  # rates are over the last few looks: steadier than over one


@dataclass(frozen=True)
class Point:
    """What is remembered of one look at a node; at: wall-clock seconds."""

    at: float
    error: float | None
    samples_per_s: float | None
    bytes_per_s: float | None
    disagreement: float | None


class Past:
    """A node's last status, its recent counts, and its history; all bounded."""

    def __init__(self, kept: int) -> None:
        self.points: deque[Point] = deque(maxlen=kept)
        self.last: Status | None = None
        self.here = False
        self._counts: deque[tuple[float, Status]] = deque(maxlen=RATE_LOOKS)

    def add(self, status: Status, now: float) -> None:
        """It answered."""
        if self._counts and self._counts[-1][1].incarnation != status.incarnation:
            self._counts.clear()
        self._counts.append((now, status))
        self.last, self.here = status, True

    def silent(self) -> None:
        """It did not."""
        self._counts.clear()
        self.here = False

    def per_second(self, count: Callable[[Status], float | None]) -> float | None:
        """How fast a count grows; None before there are two looks, or where it went back."""
        if len(self._counts) < 2:
            return None
        (then, old), (now, new) = self._counts[0], self._counts[-1]
        before, after = count(old), count(new)
        if before is None or after is None or after < before or now <= then:
            return None
        return (after - before) / (now - then)


class Collector:
    """Looks at a network; `poll` is one look. Used from one thread at a time."""

    def __init__(self, path: str | Path, timeout: float = TIMEOUT, kept: int = KEPT_POINTS) -> None:
        self.path, self.timeout, self.kept = Path(path), timeout, kept
        self.version = 0
        self.pasts: dict[str, Past] = {}
        self._faces: dict[str, Face] = {}
        self._trouble: str | None = None
        # A description that cannot be read now is an error; one that breaks later is a remark.
        self._stamp = self._file_stamp()
        self._take(read(self.path, strict=False))
        self.view = View(self.network.about.name, time.time(), self.version, (), ())

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def poll(self) -> View:
        """Ask everyone, wait for the answers, and make a view of them."""
        self._read_again()
        deadline = time.monotonic() + self.timeout
        for face in self._faces.values():
            face.ask()
        reasons = {name: self._listen(name, deadline) for name in self._faces}
        self.view = self._look(reasons)
        for node in self.view.nodes:
            self.pasts[node.name].points.append(
                Point(self.view.at, node.error if node.state == UP else None, node.samples_per_s,
                      node.bytes_per_s, node.disagreement if node.state == UP else None)
            )  # fmt: skip
        return self.view

    def curves(self, most: int) -> dict[str, list[tuple[float, float]]]:
        """Every node's learning curve: (samples, error), at most n points each."""
        return {
            name: _thin(past.last.curve, most)
            for name, past in self.pasts.items()
            if past.last is not None
        }

    def newest(self, name: str) -> Newest:
        """The newest rows of a node, as it last reported them; none of a name that is no node."""
        past = self.pasts.get(name)
        return Newest() if past is None or past.last is None else past.last.newest

    def close(self) -> None:
        """Hang up everywhere."""
        for face in self._faces.values():
            face.close()

    def _listen(self, name: str, deadline: float) -> str | None:
        """Take a node's answer; why there is none, or None."""
        face, past = self._faces[name], self.pasts[name]
        answer = face.wait(deadline)
        if isinstance(answer, str):
            past.silent()
            return answer
        past.add(answer, face.answered)
        return None

    def _look(self, reasons: dict[str, str | None]) -> View:
        latest = {name: past.last if past.here else None for name, past in self.pasts.items()}
        problems = remarks(self.network, latest)
        if self._trouble:
            problems.append(self._trouble)
        nodes = tuple(self._node(name, why, latest) for name, why in reasons.items())
        links = link_views(self.network, latest)
        about = self.network.about.name
        seen = View(about, time.time(), self.version, nodes, links, tuple(problems))
        return replace(seen, troubles=troubles(self.network, seen))

    def _node(self, name: str, why: str | None, latest: dict[str, Status | None]) -> NodeView:
        past, status = self.pasts[name], self.pasts[name].last
        state = DOWN if why else UP
        if self.network.nodes[name].http is None:
            seen = [s.peers[name].up for s in latest.values() if s is not None and name in s.peers]
            state = UP if any(seen) else DOWN
            sight = "see" if any(seen) else "do not see"
            why = f"it has no HTTP interface; its neighbours {sight} it"
        if status is None:
            kind = "mistakes" if self.network.inputs.classifying else "mse"
            unknown = NodeView(name, state, why, kind=kind, neighbours=self.network.degree(name))
            return with_words(unknown, ())
        made = NodeView(
            name, state, why, status.samples, past.per_second(lambda s: s.samples), status.kind,
            status.error, status.disagreement, oldest_message(status) if past.here else None,
            past.per_second(lambda s: s.bytes), status.uptime if past.here else None,
            sum(peer.up for peer in status.peers.values()) if past.here else 0,
            self.network.degree(name), status.assumptions if past.here else (),
            status.problems if past.here else (), past.here and status.ended,
            sharing=status.sharing if past.here else None,
        )  # fmt: skip
        return with_words(made, self.network.neighbours(name))

    # -- the description -----------------------------------------------------------------------
    def _read_again(self) -> None:
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(read(self.path, strict=False))
            self._trouble = None
        except DoklError as error:
            self._trouble = f"showing the earlier description: {error}"

    def _file_stamp(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def _take(self, network: Network) -> None:
        self.close()
        drawn = places(
            network.names, network.links, given_places(network)
        )  # takes its time, and pages read both
        self.network, self.places = network, drawn
        self.version += 1
        self._faces = {name: Face(network, name, self.timeout) for name in network.names}
        self.pasts = {name: self.pasts.get(name) or Past(self.kept) for name in network.names}


def _thin(curve: tuple[tuple[float, float], ...], most: int) -> list[tuple[float, float]]:
    """At most n points, the first and the last among them."""
    if len(curve) <= most:
        return list(curve)
    step = (len(curve) - 1) / (most - 1)
    return [curve[round(i * step)] for i in range(most)]
