"""Which sums of its own a node seals: never such that few rows could be read off.

Two entries of an origin reveal the sums of the rows by which they differ. So a node seals its own
rows only when it has `fewest_rows` more than at the last seal. It does so when it has 5 % more
(fewer make no difference to others), or when no more rows come. Otherwise it seals only what
reveals nothing new: the same sums for another certificate or start, or none after it has lost rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dokl.learning.squares import sums as added_up
from dokl.learning.squares.sums import Sums
from dokl.live.protocol.messages import LARGEST_COUNT
from dokl.network.sharing import least_new_rows
from dokl.network.sums.origins import Entry

Sealed = tuple[int, bytes]  # rows from which fewest_rows counts, and what was sealed last, or b""
UNKNOWN: Sealed = (LARGEST_COUNT, b"")  # it may be of any rows that the node has


@dataclass(frozen=True)
class Sealing:
    """incarnation: of the next entry. base: own rows from which `fewest_rows` counts. again:
    whether others must get another entry though there are not enough new rows; went_back: because
    this node has lost rows that they have.
    """

    incarnation: int
    base: int
    again: bool = False
    went_back: bool = False

    def allowed(self, rows: int, fewest: int) -> bool:
        """Whether anything may be sealed, with this many own rows."""
        return self.again or rows - self.base >= fewest

    def due(self, rows: int, fewest: int) -> bool:
        """Whether it is worth a message while more rows come."""
        return self.again or rows - self.base >= least_new_rows(self.base, fewest)


def begin(incarnation: int, base: int, rows: int) -> Sealing:
    """At a start with this many own rows. Fewer than `base` means that some were lost: entries with
    enough rows beyond those that are left differ from every earlier one.
    """
    return Sealing(incarnation, min(base, rows))


def recall(sealing: Sealing, entry: Entry, rows: int, renew: bool) -> Sealing:
    """Once it is known what this node sealed last, in an earlier life; renew: its seal is old."""
    back = rows < entry.sums.rows
    later = max(sealing.incarnation, entry.incarnation + 1)
    return replace(sealing, incarnation=later, went_back=back, again=back or renew)


def surprise(sealing: Sealing, entry: Entry, rows: int) -> Sealing:
    """An entry arrives that this node sealed and does not know. Which of its rows are in it cannot
    be known, so the count begins again; what is known to be sealed last follows on it.
    """
    later = max(sealing.incarnation, entry.incarnation + 1)
    return replace(sealing, incarnation=later, base=max(sealing.base, rows), again=True)


def next_entry(
    sealing: Sealing, last: Entry | None, name: str, own: Sums, fewest: int
) -> tuple[Sealing, Entry]:
    """What to seal now. last: the entry before; own: the sums of all own rows."""
    sums, base = own, own.rows
    if last is not None and own.rows - sealing.base < fewest and fewest > 1:
        m, D = own.zy.shape
        sums = added_up.no_rows(D, m) if sealing.went_back else last.sums
        base = sealing.base
    incarnation = sealing.incarnation
    if last is not None and sums.rows <= last.sums.rows:
        incarnation = max(incarnation, last.incarnation + 1)
    return Sealing(incarnation, base), Entry(name, incarnation, sums)
