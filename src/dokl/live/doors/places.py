"""Places for connections: bounded in all and for each address, and who makes room.

Nobody is known yet when a place is given, so what counts is what a connection has done: one that
has sent nothing yet makes room first, one that is being served never does. Of a full house the
address with the most places gives up one, so that a flood from one address pushes out itself. Some
places are kept for this machine: a supervisor can always ask how it is.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

LOCAL = "this machine"


class Rank(IntEnum):
    """What a connection has done so far; the lowest makes room first."""

    SILENT = 0  # nothing that was understood
    IDLE = 1  # it was served, and asks nothing now
    SLOW = 2  # it is in the middle of a question, or of reading its answer
    SERVED = 3  # something is done for it: it stays


@dataclass(eq=False)
class Place:
    """One connection: where it comes from, since when, how to ask what it does, how to end it."""

    address: str
    since: float
    rank: Callable[[], Rank] = lambda: Rank.SILENT
    drop: Callable[[], None] = lambda: None


class DoorPlaces:
    """`most` in all, `each` for an address, of which `kept` are for this machine alone.

    grace: seconds in which nobody is dropped; 0, since the oldest goes first, and a client that
    sends at once has spoken before its turn comes.

    >>> places = DoorPlaces(most=2, each=2, kept=0, grace=1.0)
    >>> first, second = places.enter("192.0.2.1", 0.0), places.enter("192.0.2.1", 0.1)
    >>> places.enter("192.0.2.7", 0.5) is None
    True
    >>> places.enter("192.0.2.7", 1.5).address, places.dropped, len(places)
    ('192.0.2.7', 1, 2)
    """

    def __init__(self, most: int, each: int, kept: int = 0, grace: float = 0.0) -> None:
        self.most, self.each, self.kept, self.grace = most, each, kept, grace
        self.refused = self.dropped = 0
        self._inside: dict[Place, None] = {}  # in the order of coming
        self._from: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._inside)

    def enter(self, host: str, now: float) -> Place | None:
        """A place for a client from a host, if need be in exchange for another; or None."""
        address = origin(host)
        if not self._room(address, now):
            self.refused += 1
            return None
        place = Place(address, now)
        self._inside[place] = None
        self._from[address] += 1
        return place

    def leave(self, place: Place) -> None:
        """It is free again; twice does no harm."""
        if place in self._inside:
            del self._inside[place]
            self._from[place.address] -= 1
            if not self._from[place.address]:
                del self._from[place.address]

    def _room(self, address: str, now: float) -> bool:
        """Whether there is room, or somebody made some."""
        local = address == LOCAL
        others = len(self) - self._from[LOCAL]
        if not local and self._from[address] >= self.each:
            return self._one_less(address, now)
        if len(self) >= self.most:
            (crowd, _), *_ = self._from.most_common(1)
            return self._one_less(crowd, now) or self._one_less(None, now)
        if not local and others >= self.most - self.kept:
            away = Counter({who: n for who, n in self._from.items() if who != LOCAL})
            return self._one_less(away.most_common(1)[0][0], now)
        return True

    def _one_less(self, address: str | None, now: float) -> bool:
        """Drop the one that has done the least, of those the first that came; from an address, or
        from anywhere.
        """
        found = [
            (rank, place.since, number, place)
            for number, place in enumerate(self._inside)
            if address in (None, place.address) and now - place.since >= self.grace
            if (rank := place.rank()) < Rank.SERVED
        ]
        if not found:
            return False
        victim = min(found)[3]
        self.leave(victim)
        self.dropped += 1
        victim.drop()
        return True


def origin(host: str) -> str:
    """What is counted as one address: a network of 64 bits in IPv6, where each host has many.

    >>> origin("127.0.0.1"), origin("::ffff:10.0.0.7"), origin("2001:db8::7%eth0")
    ('this machine', '10.0.0.7', '2001:db8::/64')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return LOCAL
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
