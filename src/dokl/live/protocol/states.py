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
    JOIN = "push or pull begins, and there are neighbours to start from"
    NO_JOIN = "the node begins without them: exchange is off, in lockstep, or there are none"
    ADOPTED = "a newcomer took over its neighbours' vectors"
    NOBODY = "a newcomer's wait is over, and nobody had a vector for it"
    LEARNED = "rows were learned"
    COMBINED = "theta moved towards those of neighbours"
    SAMPLES = "rows came in"
    FINISH = "the own source is at its end"
    # with a neighbour
    PEER_UP = "the neighbour can be reached"
    PEER_LOST = "the neighbour cannot be reached any more"
    SAME_PROCESS = "a message of the incarnation whose theta is here"
    THETA = "a theta that is news"
    HELLO = "a hello with our fingerprint and shape"
    UNLIKE = "a message with another fingerprint or shape"
    UNUSED = "for seconds, whatever it sent was refused"
    USED = "something it sent is in order again"
    RIVALS = "two agents go on speaking under its name"
    NO_RIVALS = "one of them has fallen silent"
    ROUND = "the vector of a round that was not here yet"
    SILENCE = "the neighbour was waited for, and `patience_seconds` are over"
    NEWS = "its hello reports a theta that is not here"
    NO_NEWS = "its hello reports nothing new, and this node has not changed for a while"
    SENT = "this node sent a change: the neighbour will change with it"
    NOT_SENT = "this node sent a change, and the neighbour is away or barred"
    # in exchanging
    EXCHANGED = "an exchange was due, and somebody is there"
    ALONE = "an exchange was due, and nobody is there"
    FREE = "no neighbour is waited for"
    ROW_CTA = "combine, then adapt: the row of this round was learned"
    ROW_ATC = "adapt, then combine: the row of this round was learned"
    MIXED = "this round was combined, with those that sent their vectors"
    JUMP_CTA = "combine, then adapt: the node went to its neighbours' round"
    JUMP_ATC = "adapt, then combine: the node went to its neighbours' round"


class Life(_Named):
    """How far a node has come."""

    NEW = "it has learned nothing, and waits for nobody"
    JOINING = "a newcomer waits for vectors to start from, and its samples wait with it"
    FROM_ZERO = (
        "nobody had one: it starts from zero, and the first rows it learns are saved at once"
    )
    LEARNING = "it has a vector of its own"


class Supply(_Named):
    """The node's own samples."""

    OPEN = "more may come"
    ENDED = "no more will come; neighbours are informed when the last is learned"


class Contact(_Named):
    """Whether a neighbour can be reached."""

    UNMET = "it was never there"
    UP = "it is there"
    LOST = "it is gone"
    BACK = "it is there again, perhaps with a lower incarnation: its clock may have been set back"


class Trust(_Named):
    """Whether a neighbour's vectors may be used."""

    ALIKE = "nothing speaks against it"
    BARRED = "its vectors are of another kind"
    REFUSED = "nothing that it sends can be used: another layout, a vector that cannot be"
    CONTESTED = "two agents speak under its name, and which is right is unknown: none is used"


class Patience(_Named):
    """Whether a neighbour is waited for in lockstep."""

    AWAITED = "a round waits for its vector"
    GIVEN_UP = "it was silent for too long: rounds continue without it"


class Interest(_Named):
    """Whether a neighbour is asked for its theta, in pull."""

    CONTENT = "what it has is here, or nothing is known of it"
    CURIOUS = "it is asked at the next exchange"


class Outgoing(_Named):
    """What a node has to send, in push and pull."""

    QUIET = "nothing new since the last exchange"
    CHANGED = "theta has moved: it is sent if that is noticeable"
    CALLED = "a neighbour came that may know nothing: it is sent in any case"


class Round(_Named):
    """Where a node is in lockstep."""

    GATHERING = "before the first row: all described neighbours are waited for"
    AHEAD = "(atc) still gathering, but at the neighbours' round, which is to be combined"
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
