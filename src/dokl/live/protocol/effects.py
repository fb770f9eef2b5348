"""What the protocol wants done: plain records, which the runtime carries out after storing."""

from __future__ import annotations

from dataclasses import dataclass

from dokl.base.arrays import Array


@dataclass(frozen=True)
class LearnedRows:
    """Rows were learned: a-priori predictions f (rows, m), losses (rows,), and the total so far;
    their targets Y (rows, m), and half the widths of the predicted intervals, if any.
    """

    rows: int
    f: Array
    losses: Array
    learned: int
    Y: Array
    half: Array | None = None


@dataclass(frozen=True)
class Combined:
    """Own theta moved towards these neighbours; mean of their |theta_l - theta|^2 before that."""

    peers: tuple[str, ...]
    distance2: float


@dataclass(frozen=True)
class SendTheta:
    """Send this to all neighbours."""

    data: bytes


@dataclass(frozen=True)
class SendHello:
    """Send this to all neighbours: who we are, and without theta."""

    data: bytes


@dataclass(frozen=True)
class Ask:
    """Ask a neighbour for its theta, if newer than the (incarnation, step) that is known."""

    peer: str
    known: tuple[int, int]


@dataclass(frozen=True)
class Refuse:
    """A message was not used: a short reason to count, and a text for people."""

    peer: str
    reason: str
    text: str


@dataclass(frozen=True)
class Notice:
    """Something that people should know."""

    kind: str
    text: str


@dataclass(frozen=True)
class Save:
    """Theta changed by something that is not in the journal: snapshot it in this transaction."""


@dataclass(frozen=True)
class SaveSealed:
    """Keep the newest sums that this node sealed, and the rows from which `fewest_rows` counts, in
    this transaction: whatever is sent of them later follows from what is stored.
    """

    rows: int
    sealed: bytes


@dataclass(frozen=True)
class SaveLog:
    """Keep of the log of an origin what has numbers from `base` on and below `cut`, and with it
    these batches: (number of the first row, sealed bytes), in this transaction.
    """

    origin: str
    base: int
    cut: int
    batches: tuple[tuple[int, bytes], ...] = ()


Saved = Save | SaveSealed | SaveLog
Effect = LearnedRows | Combined | SendTheta | SendHello | Ask | Refuse | Notice | Saved
