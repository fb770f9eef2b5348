"""`dokl up`: all agents of a description as processes on this machine."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from dokl.base.errors import BadInput, DoklError
from dokl.live.agent.clock import Clock
from dokl.live.agent.logs import Log
from dokl.live.description import Network, is_loopback
from dokl.live.jobs.agents import ENDS, Settings, log_file, run_agent
from dokl.live.sources import name_of
from dokl.live.store import read_offset
from dokl.live.store.folder import private_folder

ENDINGS = (".csv", ".csv.gz", ".tsv", ".jsonl", ".ndjson")
GRACE = 15.0  # seconds between asking an agent to end and ending it


def settings_of(network: Network, common: Settings, data: Path | None) -> list[Settings]:
    """The settings of each agent; its data is the file of its name in the folder `data`."""
    away = [name for name in network.names if not is_loopback(network.node(name).binds)]
    if away:
        raise BadInput(
            f"{network.path}: node {away[0]!r} is not on loopback. `dokl up` is for one machine; "
            "start `dokl agent` on each host"
        )
    found = {name: _file_of(name, data) for name in network.names}
    if data is not None and not any(found.values()):
        wanted = ", ".join(f"{network.names[0]}{ending}" for ending in ENDINGS)
        raise BadInput(f"{data}: no node has a file there; expected is one for each, like {wanted}")
    folder = common.folder
    return [
        replace(common, name=name, data=found[name], log=common.log or folder / f"{name}.log")
        for name in network.names
    ]


def _file_of(name: str, data: Path | None) -> str | None:
    if data is None:
        return None
    if not data.is_dir():
        raise BadInput(f"{data}: there is no such folder; it holds one file per node, NAME.csv")
    paths = (data / f"{name}{ending}" for ending in ENDINGS)
    return next((str(path) for path in paths if path.exists()), None)


class AgentProcesses:
    """The processes; they end when we do, however that comes."""

    def __init__(self, every: list[Settings]) -> None:
        self._context: Any = multiprocessing.get_context("fork")
        self._reader, self._writer = os.pipe()
        self.every = {settings.name: settings for settings in every}
        self.processes: dict[str, BaseProcess] = {}

    def start(self) -> None:
        """Start all of them."""
        for settings in self.every.values():
            private_folder(settings.folder)
            process = self._context.Process(
                target=_be, args=(settings, self._reader, self._writer), name=settings.name
            )
            process.start()
            self.processes[settings.name] = process

    def stop(self) -> dict[str, int]:
        """Ask all to end, wait, and insist with those that do not: their exit codes.

        Those that have only just begun may miss the signal, and find the pipe closed.
        """
        os.close(self._writer)
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                if process.is_alive() and process.pid:
                    os.kill(process.pid, signal.SIGTERM)
        limit = time.monotonic() + GRACE
        for process in self.processes.values():
            process.join(max(0.1, limit - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        os.close(self._reader)
        return {name: process.exitcode or 0 for name, process in self.processes.items()}

    def wait(self, done: threading.Event, ended: Callable[[str, int], None]) -> None:
        """Until `done`, or until all have ended; `ended` is called for each that does.

        With `once`, those without data of their own are there for the others: not waited for.
        """
        left = dict(self.processes)
        while any(map(self._ends, left)) and not done.is_set():
            for name in [name for name, process in left.items() if not process.is_alive()]:
                ended(name, left.pop(name).exitcode or 0)
            done.wait(0.2)

    def _ends(self, name: str) -> bool:
        return not self.every[name].once or self.every[name].data is not None


def prepare(network: Network, say: Callable[[str], None]) -> None:
    """Import and compile here what takes long: processes that are forked from here have it."""
    import dokl.live.http.app
    import dokl.live.transports.zenoh  # noqa: F401

    text = "compiling, once on this machine; this may take half a minute"
    timer = threading.Timer(3.0, say, (text,))
    timer.start()
    try:
        network.learner().prepare()
    finally:
        timer.cancel()


def gaps(every: list[Settings], data: Path | None) -> list[str]:
    """What may be unexpected about the files of these agents."""
    if data is None:
        return []
    without = [settings.name for settings in every if settings.data is None]
    found = [f"{data} has no file for {', '.join(without)}"] if without else []
    done = [settings.name for settings in every if settings.data and _read_before(settings)]
    if done and not every[0].follow:
        found.append(
            f"{', '.join(done)}: the file was read to its end in an earlier run, and nothing is "
            f"learned twice. To start over, move {every[0].folder} away"
        )
    return found


def _read_before(settings: Settings) -> bool:
    """Whether the journal says that a plain file was read to its end."""
    store = settings.folder / f"{settings.name}.db"
    if not store.exists() or str(settings.data).endswith(".gz"):
        return False
    try:
        position = read_offset(store, name_of(str(settings.data)))
    except DoklError:  # the agent itself will say what is wrong
        return False
    size = Path(str(settings.data)).stat().st_size
    return position is not None and int(position.get("bytes", 0)) >= size


def _be(settings: Settings, reader: int, writer: int) -> None:
    """In the new process: an agent, whose message is its last line where it cannot start."""
    os.close(writer)
    with suppress(OSError):
        os.setpgrp()  # Ctrl-C reaches us through our starter, in order
    try:
        run_agent(settings, reader)
    except DoklError as error:
        os.write(2, f"dokl: {settings.name}: {error}\n".encode())
        if settings.log is not None:
            with log_file(settings.log) as log:
                Log(settings.name, Clock(), log)("failed", reason=str(error))
        os._exit(1)


def ending(settings: Settings, code: int) -> str:
    """What to say of an agent that ended with this code, or was killed by the signal -code.

    >>> ending(Settings(Path("lab.toml"), "a", log=Path("a.log")), -9)
    'a was killed (SIGKILL). To run it again: dokl agent lab.toml --name a. Its log: a.log'
    >>> ending(Settings(Path("lab.toml"), "a", data="a.csv", rate=50.0, batch=20), -9)[41:]
    'dokl agent lab.toml --name a --data a.csv --rate 50 --batch 20. Its log: None'
    """
    log = f"Its log: {settings.log}"
    if code >= 0:
        return f"{settings.name} ended with code {code}. {log}"
    words = ["dokl", "agent", str(settings.description), "--name", settings.name]
    words += ["--data", settings.data] if settings.data else []
    words += ["--follow"] if settings.follow else []
    words += ["--once"] if settings.once and settings.data else []
    words += ["--rate", f"{settings.rate:.12g}"] if settings.rate and settings.data else []
    words += ["--batch", str(settings.batch)] if settings.batch != Settings.batch else []
    words += ["--state", str(settings.state)] if settings.state else []
    words += ["--log-level", settings.log_level] if settings.log_level != "info" else []
    names = {each.value: each.name for each in signal.Signals}
    killed = f"{settings.name} was killed ({names.get(-code, f'signal {-code}')})"
    return f"{killed}. To run it again: {shlex.join(words)}. {log}"


def up(every: list[Settings], say: Callable[[str], None]) -> int:
    """Run agents until Ctrl-C or, with `once`, the end of their data; how many failed."""
    agents, done = AgentProcesses(every), threading.Event()
    before = {number: signal.signal(number, lambda *_: done.set()) for number in ENDS}
    failed: list[str] = []

    def ended(name: str, code: int) -> None:
        if code:
            failed.append(name)
            say(ending(agents.every[name], code))

    try:
        agents.start()
        agents.wait(done, ended)
    finally:
        codes = agents.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    say(f"all {len(codes)} agents have ended")
    return len({*failed, *(name for name, code in codes.items() if code)})
