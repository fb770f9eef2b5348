"""`python -m dokl` is `dokl`: where it begins, before anything that takes long is imported."""

from __future__ import annotations

import signal
import sys


def hold_hangups() -> None:
    """Keep a SIGHUP for the agent that is about to be: unheld, it would end the process."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, held)


def held(*_: object) -> None:
    """Remember that one came; who takes the signal over looks at `came`."""
    held.came = True  # type: ignore[attr-defined]


def main() -> None:
    """The command line."""
    if sys.argv[1:2] == ["agent"] and sys.argv[2:3] not in (["reload"], ["export"]):
        hold_hangups()
    from dokl.cli import main as commands

    commands()


if __name__ == "__main__":
    main()
