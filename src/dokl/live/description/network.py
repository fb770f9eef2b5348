"""The description of a live network: one TOML file that every node reads.

`read` gives a `Network`: who there is, who talks to whom, what is learned, and how inputs are
scaled. Nodes whose descriptions have the same fingerprint may average their vectors. A revoked
node is treated as if it and its links were not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base import config
from dokl.base.errors import BadInput, UnknownName
from dokl.base.files import Json, read_text
from dokl.base.fingerprints import agreed_fingerprint
from dokl.learning import losses, schedules
from dokl.learning.columns import Preprocessor, RawRows
from dokl.learning.experts.kinds import CLASS_PILOTS, Settings, for_classes
from dokl.learning.features import FeatureMap, Features
from dokl.learning.kernels import resolve as resolve_kernel
from dokl.live.description.agreed import AgreedInputs
from dokl.live.description.cells import ISO, forms_of, times_of
from dokl.live.description.checks import check_name, is_loopback
from dokl.live.description.epochs import column_map
from dokl.live.description.sections import (
    About,
    Durability,
    ExchangePolicy,
    Limits,
    Model,
    Node,
)
from dokl.live.description.service import Access, RowEncoder
from dokl.live.description.sources import SensorSource, sensor_source
from dokl.live.lagged import LaggedInputs
from dokl.live.rows import ColumnMap, RowsLearner
from dokl.live.sums.learner import SumsLearner
from dokl.network import agreed
from dokl.network.agreed import AgreedMap, DrawnMap, LearnedMap
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem
from dokl.simulation.learner import Learner
from dokl.simulation.methods import gradient

ARROW = "->"


@dataclass(frozen=True)
class Network:
    """A whole description; make one with `read`.

    about: as the file has it. nodes: in the order of the file, without revoked ones. routes: "b->a"
    says that b dials a, and at which address, where that is not a's own. path: the file, even if
    it is not written yet. sources: the brokers that nodes listen to. given_map: the map that
    [model] names, where it is not to be read from its file. earlier: the agreed inputs before
    columns were changed, the oldest first.
    """

    about: About
    model: Model
    inputs: AgreedInputs
    exchange: ExchangePolicy = field(default_factory=ExchangePolicy)
    durability: Durability = field(default_factory=Durability)
    limits: Limits = field(default_factory=Limits)
    nodes: dict[str, Node] = field(default_factory=dict)
    routes: dict[str, str] = field(default_factory=dict)
    path: Path = Path("network.toml")
    sources: dict[str, SensorSource] = field(default_factory=dict)
    given_map: LearnedMap | None = field(default=None, repr=False)
    earlier: tuple[AgreedInputs, ...] = ()

    @property
    def title(self) -> str:
        """Its name."""
        return self.about.name

    # -- who talks to whom -------------------------------------------------------------------
    @property
    def names(self) -> tuple[str, ...]:
        """The nodes, in the order of the file."""
        return tuple(self.nodes)

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Pairs of nodes that talk to each other, revoked ones left out."""
        return tuple((a, b) for a, b in self.about.links if a in self.nodes and b in self.nodes)

    def node(self, name: str) -> Node:
        """The node of a name; an unknown name says the nearest, a revoked one that it is."""
        if name in self.about.revoked:
            raise BadInput(f"node {name!r} is revoked in {self.path}")
        if name not in self.nodes:
            raise UnknownName(f"node in {self.path}", name, self.nodes)
        return self.nodes[name]

    def neighbours(self, name: str) -> tuple[str, ...]:
        """The nodes that this one is linked with, sorted."""
        self.node(name)
        ends = {other for a, b in self.links for me, other in ((a, b), (b, a)) if me == name}
        return tuple(sorted(ends - {name}))

    def degree(self, name: str) -> int:
        """How many neighbours it has."""
        return len(self.neighbours(name))

    def dials(self, name: str) -> dict[str, str]:
        """{peer: address} of the neighbours that this node dials; the others dial it.

        Of a link the later node in the file dials the earlier, unless only the other way has a
        route.
        """
        return {
            peer: self.routes.get(f"{name}{ARROW}{peer}", self.nodes[peer].address)
            for peer in self.neighbours(name)
            if self._dials(name, peer)
        }

    def _dials(self, name: str, peer: str) -> bool:
        mine, theirs = (way in self.routes for way in (name + ARROW + peer, peer + ARROW + name))
        if mine != theirs:
            return mine
        return self.names.index(name) > self.names.index(peer)

    def without(self, gone: Iterable[str]) -> Network:
        """The same network as if these nodes and their links were not there."""
        out = set(gone)
        links = tuple(link for link in self.about.links if not out & set(link))
        nodes = {name: node for name, node in self.nodes.items() if name not in out}
        routes = {way: to for way, to in self.routes.items() if not out & set(way.split(ARROW))}
        about = replace(self.about, links=links)
        sources = {name: source for name, source in self.sources.items() if name not in out}
        return replace(self, about=about, nodes=nodes, routes=routes, sources=sources)

    # -- what is learned ---------------------------------------------------------------------
    def preprocessor(self) -> RowEncoder:
        """How columns become the rows of a journal: X; with lags, rows as they came."""
        if not self.inputs.in_order:
            return self.model_inputs()
        return RawRows(self.inputs.brought, dict(self.inputs.levels))

    def model_inputs(self) -> Preprocessor:
        """How columns, and earlier values, become X; frozen, a new one each time."""
        agreed = self.inputs
        forms = dict.fromkeys({agreed.ordered_by} - {""}, ISO) | forms_of(agreed.forms)
        meta = {
            "standardise": agreed.standardise,
            "frozen": True,
            "numeric": list(agreed.numeric),
            "levels": [[name, list(levels)] for name, levels in agreed.levels],
            "times": [[name, each.spec()] for name, each in times_of(agreed.times).items()],
            "forms": {name: each.spec() for name, each in forms.items()},
            "missing": list(agreed.missing),
            "excluded": [*([] if agreed.ahead else [agreed.target]), *agreed.drop],
        }
        sums = {name: np.array(getattr(agreed, name)) for name in _SUMS}
        return Preprocessor.from_spec(meta, sums)

    @property
    def d(self) -> int:
        """Number of inputs, one per level of a text column, some for a column of times."""
        return self.model_inputs().d

    @property
    def m(self) -> int:
        """Number of outputs."""
        return self.inputs.m

    def recipe(self) -> Features:
        """The features before they are drawn."""
        widths, d = self.model.sigma, self.d
        if isinstance(widths, tuple) and len(widths) != d:
            raise BadInput(
                f"[model] sigma has {len(widths)} widths for {d} inputs: one for each number and "
                "for each level of a text column, or one for all"
            )
        kernel = resolve_kernel(self.model.kernel, widths, **self.model.parameters)
        return Features(kernel, d, self.model.D, self.model.variant)

    def features(self) -> FeatureMap:
        """The feature map, drawn once."""
        return self._drawn

    @cached_property
    def _drawn(self) -> FeatureMap:
        return self.recipe().draw(self.model.seed)

    @cached_property
    def fingerprint(self) -> str:
        """What two nodes must have in common to average: features, scaling and labels.

        A model file with these features, preprocessing and classes has the same one.
        """
        labels: dict[str, object] = {}
        if self.inputs.classifying:
            labels["classes"] = list(self.inputs.labels)
        if self.inputs.lags:
            labels |= {"lags": self.inputs.lag_plan.spec()}
        if self.inputs.ahead:
            labels |= {"horizon": str(self.inputs.ahead)}
        if self.model.rows:  # columns and labels are all that is agreed
            shared = agreed_fingerprint("0" * 16, method={"name": "squares", "share": "rows"})
            learned = agreed_fingerprint(shared, target=self.inputs.target, **labels)
            return agreed_fingerprint(learned, preprocessing=self.model_inputs().agreed())
        if self.model.squares:  # sums and vectors are nothing to each other
            labels |= {"method": {"name": "squares", "ridge": float(self.model.ridge)}}
        learned = agreed_fingerprint(self._map_fingerprint, **labels)
        return agreed_fingerprint(learned, preprocessing=self.model_inputs().agreed())

    @property
    def _map_fingerprint(self) -> str:
        """Of the map, whose random features need not be drawn for it."""
        if self.model.map is not None:
            return self.agreed_map.fingerprint
        made = self.recipe()
        return FeatureMap(made.kernel, made.d, made.D, made.variant, self.model.seed).fingerprint

    @cached_property
    def agreed_map(self) -> AgreedMap:
        """What sums are on: the map of the file that [model] names, or one that is drawn."""
        if self.model.map is None:
            return DrawnMap(self.features(), float(self.model.ridge), self.m)
        path = self.path.parent / self.model.map
        made = self.given_map or agreed.load(path)
        wanted_by = {"inputs": self.d, "outputs": self.m, "features": self.model.D}
        sizes = {"inputs": made.d, "outputs": made.m, "features": made.D}
        for what, wanted in wanted_by.items():
            found = sizes[what]
            if found != wanted:
                raise BadInput(
                    f"[model] map: {path} has {found} {what}, and {wanted} are described"
                )
        return made

    def problem(self) -> Problem:
        """Features, loss, schedule and regularization, for the engines."""
        return Problem(self.features(), gradient(self.loss(), self.schedule(), self.model.lam))

    def learner(self, name: str | None = None) -> Learner:
        """One node of this network, ready to learn; it refuses the same rows on every replay.

        name: of the node, which may have a place of its own on the map.
        """
        inputs = self.inputs
        if self.model.rows:
            return self.rows_learner(name)
        if self.model.squares:
            number = -1 if name is None else self.agreed_map.number(name)
            classes = inputs.labels if inputs.classifying else None
            given = self.agreed_map, number, self.alone, classes, self.fingerprint
            return SumsLearner(*given, self._lagged())
        return Learner(
            self.problem(),
            Exchange(None, intercept=self.model.intercept),
            m=inputs.m,
            classes=inputs.labels if inputs.classifying else None,
            dtype=np.float32,
            engine="numba",
            fingerprint=self.fingerprint,
            row_by_row=True,
        )

    def rows_learner(self, name: str | None) -> RowsLearner:
        """One node of this network, where rows are shared."""
        name = self.names[0] if name is None else name
        listens = bool(self.neighbours(name)) and self.exchange.mode != "off"
        classes = self.inputs.labels if self.inputs.classifying else None
        given = self.title, name, self.names, self.d, self.m, self.alone, classes, self.fingerprint
        return RowsLearner(*given, listens, self.model.D, self._lagged(), self.column_maps)

    def _lagged(self) -> LaggedInputs | None:
        """How earlier values become inputs, if they are wanted."""
        inputs = self.inputs
        if not inputs.in_order:
            return None
        rows = RawRows(inputs.brought, dict(inputs.levels))
        plan, ahead = inputs.lag_plan, inputs.ahead
        return LaggedInputs(rows, self.model_inputs(), plan, inputs.target, ahead)

    @property
    def alone(self) -> Settings:
        """Of a node's own bank: those of an `AutoRegressor`, or of an `AutoClassifier`."""
        given: dict[str, Any] = {"most": self.model.own_components, "seed": self.model.seed}
        if self.inputs.classifying:
            given |= {"kinds": for_classes(), "bound": math.inf, "pilots": CLASS_PILOTS}
            given["classes"] = len(self.inputs.labels)
        return Settings(**given)

    def schedule(self) -> schedules.Schedule:
        """How long steps are."""
        return schedules.from_settings(self.model, "[model]")

    def loss(self) -> losses.Loss:
        """The loss, which must suit the task."""
        parameter = self.model.loss_parameter
        loss = losses.resolve(self.model.loss, **({} if parameter is None else {"p": parameter}))
        if loss.margin and not self.inputs.classifying:
            raise BadInput(
                f"[model] loss {loss.name!r} is for classes, and [inputs] task is 'regression': "
                "take squared, huber, absolute, epsilon_insensitive or quantile"
            )
        return loss

    # -- earlier columns ---------------------------------------------------------------------
    @property
    def former(self) -> tuple[Network, ...]:
        """The same network with its earlier columns, the oldest first."""
        return tuple(replace(self, inputs=each, earlier=()) for each in self.earlier)

    @property
    def column_maps(self) -> dict[str, ColumnMap]:
        """How rows of earlier columns become those of now, by their fingerprints."""
        now = self.inputs, self.model_inputs()
        return {
            each.fingerprint: column_map(each.inputs, each.model_inputs(), *now)
            for each in self.former
        }

    # -- certificates ------------------------------------------------------------------------
    @property
    def secure(self) -> bool:
        """Whether neighbours show certificates."""
        return self.about.security == "mtls"

    @property
    def folder(self) -> Path:
        """Where the certificates are; beside the file unless it says otherwise."""
        return self.path.parent / (self.about.certificates or f"{self.path.stem}.certs")

    def certificate_files(self, name: str) -> tuple[Path, Path, Path]:
        """Paths of the authority's certificate, of a node's, and of its key."""
        return tuple(self.folder / part for part in ("ca.pem", f"{name}.pem", f"{name}.key"))  # type: ignore[return-value]

    def token(self, name: str, reading: bool = False) -> str | None:
        """The token that a node's HTTP interface requires from afar; None where there is no such
        file.

        reading: the one that is good for questions only.
        """
        path = self.folder / f"{name}.{'read.token' if reading else 'token'}"
        try:
            return read_text(path, "ascii").strip() or None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path} cannot be read ({error})") from None

    def access(self, name: str, address: str) -> Access:
        """Who may use the HTTP interface of a node at an address: tokens are wanted from afar."""
        if is_loopback(address):
            return Access()
        token = self.token(name) if self.secure else None
        if token is None:
            raise BadInput(
                f"others can reach {address}: an HTTP interface there needs certificates and a "
                f"token ({name}.token beside the certificates); or give it a loopback address"
            )
        return Access(token, self.token(name, reading=True), self.certificate_files(name)[1:])


_SUMS = ("shift", "count", "total", "square")


# -- reading -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class _File:
    """The sections of the file."""

    network: About
    model: Model
    inputs: AgreedInputs
    exchange: ExchangePolicy
    durability: Durability
    limits: Limits
    nodes: dict[str, Any] = field(default_factory=dict)
    routes: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    earlier: tuple[Any, ...] = ()


def read(path: str | Path, *, strict: bool = True) -> Network:
    """The network that a file describes; BadInput names section and key.

    strict: refuse links and routes that lead nowhere, and a fingerprint that is not that of the
    content. Without it these are left to `layout_problems`.
    """
    path = Path(path)
    return _understood(config.read_toml(path), path, strict)


def parse(text: str, path: str | Path = "network.toml", *, strict: bool = True) -> Network:
    """The network that a text describes, as if it stood in a file of this path."""
    return _understood(config.parse_toml(text, path), Path(path), strict)


def _understood(data: Json, path: Path, strict: bool) -> Network:
    try:
        network = _built(config.parse(_File, data), path)
        if strict:
            _refuse_nonsense(network)
    except BadInput as error:
        message = str(error)
        raise BadInput(message if str(path) in message else f"{path}: {message}") from None
    return network


def _built(found: _File, path: Path) -> Network:
    nodes = {}
    for name, table in found.nodes.items():
        check_name(name)
        if not isinstance(table, dict):
            raise BadInput(f"[nodes] {name} must be a section [nodes.{name}], got {table!r}")
        node = config.parse(Node, table, f"[nodes.{name}]")
        if name not in found.network.revoked:
            nodes[name] = node
    if not nodes:
        raise BadInput("there is no section [nodes.NAME]: a network has nodes")
    for way, address in found.routes.items():
        if not isinstance(address, str):
            raise BadInput(f"[routes] {way!r} must be an address HOST:PORT, got {address!r}")
    parts = (found.model, found.inputs, found.exchange, found.durability, found.limits)
    sources = {
        name: sensor_source(name, table)
        for name, table in found.sources.items()
        if name not in found.network.revoked
    }
    earlier = tuple(_earlier(table) for table in found.earlier)
    return Network(found.network, *parts, nodes, found.routes, path, sources, earlier=earlier)


def _earlier(table: object) -> AgreedInputs:
    if not isinstance(table, dict):
        raise BadInput(f"[[earlier]] must be a section like [inputs], got {table!r}")
    return config.parse(AgreedInputs, table, "[[earlier]]")


def _refuse_nonsense(network: Network) -> None:
    from dokl.live.description.inspection import nonsense

    wrong = nonsense(network)
    if wrong:
        more = f" (and {len(wrong) - 1} more: dokl network check)" if len(wrong) > 1 else ""
        raise BadInput(wrong[0] + more)
