"""Who may speak of sums, and what is believed of them: seals, sizes, and how many rows.

An entry is checked before it is believed or passed on: its seal, that some rows could have these
sums, and that they are no more than the origin can have seen: since its entry before, or, for the
first one received, since the network began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dokl.base.errors import BadInput
from dokl.live.certificates.signing import Seals, seal_and_entry
from dokl.live.protocol.messages import LARGEST_COUNT
from dokl.live.sums import SumsLearner
from dokl.network.sums import checks, origins
from dokl.network.sums.origins import Entry

GRACE_SECONDS = 60.0  # that an origin may have saved rows for, beyond what was received


@dataclass(frozen=True)
class Roll:
    """Who may have an entry, how entries are sealed, and what they may say.

    names: of the origins. target: the largest |y| that is believed. rate: rows a second that an
    origin may have. begun: when the network began, in the seconds of events; nobody has rows of
    before.
    """

    names: frozenset[str]
    seals: Seals
    target: float = float("inf")
    rate: float = float("inf")
    begun: float = float("-inf")


def opened(roll: Roll, learner: SumsLearner, sealed: bytes) -> Entry:
    """The entry in a message; BadInput where it can be nobody's."""
    by, data = roll.seals.opened(sealed)
    entry = origins.from_bytes(data)
    if by not in (None, entry.origin):
        raise BadInput(f"an entry of {entry.origin!r}, sealed by {by!r}")
    if entry.origin not in roll.names:
        raise BadInput(f"an entry of {entry.origin!r}, which is not in this network")
    if entry.sums.zy.shape != (learner.m, learner.D):
        raise BadInput("sums of another size")
    if max(entry.version) >= LARGEST_COUNT:
        raise BadInput("its counters are out of range")
    return entry


def claimed_origin(roll: Roll, sealed: bytes) -> str:
    """Whose entry it says that it is, unproven; "" where it names nobody of this network."""
    try:
        name = origins.origin_in(seal_and_entry(sealed)[2])
    except BadInput:
        return ""
    return name if name in roll.names else ""


def unproven(roll: Roll, sealed: Mapping[str, bytes]) -> list[str]:
    """Whose sealed entries the seals of this roll do not prove, of those that it names."""
    found = []
    for name in sorted(roll.names & set(sealed)):
        try:
            roll.seals.opened(sealed[name])
        except BadInput:
            found.append(name)
    return found


def entry_faults(
    roll: Roll, learner: SumsLearner, known: Entry | None, entry: Entry, since: float, now: float
) -> list[str]:
    """Why an entry is impossible, given `known` of `since`; empty if it is possible."""
    limits = checks.RowLimits(1.0 + 1e-6, learner.largest_target(roll.target), roll.rate)
    seconds = now - (roll.begun if known is None else since) + GRACE_SECONDS
    return checks.growth_faults(known, entry, learner.layout, limits, seconds)
