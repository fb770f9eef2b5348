"""What a model computes, as plain numbers: what `onnx` and `c_source` write down.

    raw columns -> inputs x -> scores f -> answers

`raw` says how raw columns become x (one number each, or one per level of a text), `core` how x
becomes scores: a sum of waves (gradient methods) or of folded banks (one of a single learner,
several of a node of a network), and `answer` what is made of scores. `spread` is how sure a single
learner is of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.estimators import (
    AutoClassifier,
    AutoRegressor,
    DiffusionClassifier,
    DiffusionRegressor,
    KernelClassifier,
    KernelRegressor,
    folded,
)
from dokl.estimators.network import NetworkEstimator
from dokl.estimators.old_files import OldNetwork
from dokl.estimators.predict_only import FoldedClassifier, FoldedRegressor
from dokl.learning import intervals
from dokl.learning.columns import Preprocessor, TimeParts
from dokl.learning.experts.bank import Bank
from dokl.learning.experts.folding import Part, Waves
from dokl.learning.experts.maps import NestedMap
from dokl.network.folded import folded_parts, interval_width
from dokl.network.state import State
from dokl.tables.models import TableModel

WAVES = (KernelRegressor, KernelClassifier, DiffusionRegressor, DiffusionClassifier)
EXPERTS = (AutoRegressor, AutoClassifier)
FOLDED = (FoldedRegressor, FoldedClassifier)


@dataclass(frozen=True)
class RawInputs:
    """How raw columns become x.

    columns: in the order that people know. numeric: (x - centre) * factor, and `fill` where it is
    missing, (p,) each; p counts the days since the start of times, too, where they are inputs.
    times: seconds since 1970, UTC, which become these days, and cos and sin of each circle. levels:
    1 for the level that a text is, 0 for the others; a text that is missing or unknown is none of
    them. x has numbers, days, circles and levels in this order.
    """

    columns: tuple[str, ...]
    numeric: tuple[str, ...]
    centre: Array
    factor: Array
    fill: Array
    levels: dict[str, tuple[str, ...]]
    times: dict[str, TimeParts] = field(default_factory=dict)

    @property
    def since(self) -> tuple[str, ...]:
        """Times whose days since the start are inputs."""
        return tuple(name for name, parts in self.times.items() if parts.since)


@dataclass(frozen=True)
class SpreadExpert:
    """One expert that counts. features: (map, kernel); width D: of its z; root: (D, D), its
    covariance is root root'; theta: (m, D); noise: (m,) in the units of targets, squared.
    """

    features: tuple[Any, str]
    weight: float
    theta: Array
    root: Array
    noise: Array


@dataclass(frozen=True)
class Spread:
    """How sure a bank of experts is: maps by their names, and the experts that count."""

    maps: dict[tuple[Any, str], NestedMap]
    experts: tuple[SpreadExpert, ...]


@dataclass(frozen=True)
class NumberAnswer:
    """f itself. flat: one number a row. width: (m,) half an interval in standard deviations (or,
    where there is no spread to multiply, in the units of the target), None without intervals.
    level: the share of targets that intervals hold.
    """

    flat: bool
    width: Array | None = None
    level: float = 0.9


@dataclass(frozen=True)
class LabelAnswer:
    """The label of the highest score, or level. probability: "calibrated" (slopes and bias of the
    online calibration), "logistic", or None where scores are no log odds.
    """

    labels: Array
    probability: str | None = None
    slopes: Array | None = None
    bias: Array | None = None


@dataclass(frozen=True)
class Formula:
    """All of it. d: inputs x; m: scores; raw: None where x itself is what comes in; core: waves, or
    folded banks to add up; spread: of a core of one bank.
    """

    d: int
    m: int
    raw: RawInputs | None
    core: Waves | tuple[Part, ...]
    answer: NumberAnswer | LabelAnswer
    spread: Spread | None
    about: dict[str, str]


def formula_of(
    model: Any, *, node: str | None = None, level: float = 0.9, std: bool = False
) -> Formula:
    """What a fitted model, or estimator, computes.

    node: of a network, the one that predicts; else what the network predicts for a node that it has
    not seen. level: what intervals are to hold. std: with the matrices of experts, by which
    intervals differ from row to row; else they have one width. Those of networks always have one
    width, that of the newest rows on average.
    """
    table = model if isinstance(model, TableModel) else TableModel.of(model)
    estimator = table.estimator
    if not isinstance(estimator, (*WAVES, NetworkEstimator, *EXPERTS, *FOLDED)):
        raise BadInput(f"a {type(estimator).__name__} does not predict: it cannot be exported")
    if not table.started:
        raise BadInput(
            f"this {type(estimator).__name__} has learned nothing that could be exported"
        )
    if node is not None and not hasattr(estimator, "nodes_"):
        raise BadInput("only a network has nodes to name, and this model is not one")
    if table.series is not None:
        raise BadInput(
            "a model with lags or a horizon remembers rows, which an exported file cannot: serve "
            "it (dokl serve), or load it in Python"
        )
    raw = None if table.preprocessor is None else raw_inputs(table.preprocessor)
    k = None if node is None else node_number(estimator, node)
    std = std and not table.classifying and _has_matrices(estimator)
    core = core_of(estimator, k)
    first = core if isinstance(core, Waves) else core[0]
    m = len(first.constant if isinstance(first, Waves) else first.base)
    about = {"task": "classification" if table.classifying else "regression"}
    about |= {"model": type(estimator).__name__, "fingerprint": table.fingerprint_}
    about |= {} if table.target is None else {"target": table.target}
    if raw is not None and raw.times:
        about["seconds since 1970, UTC"] = ", ".join(raw.times)
    answer = _labels(estimator) if table.classifying else _numbers(estimator, level, std, k)
    spread = _spread_of(estimator) if std else None
    return Formula(int(estimator.n_features_in_), m, raw, core, answer, spread, about)


def raw_inputs(prepared: Preprocessor) -> RawInputs:
    """How a preprocessor scales now."""
    moments, p = prepared.moments, len(prepared.scaled)
    known = np.maximum(moments.count, 1.0)
    mean = moments.shift + moments.total / known
    if prepared.standardise == "off":
        scaling = np.zeros(p), np.ones(p), mean
    else:
        spread = np.sqrt(np.maximum(moments.square / known - (moments.total / known) ** 2, 0.0))
        factor = np.divide(1.0, spread, out=np.zeros(p), where=spread > 0)
        scaling = mean, factor, np.zeros(p)
    texts, times = dict(prepared.levels), dict(prepared.times)
    return RawInputs(prepared.columns, prepared.numeric, *scaling, texts, times)


def is_waves(estimator: Any) -> bool:
    """Whether it is a vector on random features."""
    return isinstance(estimator, WAVES)


def core_of(estimator: Any, k: int | None) -> Waves | tuple[Part, ...]:
    """How x becomes scores; k: of a network, at which node, or at none of them."""
    if isinstance(estimator, WAVES):
        return _waves(estimator, *_vector(estimator.state_, k))
    if isinstance(estimator, NetworkEstimator):
        network = estimator.network_
        if isinstance(network, OldNetwork):
            raise BadInput(
                "this network is from a file of an earlier version: it predicts, and cannot be "
                "exported. Train it again, and export that"
            )
        return folded_parts(network, -1 if k is None else k)
    return tuple(_fold(estimator).folded_)


def _vector(state: State, k: int | None) -> tuple[Array, Array]:
    """Vector and constant of node k, or of the whole network."""
    if k is None:
        return state.pooled()
    theta, bias = state.delivered()
    return theta[k], bias[k]


def _waves(estimator: Any, theta: Array, bias: Array) -> Waves:
    """A vector that predicts, with its features."""
    made = estimator.feature_map_
    theta = np.asarray(theta, np.float64)
    constant, unit = estimator.exchange_.intercept * np.asarray(bias, np.float64), estimator._unit
    if unit is not None:  # learned in units of its own, given in the targets'
        theta, constant = theta * unit.size[:, None], unit.outward(constant)
    phases = None if made.paired else made.phases
    return Waves(made.dense_omega(), phases, made.scale, theta, constant)


def node_number(estimator: Any, node: str) -> int:
    """Which node of a network has this name, as people write it."""
    names = [str(name) for name in estimator.nodes_]
    if node not in names:
        raise UnknownName("node", node, names)
    return names.index(node)


def _fold(estimator: Any) -> Any:
    return estimator if isinstance(estimator, FOLDED) else folded(estimator)


def _has_matrices(estimator: Any) -> bool:
    return isinstance(estimator, AutoRegressor) and estimator.bank_.now is not None


def _numbers(estimator: Any, level: float, std: bool, k: int | None) -> NumberAnswer:
    level, width = intervals.check_level(level), None
    if isinstance(estimator, (*WAVES, NetworkEstimator)):
        network = getattr(estimator, "network_", None)
        if network is not None:
            width = interval_width(network, -1 if k is None else k, level)
        return NumberAnswer(bool(estimator._flat), width, level)
    small = _fold(estimator)
    width = intervals.width_at(small.tracker_, level)
    return NumberAnswer(bool(small._flat), width if std else width * small.spread_, level)


def _labels(estimator: Any) -> LabelAnswer:
    labels = np.asarray(estimator.classes_)
    if is_waves(estimator):
        logistic = estimator.loss_.name == "logistic"
        return LabelAnswer(labels, "logistic" if logistic else None)
    made = estimator.calibration_
    return LabelAnswer(labels, "calibrated", made.slopes, made.bias)


def _spread_of(estimator: Any) -> Spread:
    """The experts that count, their covariances as products root root'."""
    bank: Bank = estimator.bank_
    assert bank.now is not None
    found = []
    for kind, memory, w in zip(bank.kinds, bank.memories, bank.weights, strict=True):
        if w > 0:
            noise = memory.noise * bank.now.targets.size**2
            root = _root(memory.covariance())
            found.append(SpreadExpert(kind.features, float(w), memory.theta, root, noise))
    used = dict.fromkeys(expert.features for expert in found)
    maps: dict[Any, Any] = {key: bank.now.maps[key] for key in used}  # of a single bank, ungrouped
    return Spread(maps, tuple(found))


def _root(P: Array) -> Array:
    """R with R R' = P, also where rounding has made P a little indefinite."""
    try:
        return np.asarray(np.linalg.cholesky(P))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(P)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def whitening(made: NestedMap, M: int) -> Array:
    """(M, M): k(U, x) times this are the map's first M features beyond the linear ones."""
    from scipy.linalg import solve_triangular

    inverse = solve_triangular(made.lower[:M, :M], np.eye(M), lower=True)
    return np.asarray(made.scales.amplitude * inverse.T)
