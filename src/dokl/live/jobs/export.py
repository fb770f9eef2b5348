"""What an agent has learned as an ordinary model file, and a model file as an agent's start."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput, Diverged, FingerprintMismatch
from dokl.base.files import check_new
from dokl.estimators import KernelClassifier, KernelRegressor
from dokl.estimators.predict_only import NEWEST, predict_only
from dokl.learning.experts import predicting
from dokl.learning.experts.folding import Part
from dokl.live.description import Network, read
from dokl.live.jobs.agents import identity, state_folder
from dokl.live.listeners import ListeningLearner
from dokl.live.rows.learner import RowsState
from dokl.live.store import read_saved
from dokl.live.sums.learner import SumsState
from dokl.network.folded import listening_parts, summing_parts
from dokl.network.state import State
from dokl.tables.models import TableModel


def export(
    description: Path, name: str, path: Path, folder: Path | None = None, overwrite: bool = False
) -> dict[str, Any]:
    """Write node `name`'s model to `path`; the agent may be running meanwhile."""
    check_new(path, overwrite)
    network = read(description)
    network.node(name)
    state, learned = learned_so_far(network, name, folder or state_folder(description))
    model = as_model(network, state, name)
    model.rows_read = learned
    model.save(path)
    return {"model": str(path), "learned": learned, "fingerprint": model.fingerprint_}


def learned_so_far(network: Network, name: str, folder: Path) -> tuple[State, int]:
    """A node's state and the number of samples in it, as its journal has them."""
    path = folder / f"{name}.db"
    if not path.exists():
        raise BadInput(f"{path}: node {name!r} has no journal there, it was never started")
    packed, learned, batches = read_saved(path, identity(network, name))
    learner = network.learner(name)
    state = learner.start() if packed is None else learner.unpack(packed)
    # Rows that wait for their round in lockstep are in the journal, and not learned yet.
    if network.exchange.mode != "lockstep":
        for X, Y in batches:
            with suppress(Diverged):  # rows that a start would pass over, too
                state, _ = learner.learn(state, X, Y)
            learned += len(X)
    return state, learned


def as_model(network: Network, state: State, name: str | None = None) -> TableModel:
    """The estimator that predicts as the agent `name` does, with its preprocessing.

    By method "squares" it predicts the same, up to rounding, with intervals of one width; learning
    on is the agent's alone.
    """
    if isinstance(state, SumsState | RowsState):
        estimator = _folded(network, state, name)
        model = TableModel(estimator, network.model_inputs(), network.inputs.target)
        model.series = state.series
        return model
    estimator = _estimator(network)
    target = network.inputs.labels[:1] if network.inputs.classifying else (0.0,)
    first = {"classes": list(network.inputs.labels)} if network.inputs.classifying else {}
    # One row sets up everything that depends on shapes; what was learned replaces its traces.
    estimator.partial_fit(np.zeros((1, network.d)), np.array(target), **first)
    estimator.state_ = state.copy()
    model = TableModel(estimator, network.model_inputs(), network.inputs.target)
    if model.fingerprint_ != network.fingerprint:
        raise FingerprintMismatch("the exported model", network.fingerprint, model.fingerprint_)
    return model


def _folded(network: Network, state: SumsState | RowsState, name: str | None) -> Any:
    """What predicts at a node that shares sums or rows, without its matrices."""
    learner = network.learner(name)
    assert isinstance(learner, ListeningLearner)
    known = learner.own_node(state)
    own = known.own
    newest = own.stored.newest()[0][-NEWEST:]
    prediction = learner.predict_inputs(state, newest)
    classes = np.array(network.inputs.labels) if network.inputs.classifying else None
    return predict_only(
        _parts(network, state, name),
        rows=own.seen,
        tracker=known.tracker,
        spread=np.sqrt(prediction.variance).mean(axis=0) if len(newest) else np.ones(own.m),
        relevance=predicting.relevance(own),
        remembers=f"has learned {own.seen:,} rows of its own",
        fingerprint=network.fingerprint,
        classes=classes,
    )


def _parts(network: Network, state: SumsState | RowsState, name: str | None) -> tuple[Part, ...]:
    if isinstance(state, RowsState):
        known = state.rows
        number = -1 if name is None else known.names.index(name)
        return listening_parts(known.node, number)
    made = network.agreed_map
    return summing_parts(state.node, made, -1 if name is None else made.number(name))


def _estimator(network: Network) -> Any:
    features = network.features()
    kind = KernelClassifier if network.inputs.classifying else KernelRegressor
    problem = network.problem()
    return kind(
        features.kernel,
        n_components=features.D,
        features=features.variant,
        loss=problem.gradient.loss,
        step=problem.gradient.schedule,
        alpha=problem.gradient.lam,
        average="none",
        intercept=network.model.intercept,  # type: ignore[arg-type]
        random_state=features.seed,
    )


def warm_state(network: Network, path: Path) -> State:
    """What a model file has learned, as the state of an agent; its features must be ours."""
    if network.model.squares:
        raise BadInput("--model: a node of method 'squares' begins with its own rows, not a model")
    model = TableModel.load(path)
    if model.fingerprint_ != network.fingerprint:
        raise BadFile(
            f"{path}: "
            + str(FingerprintMismatch("this model", network.fingerprint, model.fingerprint_))
        )
    held = model.estimator.state_
    theta, bias = held.pooled()
    state = network.learner().start()
    state.theta[0], state.bias[0] = theta, _constant(network, model, bias, path)
    state.count[0], state.peak = int(held.count.mean()), held.peak
    return state


def _constant(network: Network, model: TableModel, bias: Array, path: Path) -> Array:
    """The intercept in units of the agent's own constant feature."""
    theirs, ours = model.estimator.exchange_.intercept, network.model.intercept
    if theirs == ours or not np.any(bias * theirs):
        return bias if theirs == ours else np.zeros_like(bias)
    if ours == 0:
        raise BadFile(
            f"{path}: this model has an intercept, and [model] intercept is 0 in {network.path}"
        )
    return np.asarray(bias * (theirs / ours))
