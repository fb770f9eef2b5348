"""What was received from neighbours and is not stored yet."""

from __future__ import annotations

from collections import Counter

from dokl.live.agent.logs import Log
from dokl.live.transports import Transport

Event = tuple[str, bool]
Heard = tuple[str, str, bytes]


class Inbox:
    """Events and messages of a transport, kept until the group that they are part of is stored.

    A neighbour reports only once that it came. Of what is kept, the last two events and the newest
    messages are enough.
    """

    def __init__(self, transport: Transport, log: Log) -> None:
        self._transport, self._log = transport, log
        self.events: list[Event] = []
        self.messages: list[Heard] = []
        self._too_large = Counter[str]()  # messages of each neighbour, as far as known

    def fetch(self) -> bool:
        """Add what is new; whether there were messages."""
        events, messages = self._transport.events(), self._transport.receive()
        for peer, up in events:
            self._log("neighbour up" if up else "neighbour lost", neighbour=peer)
        self.events = _last_two([*self.events, *events])
        newer = {message[:2] for message in messages}
        self.messages = [old for old in self.messages if old[:2] not in newer] + messages
        return bool(messages)

    def too_large(self) -> list[str]:
        """Who has sent more messages that were too large to be taken, since this was asked last."""
        refused = Counter(self._transport.refused.copy())
        more, self._too_large = refused - self._too_large, refused
        return list(more)

    def clear(self) -> None:
        """It is stored, or was of no use."""
        self.events, self.messages = [], []


def _last_two(events: list[Event]) -> list[Event]:
    """Of each neighbour, the last times that it came or went."""
    seen, kept = Counter[str](), list[Event]()
    for peer, up in reversed(events):
        seen[peer] += 1
        if seen[peer] <= 2:
            kept.append((peer, up))
    return kept[::-1]
