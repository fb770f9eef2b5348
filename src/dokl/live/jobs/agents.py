"""`dokl agent`: one node as a process, from its description to its orderly end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dokl.base.errors import BadInput, DoklError, MissingExtra
from dokl.base.unlocked import one_thread
from dokl.live.agent.clock import Clock
from dokl.live.agent.logs import Log
from dokl.live.agent.replies import Busy, Stopping
from dokl.live.agent.runtime import Agent
from dokl.live.certificates.checks import problems
from dokl.live.description import Network, read
from dokl.live.inputs import Arrival
from dokl.live.jobs.sensors import SensorFeeder, checked_source
from dokl.live.jobs.waiting import wait_until
from dokl.live.process import use_few_arenas
from dokl.live.store import AuditLog, JournalLoss, audit_path
from dokl.live.store import accept_loss as accept_store
from dokl.live.store.records import Identity
from dokl.network.state import State

if TYPE_CHECKING:
    from dokl.live.http.app import HttpFace

LINGER = 1.0  # seconds in which neighbours may still ask a node that is at its end
ENDS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Settings:
    """What to run, and how.

    data: a file, "-" for stdin, None for the broker of the description, if it has one. follow: go
    on when the file grows. state: the folder of the journal. http: the address of the HTTP
    interface, "off" for none, None as the description says. warm: a model file to begin with. once:
    end with the data. rate: rows a second, at most. log: a file for the log lines, stderr
    otherwise, and log_level: of the least of them.
    """

    description: Path
    name: str
    data: str | None = None
    follow: bool = False
    state: Path | None = None
    http: str | None = None
    warm: Path | None = None
    once: bool = False
    rate: float | None = None
    batch: int = 50
    log: Path | None = None
    log_level: str = "info"

    @property
    def folder(self) -> Path:
        """Where the journal lies: beside the description unless given."""
        return self.state or state_folder(self.description)


def state_folder(description: Path) -> Path:
    """The usual place of the journals of a network."""
    return description.with_suffix(".state")


def identity(network: Network, name: str) -> Identity:
    """Whose journal it is, and of what: another one's is refused."""
    m, D, d = network.m, network.model.D, network.preprocessor().d
    return {"name": name, "fingerprint": network.fingerprint, "m": m, "D": D, "d": d}


def earlier_identities(network: Network, name: str) -> list[Identity]:
    """Whose journal it was before columns were changed."""
    return [identity(former, name) for former in network.former]


def run_agent(settings: Settings, parent: int | None = None) -> None:
    """Be a node until a signal, or the end of the data with `once`.

    parent: a pipe that our parent holds open; when it closes we end, too.
    """
    from dokl.base.machine_code import watched

    done = threading.Event()
    use_few_arenas()
    with ExitStack() as stack:
        stack.enter_context(one_thread())  # all agents of a machine would wait for each other
        listens = _obey(settings.description, done, stack)
        network = _checked(settings)
        broker = checked_source(network, settings.name) if settings.data is None else None
        out = stack.enter_context(log_file(settings.log)) if settings.log else None
        log = Log(settings.name, Clock(), out, settings.log_level)
        face = _face(network, settings, log, stack)
        with watched(face.entrance.enters if face else _nobody):
            agent = _made(network, settings, log)
            stack.callback(agent.stop)
            agent.start()
        if face is not None:
            face.open(agent)
            stack.callback(face.server.stop)  # before the agent, which answers until then
            agent.when_reloaded = face.server.renew
            log("serving", address=face.server.url)
        listens(agent)
        if parent is not None:
            threading.Thread(target=_watch, args=(parent, done), daemon=True).start()
        feeder = Feeder(agent, settings, done)
        if settings.data is not None:
            stack.callback(feeder.stop)
            feeder.start()
        elif broker is not None:
            sensors = SensorFeeder(agent, *broker, settings.folder)
            stack.callback(sensors.stop)
            sensors.start()
        wait_until(done)
    if settings.once and feeder.failure is not None:
        raise feeder.failure


def accept_loss(description: Path, name: str, folder: Path | None = None) -> JournalLoss:
    """Let node `name` go on with what is left of its journal; it must not run."""
    network = read(description)
    network.node(name)
    path = (folder or state_folder(description)) / f"{name}.db"
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent}: there is no such folder, and so nothing was lost there")
    loss = accept_store(path, identity(network, name), earlier_identities(network, name))
    AuditLog(audit_path(path))("accept-loss", name, rows=loss.rows, left=loss.left)
    return loss


def _checked(settings: Settings) -> Network:
    network = read(settings.description)
    network.node(settings.name)
    wrong = problems(network, settings.name)
    if wrong:
        raise BadInput(
            f"{wrong[0]} (dokl network check {settings.description} says all that is wrong)"
        )
    return network


def _made(network: Network, settings: Settings, log: Log) -> Agent:
    from dokl.live.store import Store
    from dokl.live.store.folder import private_folder

    try:
        from dokl.live.transports.zenoh import ZenohTransport
    except ImportError:
        raise MissingExtra("a live network", "live") from None
    clock = Clock()
    store = Store.open(
        private_folder(settings.folder) / f"{settings.name}.db",
        identity(network, settings.name),
        network.durability.mode,
        network.limits,
        now_ns=int(clock.wall() * 1e9),
        earlier=earlier_identities(network, settings.name),
    )
    agents: list[Agent] = []
    transport = ZenohTransport(
        network,
        settings.name,
        lossless=network.exchange.mode == "lockstep" or network.model.rows,
        wake=lambda: agents[0].wake() if agents else None,
        note=lambda event, **about: agents[0].log(event, often=True, **about) if agents else None,
    )
    try:
        warm = _warm(network, settings, store)
        agents.append(Agent(network, settings.name, store, transport, clock, log, warm))
    except BaseException:
        store.close()
        raise
    return agents[0]


def _warm(network: Network, settings: Settings, store: Any) -> State | None:
    """What a model file has learned, for an agent that has learned nothing itself."""
    if settings.warm is None:
        return None
    if store.samples or store.restore()[0] is not None:
        raise BadInput(
            f"{settings.folder / settings.name}.db: this agent has learned already, and "
            f"{settings.warm} would replace that. Start it without the model, or move the file away"
        )
    from dokl.live.jobs.export import warm_state

    return warm_state(network, settings.warm)


def _face(network: Network, settings: Settings, log: Log, stack: ExitStack) -> HttpFace | None:
    """Serve HTTP from now on, where that is wanted: that the agent is not ready, at first."""
    address = settings.http or network.node(settings.name).http
    if address in (None, "off"):
        return None
    try:
        from dokl.live.http.app import HttpFace
    except ImportError:
        raise MissingExtra("the HTTP interface of an agent", "live") from None
    face = HttpFace(network, settings.name, str(address), log)
    face.server.start()
    stack.callback(face.server.stop)
    return face


def _nobody(_: str) -> None:
    """There is no interface to inform."""


def _obey(description: Path, done: threading.Event, stack: ExitStack) -> Callable[[Agent], None]:
    """SIGTERM and SIGINT end the agent, SIGHUP makes it read its description again.

    From now on until everything is closed: a signal that comes while the agent starts is obeyed
    when it has, by what is returned here, and one that comes while it ends does not cut it short.
    """
    agents: list[Agent] = []
    early: list[bool] = []

    def reload(*_: object) -> None:
        if agents:
            agents[0].reload(description)
        else:
            early.append(True)

    def listens(agent: Agent) -> None:
        agents.append(agent)
        if early:
            agent.reload(description)

    handlers: dict[int, Callable[..., Any]] = {end: lambda *_: done.set() for end in ENDS}
    handlers[signal.SIGHUP] = reload
    for number, handler in handlers.items():
        before = signal.signal(number, handler)
        stack.callback(signal.signal, number, before)
        if getattr(before, "came", False):  # held since the process began
            early.append(True)
    return listens


def _watch(parent: int, done: threading.Event) -> None:
    with suppress(OSError):
        os.read(parent, 1)  # returns when the other end is closed
    done.set()


def log_file(path: Path) -> TextIO:
    """A file for log lines, at its end; not by way of a symbolic link."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        return os.fdopen(number, "a", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: log lines cannot be written there ({error.strerror})") from None


class Feeder:
    """A thread that hands the rows of a source to the agent, one acknowledged batch at a time."""

    def __init__(self, agent: Agent, settings: Settings, done: threading.Event) -> None:
        self._agent, self._settings, self._done = agent, settings, done
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)
        self.failure: DoklError | None = None
        name = settings.data or ""
        self._facts: dict[str, Any] = {"name": name, "rows": 0, "bad_lines": 0, "finished": False}

    def start(self) -> None:
        """Begin to read."""
        self._agent.source = self._facts
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a reader that waits for stdin is left behind."""
        self._ending.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        agent = self._agent
        try:
            self._feed()
        except Stopping:
            return
        except Exception as error:  # whatever it is, it must be seen
            internal = DoklError(f"internal error: {error!r}")
            self.failure = error if isinstance(error, DoklError) else internal
            agent.problems["source"] = str(self.failure)
            agent.log("source failed", reason=str(self.failure))
        else:
            agent.log("source finished", rows=self._facts["rows"])
        self._facts["finished"] = True
        agent.finish_source()
        if self._settings.once:
            self._leave()

    def _feed(self) -> None:
        due = time.monotonic()
        for arrival in self._arrivals():
            if self._ending.is_set():
                return
            self._deliver(arrival)
            self._facts["rows"] += arrival.rows
            if self._settings.rate:  # what was held up is not made up for
                due = max(due, time.monotonic() - 1.0) + arrival.rows / self._settings.rate
                self._ending.wait(max(0.0, due - time.monotonic()))

    def _arrivals(self) -> Iterator[Arrival]:
        from dokl.live import sources

        options: dict[str, Any] = {
            "batch": self._settings.batch,
            "on_bad": self._bad,
            "stop": self._ending,
        }
        data = str(self._settings.data)
        if data == "-":
            return sources.read_stdin(self._agent.inputs, **options)
        position = self._agent.position(sources.name_of(data))
        if not self._settings.follow:
            return sources.read_file(Path(data), self._agent.inputs, position, **options)
        options["on_note"] = lambda text: self._agent.log("source", text=text)
        return sources.follow(Path(data), self._agent.inputs, position, **options)

    def _deliver(self, arrival: Arrival) -> None:
        """Until it is in the journal: what is busy or full now may not be so later."""
        from dokl.live.store import StoreFailed, TooManyWaiting

        while not self._ending.is_set():
            try:
                answer = self._agent.submit(arrival).result()
            except Busy as busy:
                self._ending.wait(busy.retry_after)
            except StoreFailed:
                self._ending.wait(0.5)
            except TooManyWaiting as error:
                if self._settings.once:
                    raise
                self._agent.problems["source"] = f"the source is held up: {error}"
                self._ending.wait(0.5)
            else:
                self._agent.problems.pop("source", None)
                for why in answer.get("skipped", ()):
                    self._bad(f"{arrival.source}, a row", why)
                return

    def _bad(self, where: str, why: str) -> None:
        self._facts["bad_lines"] += 1
        self._agent.log("bad line", often=True, why=why, where=where)

    def _leave(self) -> None:
        """Rounds that wait for neighbours are finished first, and neighbours may still ask."""
        while self._agent.protocol.queued and not self._ending.wait(0.05):
            pass
        if self._agent.network.exchange.mode == "lockstep":
            self._ending.wait(LINGER)
        self._done.set()
