"""The HTTP interface of an agent before there is one: it lives, and reports that it is not ready.

Compiling and reading a journal may take a minute. A supervisor is answered from
its first second on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dokl.live.http.bounds import Refusal
from dokl.live.http.responses import as_json, as_refusal

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

RETRY = 2.0  # seconds
STARTING = "starting"


class Entrance:
    """An ASGI application: that of an agent once it is `open`ed, and before that its own.

    phase: what is done meanwhile, in a word.
    """

    def __init__(self) -> None:
        self.phase = STARTING
        self._behind: ASGIApp | None = None

    def open(self, application: ASGIApp) -> None:
        """The agent is ready: from now on its application answers."""
        self._behind = application

    def enters(self, phase: str) -> None:
        """What is done now."""
        self.phase = phase

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        answer = self._behind or self._answer(scope.get("path", ""))
        await answer(scope, receive, send)

    def _answer(self, path: str) -> Response:
        if path == "/healthz":
            return as_json({"ok": True})
        return as_refusal(unready(self.phase))


def unready(why: str) -> Refusal:
    """The answer of an agent on which nobody should rely yet, or now."""
    text = f"this agent is not ready ({why}): ask again in {RETRY:g} seconds"
    return Refusal(503, text, RETRY)
