"""`dokl serve`: one model over HTTP as a process, from its file to its orderly end."""

from __future__ import annotations

import hashlib
import signal
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput, MissingExtra
from dokl.base.files import read_bytes
from dokl.live.agent.clock import Clock
from dokl.live.agent.logs import Log
from dokl.live.agent.replies import Answer
from dokl.live.agent.service import Service
from dokl.live.inputs import Arrival
from dokl.live.jobs.served import (
    NAME,
    ModelDescription,
    ModelLearner,
    ModelState,
    described,
)
from dokl.live.jobs.waiting import wait_until
from dokl.live.store import Store
from dokl.live.store.folder import private_folder
from dokl.live.store.records import Identity
from dokl.tables.models import TableModel, rows

if TYPE_CHECKING:
    from dokl.live.http.app import HttpFace


@dataclass(frozen=True)
class Serving:
    """What to serve, and how.

    learn: take samples, too. state: the folder of the journal, beside the model unless given
    otherwise. level: the share of targets that intervals hold. save: where the model goes at an
    orderly end. durability: "process" survives kill -9, "full" a power cut. target_range, outside:
    see `described`. log_level: of the least of its log lines.
    """

    model: Path
    http: str = "127.0.0.1:8080"
    learn: bool = False
    state: Path | None = None
    level: float = 0.9
    save: Path | None = None
    durability: str = "process"
    target_range: tuple[float, ...] | None = None
    outside: str = "refuse"
    log_level: str = "info"

    @property
    def folder(self) -> Path:
        """Where the journal lies."""
        return self.state or self.model.with_suffix(".state")


class ModelService(Service):
    """A service whose model is of any kind.

    level: the share of targets that intervals hold. learns: whether it takes samples.
    """

    complete_rows = True
    level = 0.9
    learns = True

    def submit(self, arrival: Arrival) -> Future[Answer]:
        """Hand over samples, where the model learns."""
        if not self.learns:
            raise BadInput("this model is served for predicting only: start it with --learn")
        return super().submit(arrival)

    @property
    def model(self) -> TableModel:
        """The model of this moment, as it is stored."""
        assert isinstance(self._adopted, ModelState)
        return self._adopted.model

    def further(self, X: Array, names: Sequence[str]) -> dict[str, Any]:
        """Of inputs X: (n, d), the ends of intervals, or probabilities in the labels' order."""
        assert isinstance(self.learner, ModelLearner)
        model, found = self.model, dict[str, Any]()
        chunk = self.learner.following(model, X)
        if "intervals" in names:
            if not model.has_intervals:
                raise BadInput("intervals are for regressions by --method bank")
            # Samples are learned as they come: a row is the next one.
            follows = self.learns and model.knows_distances
            how: dict[str, Any] = {"steps_ahead": 1} if follows else {}
            (ends,) = rows.answers(model, chunk, "predict_interval", coverage=self.level, **how)
            found |= {"lower": ends[0].tolist(), "upper": ends[1].tolist(), "coverage": self.level}
        if "probabilities" in names:
            if not hasattr(model.estimator, "predict_proba"):
                raise BadInput("probabilities are for classifiers by experts, or of logistic loss")
            (probabilities,) = rows.answers(model, chunk, "predict_proba")
            found |= {"labels": self.learner.classes, "probabilities": probabilities.tolist()}
        return found


def run_server(serving: Serving) -> None:
    """Serve a model until SIGTERM or Ctrl-C."""
    from dokl.base.machine_code import watched

    done = threading.Event()
    with ExitStack() as stack:
        for end in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, end, signal.signal(end, lambda *_: done.set()))
        description, log = opened(serving), Log(NAME, Clock(), level=serving.log_level)
        face = _face(description, serving.http, log, stack)
        with watched(face.entrance.enters):
            service = _started(serving, description, log, stack)
        face.open(service)
        stack.callback(face.server.stop)  # before the service, which answers until then
        believed = list(description.inputs.target_range) or None
        address = face.server.url
        log("serving", address=address, learns=service.learns, target_range=believed)
        wait_until(done)
    if serving.save is not None:
        service.model.save(serving.save)


def made(serving: Serving, stack: ExitStack) -> ModelService:
    """The service of a model file, started; the stack ends it."""
    return _started(serving, opened(serving), Log(NAME, Clock()), stack)


def opened(serving: Serving) -> ModelDescription:
    """The description of a model file."""
    model = TableModel.load(serving.model)
    if serving.learn:
        check_learns(model)
    try:
        mark = hashlib.sha256(read_bytes(serving.model)).hexdigest()[:16]
    except OSError as error:
        raise BadFile(f"{serving.model}: it cannot be read ({error.strerror})") from None
    ranges = serving.target_range, serving.outside
    return described(model, serving.model, mark, serving.durability, *ranges)


def _started(
    serving: Serving, description: ModelDescription, log: Log, stack: ExitStack
) -> ModelService:
    store, learner = _store(serving, description, stack), description.learner()
    try:
        service = ModelService(description, NAME, learner, store, Clock(), log, learner.start())
    except BaseException:
        store.close()
        raise
    service.level, service.learns = serving.level, serving.learn
    stack.callback(service.stop)
    service.start()
    return service


def check_learns(model: TableModel) -> None:
    """Refuse a model that cannot learn row by row here."""
    kind = type(model.estimator).__name__
    if not hasattr(model.estimator, "prequential") or hasattr(model.estimator, "folded_"):
        raise BadInput(f"a {kind} predicts only: serve it without --learn")
    if hasattr(model.estimator, "nodes_"):
        raise BadInput("a network does not learn in one place: its nodes are agents (dokl agent)")
    if not model.classifying and not getattr(model.estimator, "_flat", True):
        raise BadInput("a model of several outputs is served without --learn")


def _store(serving: Serving, description: ModelDescription, stack: ExitStack) -> Store:
    """The journal; where nothing is learned one that goes with the process."""
    learner = description.learner()
    m, D, d = learner.m, learner.D, learner.d
    about: Identity = {"name": NAME, "fingerprint": description.mark, "m": m, "D": D, "d": d}
    if serving.learn:
        folder = private_folder(serving.folder)
    else:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return Store.open(folder / f"{NAME}.db", about, serving.durability, description.limits)


def _face(description: ModelDescription, address: str, log: Log, stack: ExitStack) -> HttpFace:
    """Serve HTTP from now on: that the model is not ready, at first."""
    try:
        from dokl.live.http.app import HttpFace
    except ImportError:
        raise MissingExtra("a model over HTTP", "live") from None
    face = HttpFace(description, NAME, address, log)
    face.server.start()
    stack.callback(face.server.stop)
    return face
