"""What follows from events, carried out: losses kept, lines in the log, messages sent."""

from __future__ import annotations

from collections.abc import Iterable

from dokl.live.agent.clock import Clock
from dokl.live.agent.curve import LossCurve
from dokl.live.agent.logs import Log
from dokl.live.agent.newest_rows import NewestRows
from dokl.live.protocol.effects import (
    Ask,
    Effect,
    LearnedRows,
    Notice,
    Refuse,
    SendHello,
    SendTheta,
)
from dokl.live.transports import Transport


class EffectHandler:
    """Who receives an effect: the curve of losses and the newest rows, and the log."""

    def __init__(self, curve: LossCurve, newest: NewestRows, log: Log, clock: Clock) -> None:
        self._curve, self._newest, self._log, self._clock = curve, newest, log, clock

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """All of them, in their order."""
        for effect in effects:
            self.note(effect)

    def note(self, effect: Effect) -> None:
        """An effect that is no message."""
        if isinstance(effect, LearnedRows):
            self._curve.add(effect.losses, effect.learned, self._clock.now())
            self._newest.add(effect)
        elif isinstance(effect, Refuse):
            about = {"neighbour": effect.peer, "reason": effect.reason, "text": effect.text}
            self._log("message refused", often=True, **about)
        elif isinstance(effect, Notice):
            self._log(effect.kind, often=True, text=effect.text)


class SendingHandler(EffectHandler):
    """Neighbours receive effects, too."""

    def __init__(
        self, transport: Transport, curve: LossCurve, newest: NewestRows, log: Log, clock: Clock
    ) -> None:
        super().__init__(curve, newest, log, clock)
        self._transport = transport

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Send what is to be sent, and note the rest."""
        for effect in effects:
            if isinstance(effect, SendTheta):
                self._transport.send("theta", effect.data)
            elif isinstance(effect, SendHello):
                self._transport.send("hello", effect.data)
            elif isinstance(effect, Ask):
                self._transport.ask(effect.peer, effect.known)
            else:
                self.note(effect)
