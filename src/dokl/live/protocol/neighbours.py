"""What a node knows of one neighbour, and whether a message of it is news."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dokl.base.arrays import Array
from dokl.learning.alarms import Alarm
from dokl.live.protocol.messages import OF_ROWS, OF_SUMS, TWICE, Message, RefusalNotice, mark_of
from dokl.live.protocol.own_rows import NeighbourTest
from dokl.live.protocol.states import Contact, Event, Interest, Patience, Trust, after

NOTHING = (-1, -1)
OFTEN, LASTING = 3, 2.0  # messages, and seconds between the first and the last: not by chance
LAPSE = 10.0  # seconds after which an incarnation that fell silent makes room for an older one
_THERE, _AWAY = (Contact.UP, Contact.BACK), (Contact.LOST, Contact.BACK)
OUTSIDE = "outside"  # why a vector that can be read is not mixed
_ON_ITS_WAY = ("duplicate", "stale", "off", "stranger")  # reasons that say nothing of its sender
_SEALED = (
    "sums",
    "ahead",
    *OF_ROWS,
)  # reasons about the sealer of an entry, not about its sender
_OF_BODIES = ("large", "finite", *OF_SUMS, *OF_ROWS)  # reasons that a hello says nothing against


@dataclass(frozen=True)
class Fault:
    """Messages about one thing that were refused, none in order in between: how many, when the
    first and the last of them came, and why.
    """

    reason: str
    text: str
    times: int
    since: float
    last: float

    @property
    def lasting(self) -> bool:
        """Whether that is no chance."""
        return self.times >= OFTEN and self.last - self.since >= LASTING


@dataclass
class Neighbour:
    """One neighbour.

    known: (incarnation, step) of its newest theta here. newest: the same of its newest message,
    hellos included. fresh: a theta that was not combined with yet; last: its newest while it is
    there, to compare others with. far: the alarm that its vectors are far from all others. record:
    what own rows say of its vectors, where nobody can be left out. rounds: in lockstep, its thetas
    by round. unlike: why its thetas are not used, and reason: the word for that, while it is not
    believed. faults: what was refused of it, by what it was about: an origin of sums, or "" for the
    neighbour itself.

    rival: an older incarnation that sends although a newer one was received, so often, between two
    times, last at its own clock. heard_at: when the newest one sent. twice: whether the transport
    sees two. told: what it reports of this node's own messages ("": nothing). refuses: marks of all
    whose messages or sums it says that it refuses. release: the version of dokl that it says it is.
    """

    name: str
    contact: Contact = Contact.UNMET
    trust: Trust = Trust.ALIKE
    patience: Patience = Patience.AWAITED
    interest: Interest = Interest.CONTENT
    degree: int = 0
    known: tuple[int, int] = NOTHING
    newest: tuple[int, int] = NOTHING
    count: int = 0
    learned: int = 0
    wall: float = float("-inf")
    finished: bool = False
    unlike: str = ""
    reason: str = ""
    faults: Mapping[str, Fault] = field(default_factory=dict)
    rival: int = 0
    rival_times: int = 0
    rival_since: float = 0.0
    rival_at: float = float("-inf")
    rival_wall: float = float("-inf")
    heard_at: float = float("-inf")
    twice: bool = False
    told: str = ""
    release: str = ""
    refuses: frozenset[bytes] = frozenset()
    fresh: Array | None = None
    last: Array | None = None
    far: Alarm = field(default_factory=Alarm)
    record: NeighbourTest = field(default_factory=NeighbourTest)
    left_out: bool = False
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
        """Whether it went away, and the one there now may be another process."""
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
    def has_sent(self) -> bool:
        """Whether it ever sent something."""
        return self.newest != NOTHING

    @property
    def usable(self) -> bool:
        """Whether there is any sense in exchanging with it now."""
        return self.up and not self.barred

    @property
    def believed(self) -> bool:
        """Whether its vectors may be combined with: nothing speaks against it, or against us at
        its side, so that both ends of a link take their weight back together.
        """
        return self.trust is Trust.ALIKE and not self.told

    @property
    def speaks(self) -> bool:
        """Whether it has a vector that may be combined with, up or not."""
        return self.usable and self.believed and (self.last is not None or self.newest[1] > 0)

    @property
    def outside(self) -> bool:
        """Whether its vectors are far from all others, again and again: not by chance. One that
        starts again from nothing is far, too, until it has received from its neighbours.
        """
        return self.up and self.far.raised

    @property
    def harms(self) -> bool:
        """Whether its vectors predict own rows badly, again and again: not by chance."""
        return self.record.alarm.raised

    def tested_far(self, far: bool, limit: float, now: float) -> None:
        """Whether a new vector of it is far from all others."""
        if self.far.due(now):
            self.far = self.far.tested(1.0 if far else -1.0, limit, now)

    @property
    def has(self) -> tuple[int, int]:
        """What to report that we have of it. (0, 0) is nothing: also after it was lost, since
        it may be back with a lower incarnation.
        """
        return (0, 0) if self.lost else (max(0, self.known[0]), max(0, self.known[1]))

    def receive(self, message: Message, now: float) -> bool:
        """What every message reports, hello or theta; an overtaken one nothing (False)."""
        if message.incarnation == self.known[0]:
            self.contact = after(self.contact, Event.SAME_PROCESS)
        same = message.incarnation == self.newest[0]
        if same and (message.wall < self.wall or message.step < self.newest[1]):
            return False
        older = not same and not (message.incarnation > self.newest[0] or self.lost)
        if older and not self._succeeds(message, now):
            return False
        self.newest, self.wall, self.heard_at = message.version, message.wall, now
        self.degree, self.count = message.degree, message.count
        self.learned, self.finished = message.learned, message.finished
        return True

    # -- whether it is believed ----------------------------------------------------------------
    def bar(self, reason: str, why: str) -> None:
        """It is of another kind: what it sent is not used, nor what it sends from now on."""
        self.trust, self.fresh = after(self.trust, Event.UNLIKE), None
        self.reason, self.unlike = reason, why

    def spurned(self, reason: str, why: str, now: float, about: str = "") -> None:
        """A message of it was refused; if that lasts, it takes no part until one is in order."""
        if reason in _ON_ITS_WAY:
            return
        before = self.faults.get(about)
        if before is None:
            fault = Fault(reason, why, 1, now, now)
        else:
            text = before.text if before.reason == reason else why  # its numbers change each time
            fault = Fault(reason, text, before.times + 1, before.since, now)
        self.faults = {**self.faults, about: fault}
        self._weigh_faults()

    def welcome(self, hello: bool, about: str = "") -> None:
        """A message of it is in order; a hello alone says nothing of vectors or sums that were
        refused, and sums of one origin nothing of those of another.
        """
        fault = self.faults.get(about)
        if fault is not None and not (hello and fault.reason in _OF_BODIES):
            self._drop_faults({about})

    def forget_sums(self, before: float) -> None:
        """Sums that were refused and have not been sent again since a time are no problem now."""
        late = {about for about, fault in self.faults.items() if fault.last < before}
        self._drop_faults({a for a in late if a or self.faults[a].reason in (*OF_SUMS, *OF_ROWS)})

    def _drop_faults(self, gone: set[str]) -> None:
        if gone:
            self.faults = {a: fault for a, fault in self.faults.items() if a not in gone}
            self._weigh_faults()

    def _weigh_faults(self) -> None:
        """Whether it is refused, and for what, by the faults of now."""
        lasting = next((fault for fault in self.faults.values() if fault.lasting), None)
        if lasting is None:
            if self.trust is Trust.REFUSED:
                self.trust, self.reason = after(self.trust, Event.USED), ""
            return
        if self.trust is Trust.ALIKE:
            self.trust, self.fresh = after(self.trust, Event.UNUSED), None
        if self.trust is Trust.REFUSED:
            self.reason, self.unlike = lasting.reason, lasting.text

    def _succeeds(self, message: Message, now: float) -> bool:
        """A message of an older incarnation than the newest received. Once or twice it was
        on its way. If it goes on, two agents have one name, unless the newer has fallen silent:
        then it was the wrong one, or is gone, and the older is accepted again.
        """
        if message.incarnation != self.rival:
            self.rival, self.rival_times = message.incarnation, 0
            self.rival_since, self.rival_wall = now, float("-inf")
        if message.wall > self.rival_wall:
            self.rival_wall, self.rival_at = message.wall, now
            self.rival_times += 1
        if self.rival_times < OFTEN or now - self.rival_since < LASTING:
            return False
        if now - self.heard_at >= LAPSE:
            self.known = NOTHING
            self._settle()
            return True
        self._contest()
        return False

    def _contest(self) -> None:
        if self.trust in (Trust.ALIKE, Trust.REFUSED):
            self.trust, self.fresh = after(self.trust, Event.RIVALS), None
            self.reason, self.unlike = TWICE, "two agents speak under its name"

    def _settle(self) -> None:
        self.rival, self.rival_times, self.rival_at = 0, 0, float("-inf")
        if self.trust is Trust.CONTESTED and not self.twice:
            self.trust, self.reason = after(self.trust, Event.NO_RIVALS), ""

    def sees_two(self, twice: bool) -> None:
        """The transport sees two under its name, or one again."""
        self.twice = twice
        if twice:
            self._contest()
        elif not self.rival:
            self._settle()

    def rivals_end(self) -> float | None:
        """When an older incarnation will have been silent for long enough."""
        return self.rival_at + LAPSE if self.rival else None

    def tick(self, now: float) -> None:
        """Forget a rival that has fallen silent."""
        ends = self.rivals_end()
        if ends is not None and now >= ends:
            self._settle()

    def refusals(self) -> list[RefusalNotice]:
        """What a hello of ours says of it, or of origins whose sums it passes on: who sealed sums
        that cannot be is named, and who sent what nobody has sealed.
        """
        if self.trust is Trust.ALIKE:
            return []
        if self.trust is Trust.REFUSED:
            lasting = [(a, fault.reason) for a, fault in self.faults.items() if fault.lasting]
            pairs = {(a if r in _SEALED and a else self.name, r) for a, r in lasting}
            return [
                RefusalNotice(mark_of(a), self._start(a), reason) for a, reason in sorted(pairs)
            ]
        mark, newest = mark_of(self.name), max(0, self.newest[0])
        both = {newest, self.rival} if self.reason == TWICE else {newest}
        return [RefusalNotice(mark, each, self.reason) for each in sorted(both)]

    def _start(self, name: str) -> int:
        """The incarnation that a refusal is of; 0, any, where it is not this neighbour's."""
        return max(0, self.newest[0]) if name == self.name else 0

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
        self.welcome(hello=False)
        self.received += 1
        self.last_received = now

    def counts(self, reason: str) -> None:
        """One more refusal."""
        self.refused = {**self.refused, reason: self.refused.get(reason, 0) + 1}

    @property
    def _why(self) -> str:
        if self.trust is not Trust.ALIKE:
            return self.reason
        return OUTSIDE if (self.outside or self.harms) and self.left_out else ""

    def facts(self, weight: float) -> dict[str, Any]:
        """For `/status`; the weight is the one it has while it takes part."""
        keys = (
            "up", "last_received", "received", "repeated", "distance2", "learned", "count", "told",
            "release",
        )  # fmt: skip
        return {
            **{key: getattr(self, key) for key in keys},
            "refused": sum(self.refused.values()),
            "reasons": dict(self.refused),
            "weight": weight,
            "why": self._why,
            "step": max(self.newest[1], self.known[1], 0),
            "finished": self.finished,
        }
