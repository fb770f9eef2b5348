"""The states of a node and of its neighbours, and what leads from one to the next: all of it.

Each enum is one small machine, independent of the others, and its table says which events may come
in which state, and what the state is then. The code asks `after` and decides nothing beside it.
An event that is not in the table is a mistake in this package, whatever a neighbour sent: what
others send is refused before. `docs/protocol.md` draws these tables, and a test walks through every
entry.

Numbers, deadlines and what messages say of their sender (its degree, whether it has finished) are
no states: they stand beside these, in `LiveNode`, `Neighbour`, `Gossip` and `Lockstep`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar


class _Named(Enum):
    """A name with its meaning as the value. Enum hashes names in Python, and tables are looked up
    with every message and row.
    """

    __hash__ = object.__hash__


class Event(_Named):
    """What happens, as far as it matters to a state."""

    # to the node
    JOIN = "push or pull begins, and the node has neighbours to start from"
    NO_JOIN = "the node begins alone: exchange is off, in lockstep, or without neighbours"
    ADOPTED = "a newcomer adopted its neighbours' vectors"
    NOBODY = "a newcomer's wait is over, and no neighbour had a vector"
    LEARNED = "rows were learned"
    COMBINED = "theta moved towards those of the neighbours"
    SAMPLES = "rows arrived"
    FINISH = "the node's own source has ended"
    # with a neighbour
    PEER_UP = "the neighbour can be reached"
    PEER_LOST = "the neighbour can no longer be reached"
    SAME_PROCESS = "a message of the incarnation whose theta is stored"
    THETA = "a new theta"
    HELLO = "a hello with the same fingerprint and shape"
    UNLIKE = "a message with another fingerprint or shape"
    UNUSED = "for seconds, all its messages were refused"
    USED = "a message of it was valid again"
    RIVALS = "two agents continue to send under its name"
    NO_RIVALS = "one of the two agents has become silent"
    ROUND = "a vector of a round, not received before"
    SILENCE = "the node has waited `patience_seconds` for the neighbour"
    NEWS = "its hello reports a theta that the node does not have"
    NO_NEWS = "its hello reports nothing new, and this node has not changed for a while"
    SENT = "this node sent a change, so the neighbour will change, too"
    NOT_SENT = "this node sent a change, and the neighbour is away or barred"
    # in exchanging
    EXCHANGED = "an exchange was due, and a neighbour is reachable"
    ALONE = "an exchange was due, and no neighbour is reachable"
    FREE = "the node waits for no neighbour"
    ROW_CTA = "combine, then adapt: the row of this round was learned"
    ROW_ATC = "adapt, then combine: the row of this round was learned"
    MIXED = "this round was combined, with the vectors received"
    JUMP_CTA = "combine, then adapt: the node jumped to its neighbours' round"
    JUMP_ATC = "adapt, then combine: the node jumped to its neighbours' round"


class Life(_Named):
    """How far a node has come."""

    NEW = "it has learned nothing, and does not wait"
    JOINING = "a newcomer waits for vectors to start from, and its samples wait with it"
    FROM_ZERO = (
        "no neighbour had one: it starts from zero, and saves the first rows it learns at once"
    )
    LEARNING = "it has a vector of its own"


class Supply(_Named):
    """The node's own samples."""

    OPEN = "more may come"
    ENDED = "no more will come; neighbours are informed when the last is learned"


class Contact(_Named):
    """Whether a neighbour can be reached."""

    UNMET = "it has never been reachable"
    UP = "it is reachable"
    LOST = "it is not reachable"
    BACK = "it is reachable again, perhaps with a lower incarnation if its clock was set back"


class Trust(_Named):
    """Whether a neighbour's vectors may be used."""

    ALIKE = "they may"
    BARRED = "its vectors have another fingerprint or shape"
    REFUSED = "its messages are invalid: another layout, impossible vectors"
    CONTESTED = "two agents send under its name: neither is used"


class Patience(_Named):
    """Whether the node waits for a neighbour in lockstep."""

    AWAITED = "a round waits for its vector"
    GIVEN_UP = "it was silent for too long: rounds continue without it"


class Interest(_Named):
    """Whether the node asks a neighbour for its theta, in pull."""

    CONTENT = "its theta is stored, or nothing is known about it"
    CURIOUS = "the node asks it at the next exchange"


class Outgoing(_Named):
    """What a node has to send, in push and pull."""

    QUIET = "nothing new since the last exchange"
    CHANGED = "theta has moved: it is sent if the change is large enough"
    CALLED = "a neighbour that may have no theta became reachable: theta is sent in any case"


class Round(_Named):
    """Where a node is in lockstep."""

    GATHERING = "before the first row: the node waits for all described neighbours"
    AHEAD = "(atc) still gathering, but at the neighbours' round, which is combined next"
    READY = "the next row begins a round"
    ADAPTED = "(atc) the row of this round is learned, and it waits to be combined"


State = TypeVar("State", bound=Enum)
Table = Mapping[State, Mapping[Event, State]]

LIFE: Table[Life] = {
    Life.NEW: {
        Event.JOIN: Life.JOINING,
        Event.NO_JOIN: Life.NEW,
        Event.ADOPTED: Life.LEARNING,
        Event.LEARNED: Life.LEARNING,
        Event.COMBINED: Life.LEARNING,
    },
    Life.JOINING: {
        Event.JOIN: Life.JOINING,
        Event.NO_JOIN: Life.NEW,
        Event.ADOPTED: Life.LEARNING,
        Event.NOBODY: Life.FROM_ZERO,
    },
    Life.FROM_ZERO: {
        Event.JOIN: Life.LEARNING,
        Event.NO_JOIN: Life.LEARNING,
        Event.LEARNED: Life.LEARNING,
        Event.COMBINED: Life.FROM_ZERO,
    },
    Life.LEARNING: {
        Event.JOIN: Life.LEARNING,
        Event.NO_JOIN: Life.LEARNING,
        Event.LEARNED: Life.LEARNING,
        Event.COMBINED: Life.LEARNING,
    },
}

SUPPLY: Table[Supply] = {
    Supply.OPEN: {Event.SAMPLES: Supply.OPEN, Event.FINISH: Supply.ENDED},
    Supply.ENDED: {Event.SAMPLES: Supply.OPEN, Event.FINISH: Supply.ENDED},
}

CONTACT: Table[Contact] = {
    Contact.UNMET: {
        Event.PEER_UP: Contact.UP,
        Event.PEER_LOST: Contact.LOST,
        Event.SAME_PROCESS: Contact.UNMET,
        Event.THETA: Contact.UNMET,
    },
    Contact.UP: {
        Event.PEER_UP: Contact.UP,
        Event.PEER_LOST: Contact.LOST,
        Event.SAME_PROCESS: Contact.UP,
        Event.THETA: Contact.UP,
    },
    Contact.LOST: {
        Event.PEER_UP: Contact.BACK,
        Event.PEER_LOST: Contact.LOST,
        Event.SAME_PROCESS: Contact.LOST,  # it was on its way, and proves nothing
        Event.THETA: Contact.LOST,
    },
    Contact.BACK: {
        Event.PEER_UP: Contact.BACK,
        Event.PEER_LOST: Contact.LOST,
        Event.SAME_PROCESS: Contact.UP,  # only the connection was away
        Event.THETA: Contact.UP,
    },
}

TRUST: Table[Trust] = {
    Trust.ALIKE: {
        Event.HELLO: Trust.ALIKE,
        Event.UNLIKE: Trust.BARRED,
        Event.UNUSED: Trust.REFUSED,
        Event.RIVALS: Trust.CONTESTED,
    },
    Trust.BARRED: {Event.HELLO: Trust.ALIKE, Event.UNLIKE: Trust.BARRED},
    Trust.REFUSED: {
        Event.HELLO: Trust.REFUSED,  # it says nothing of its vectors
        Event.UNLIKE: Trust.BARRED,
        Event.USED: Trust.ALIKE,
        Event.RIVALS: Trust.CONTESTED,
    },
    Trust.CONTESTED: {
        Event.HELLO: Trust.CONTESTED,
        Event.UNLIKE: Trust.BARRED,
        Event.NO_RIVALS: Trust.ALIKE,
    },
}

PATIENCE: Table[Patience] = {
    Patience.AWAITED: {
        Event.PEER_UP: Patience.AWAITED,
        Event.ROUND: Patience.AWAITED,
        Event.SILENCE: Patience.GIVEN_UP,
    },
    Patience.GIVEN_UP: {
        Event.PEER_UP: Patience.AWAITED,
        Event.ROUND: Patience.AWAITED,
    },
}

INTEREST: Table[Interest] = {
    Interest.CONTENT: {
        Event.PEER_UP: Interest.CURIOUS,
        Event.PEER_LOST: Interest.CONTENT,
        Event.NEWS: Interest.CURIOUS,
        Event.NO_NEWS: Interest.CONTENT,
        Event.THETA: Interest.CONTENT,
        Event.SENT: Interest.CURIOUS,
        Event.NOT_SENT: Interest.CONTENT,
    },
    Interest.CURIOUS: {
        Event.PEER_UP: Interest.CURIOUS,
        Event.PEER_LOST: Interest.CONTENT,
        Event.NEWS: Interest.CURIOUS,
        Event.NO_NEWS: Interest.CONTENT,
        Event.THETA: Interest.CONTENT,
        Event.SENT: Interest.CURIOUS,
        Event.NOT_SENT: Interest.CONTENT,
    },
}

OUTGOING: Table[Outgoing] = {
    Outgoing.QUIET: {
        Event.LEARNED: Outgoing.CHANGED,
        Event.ADOPTED: Outgoing.CHANGED,
        Event.PEER_UP: Outgoing.CALLED,
        Event.EXCHANGED: Outgoing.QUIET,
    },
    Outgoing.CHANGED: {
        Event.LEARNED: Outgoing.CHANGED,
        Event.ADOPTED: Outgoing.CHANGED,
        Event.PEER_UP: Outgoing.CALLED,
        Event.EXCHANGED: Outgoing.QUIET,
        Event.ALONE: Outgoing.CHANGED,
    },
    Outgoing.CALLED: {
        Event.LEARNED: Outgoing.CALLED,
        Event.ADOPTED: Outgoing.CALLED,
        Event.PEER_UP: Outgoing.CALLED,
        Event.EXCHANGED: Outgoing.QUIET,
        Event.ALONE: Outgoing.CALLED,
    },
}

ROUND: Table[Round] = {
    Round.GATHERING: {
        Event.FREE: Round.READY,
        Event.JUMP_CTA: Round.GATHERING,
        Event.JUMP_ATC: Round.AHEAD,
    },
    Round.AHEAD: {
        Event.FREE: Round.ADAPTED,
        Event.JUMP_CTA: Round.GATHERING,
        Event.JUMP_ATC: Round.AHEAD,
    },
    Round.READY: {
        Event.FREE: Round.READY,
        Event.MIXED: Round.READY,
        Event.ROW_CTA: Round.READY,
        Event.ROW_ATC: Round.ADAPTED,
        Event.JUMP_CTA: Round.READY,
        Event.JUMP_ATC: Round.ADAPTED,
    },
    Round.ADAPTED: {
        Event.FREE: Round.ADAPTED,
        Event.MIXED: Round.READY,
        Event.JUMP_CTA: Round.READY,
        Event.JUMP_ATC: Round.ADAPTED,
    },
}

TABLES: tuple[Table[Any], ...] = (
    LIFE, SUPPLY, CONTACT, TRUST, PATIENCE, INTEREST, OUTGOING, ROUND,
)  # fmt: skip

_NEXT: dict[Enum, Mapping[Event, Any]] = {
    state: row for table in TABLES for state, row in table.items()
}


class IllegalTransition(RuntimeError):
    """An event that cannot come in this state: a mistake in the protocol's own code."""


def after(state: State, event: Event) -> State:
    """The state that an event leads to; `IllegalTransition` where the table has none.

    >>> after(Contact.LOST, Event.PEER_UP)
    <Contact.BACK: ...>
    >>> after(Life.JOINING, Event.LEARNED)
    Traceback (most recent call last):
    dokl.live.protocol.states.IllegalTransition: LEARNED cannot come when Life is JOINING...
    """
    following: State | None = _NEXT[state].get(event)
    if following is None:
        possible = ", ".join(each.name for each in _NEXT[state])
        raise IllegalTransition(
            f"{event.name} cannot come when {type(state).__name__} is {state.name}, only "
            f"{possible}: a mistake in dokl, not in what was sent. Please report it"
        )
    return following
