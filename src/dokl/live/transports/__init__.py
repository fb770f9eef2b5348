"""How agents' bytes travel: `zenoh` between processes and machines, `memory` inside one process.

A transport carries bytes between a node and its neighbours and knows nothing of learning. All
of its methods may be called from any thread.
"""

from __future__ import annotations

from typing import Protocol

from dokl.live.description import Network

KINDS = ("hello", "theta")
QUEUE = 64  # messages of one neighbour that wait, where none may be left out


class Transport(Protocol):
    """What the runtime needs of a transport.

    Usually only the newest theta counts: an older one that still waits, here or there, makes room
    for it. A lossless transport (for lockstep) keeps all, in order, as long as the link is up and
    no more than `QUEUE` wait.
    """

    bytes_in: dict[str, int]
    bytes_out: dict[str, int]
    refused: dict[str, int]  # messages of each neighbour that were too large
    problem: str | None  # why there is no connection at all, if there is none

    def open(self) -> None:
        """Begin to listen and to dial; neighbours need not be there yet."""

    def send(self, kind: str, data: bytes) -> None:
        """Give a "hello" or "theta" on its way to all neighbours; never waits."""

    def offer(self, data: bytes, version: tuple[int, int], hello: bytes) -> None:
        """What to answer to a neighbour that asks: data, or the short hello if it knows that."""

    def ask(self, peer: str, known: tuple[int, int]) -> None:
        """Ask a neighbour for its theta if newer than known = (incarnation, step); never waits.

        One question at a time: while one is under way, or while there is no link, it does nothing.
        The answer comes by `receive`.
        """

    def receive(self) -> list[tuple[str, str, bytes]]:
        """(peer, kind, data) that came since the last call."""

    def events(self) -> list[tuple[str, bool]]:
        """(peer, up) since the last call, in order."""

    def twice(self) -> frozenset[str]:
        """Neighbours under whose name two have been connected for some time."""

    def reopen(self, network: Network) -> None:
        """Take a changed description: other neighbours, addresses or certificates."""

    def close(self) -> None:
        """End it; everything after is ignored."""
