"""What a node knows of one neighbour, and whether a message of it is news."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dokl.agents.protocol.messages import Message
from dokl.agents.protocol.states import Contact, Event, Interest, Patience, Trust, after
from dokl.arrays import Array

NOTHING = (-1, -1)
_THERE, _AWAY = (Contact.UP, Contact.BACK), (Contact.LOST, Contact.BACK)


@dataclass
class Neighbour:
    """One neighbour.

    known: (incarnation, step) of its newest theta here. said: the same of its newest message,
    hellos included. fresh: a theta that was not combined with yet. rounds: in lockstep, its thetas
    by round. unlike: why its thetas are not used, while it is barred.
    """

    name: str
    contact: Contact = Contact.UNMET
    trust: Trust = Trust.ALIKE
    patience: Patience = Patience.AWAITED
    interest: Interest = Interest.CONTENT
    degree: int = 0
    known: tuple[int, int] = NOTHING
    said: tuple[int, int] = NOTHING
    count: int = 0
    learned: int = 0
    wall: float = float("-inf")
    finished: bool = False
    unlike: str = ""
    fresh: Array | None = None
    rounds: Mapping[int, Array] = field(default_factory=dict)
    clipped: bool = False
    received: int = 0
    repeated: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    last_received: float | None = None
    distance2: float | None = None

    def copy(self) -> Neighbour:
        """For `mark`: nothing in here is changed in place, so a shallow copy will do."""
        return replace(self)

    @property
    def up(self) -> bool:
        """Whether it can be reached."""
        return self.contact in _THERE

    @property
    def lost(self) -> bool:
        """Whether it went away, and whoever is there now may be another process."""
        return self.contact in _AWAY

    @property
    def barred(self) -> bool:
        """Whether its vectors are of another kind."""
        return self.trust is Trust.BARRED

    @property
    def given_up(self) -> bool:
        """Whether lockstep goes on without it."""
        return self.patience is Patience.GIVEN_UP

    @property
    def curious(self) -> bool:
        """Whether it is to be asked for its theta."""
        return self.interest is Interest.CURIOUS

    @property
    def heard(self) -> bool:
        """Whether it ever said something."""
        return self.said != NOTHING

    @property
    def usable(self) -> bool:
        """Whether it takes part in combining now."""
        return self.up and not self.barred

    @property
    def has(self) -> tuple[int, int]:
        """What to tell it that we have of it. (0, 0) is nothing: also after it was lost, since
        it may be back with a lower incarnation.
        """
        return (0, 0) if self.lost else (max(0, self.known[0]), max(0, self.known[1]))

    def hears(self, message: Message) -> None:
        """What every message tells, hello or theta; an overtaken one tells nothing."""
        if message.incarnation == self.known[0]:
            self.contact = after(self.contact, Event.SAME_PROCESS)
        same = message.incarnation == self.said[0]
        if same and (message.wall < self.wall or message.step < self.said[1]):
            return
        if not same and not (message.incarnation > self.said[0] or self.lost):
            return
        self.said, self.wall = message.version, message.wall
        self.degree, self.count = message.degree, message.count
        self.learned, self.finished = message.learned, message.finished

    def bar(self, why: str) -> None:
        """It is of another kind: what it sent is not used, nor what it sends from now on."""
        self.trust, self.unlike, self.fresh = after(self.trust, Event.UNLIKE), why, None

    def stale(self, message: Message) -> str | None:
        """Why a theta is not news: "duplicate" or "stale"; None if it is.

        Within an incarnation steps only grow. A lower incarnation is stale, too, unless the
        neighbour was lost in between: it may have come back with its clock set back.
        """
        incarnation, step = self.known
        if message.incarnation == incarnation:
            if message.step == step:
                return "duplicate"
            return "stale" if message.step < step else None
        return None if message.incarnation > incarnation or self.lost else "stale"

    def accepts(self, message: Message, now: float) -> None:
        """Take note of a theta that is news."""
        self.known, self.contact = message.version, after(self.contact, Event.THETA)
        self.received += 1
        self.last_received = now

    def counts(self, reason: str) -> None:
        """One more refusal."""
        self.refused = {**self.refused, reason: self.refused.get(reason, 0) + 1}

    def facts(self, weight: float) -> dict[str, Any]:
        """For `/status`; the weight is the one it has while it takes part."""
        keys = "up", "last_received", "received", "repeated", "distance2", "learned", "count"
        return {
            **{key: getattr(self, key) for key in keys},
            "refused": sum(self.refused.values()),
            "reasons": dict(self.refused),
            "weight": weight,
            "step": max(self.said[1], self.known[1], 0),
            "finished": self.finished,
        }
