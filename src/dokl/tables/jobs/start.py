"""How a training starts: the task, the columns, the classes and the estimator, from first rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName, counted, listed
from dokl.estimators import (
    AutoClassifier,
    AutoRegressor,
    DiffusionClassifier,
    DiffusionRegressor,
    KernelClassifier,
    KernelRegressor,
    NetworkClassifier,
    NetworkRegressor,
)
from dokl.estimators.network import NetworkEstimator
from dokl.learning import losses
from dokl.learning.cells.cells import number
from dokl.learning.columns import (
    Preprocessor,
    check_some_left,
    group_among,
    guessed_task,
    is_text,
    like_identifiers,
    unused_texts,
    unused_words,
)
from dokl.learning.order import sorted_by_target
from dokl.network.sharing import FEWEST_ROWS
from dokl.tables.models import TableModel
from dokl.tables.models.series import LagRequest, Series, in_order, lines_of, planned_series
from dokl.tables.readers import Chunk

TASKS = ("auto", "regression", "classification")
# Method -> the regressor and the classifier of one place, and those of a network.
METHODS = {
    "bank": ((AutoRegressor, AutoClassifier), (NetworkRegressor, NetworkClassifier)),
    "gradient": ((KernelRegressor, KernelClassifier), (DiffusionRegressor, DiffusionClassifier)),
}
# With more inputs, experts take minutes to learn their length scales.
MOST_INPUTS = 300
# What leaves a node of a network, in words.
LEAVES = {
    "sums": f"what leaves a node: sums over at least {FEWEST_ROWS} rows, and the sample of rows "
    "that a map is made from; --share rows sends every row",
    "rows": "what leaves a node: every row; --share sums sends sums of rows instead",
}
# Rows are grouped by node where it changes this much less often than in a random order.
GROUPED = 0.1


@dataclass(frozen=True)
class Training:
    """What to learn: target, task, preprocessing, method and its parameters.

    method: "bank" (experts, mixed, at every node of a network) or "gradient". None is "bank",
    and refuses more inputs than a bank learns from in reasonable time. standardise: None is "off"
    for a bank, which brings inputs to unit size itself, "running" for one node that learns by
    gradients, "fixed" for a network. node: the column that names the node of each row; graph: the
    network, a networkx graph of these names; links: where it is from, in words. lags: columns of
    earlier values, and the horizon. group: the column whose levels are groups; None is the text
    column with the most levels, if these are too many to be an input each. shuffle: whether rows
    are learned in random order; None is where they are sorted by their target.
    """

    target: str | None = None
    task: str = "auto"
    classes: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    standardise: str | None = None
    node: str | None = None
    graph: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    method: str | None = None
    links: str = ""
    lags: LagRequest = field(default_factory=LagRequest)
    group: str | None = None
    shuffle: bool | None = None


def start(training: Training, chunk: Chunk, longer: float = 1.0, whole: bool = False) -> TableModel:
    """A model that has learned nothing yet, planned on the first chunk. longer: how many times as
    long as that chunk the file is, if that is known; whole: whether it is known to be all of it.
    """
    if training.task not in TASKS:
        raise UnknownName("task", training.task, TASKS)
    if chunk.X is not None:
        return _of_rows(training, chunk)
    target = _target_name(training, chunk)
    series = _series(training, chunk, target)
    columns, given = dict(chunk.columns), [training.node] if training.node is not None else []
    if series is not None:
        rows = in_order(series.plan, chunk)
        columns = rows.columns | series.lags.extend(rows.columns)[0]
    if series is None or not series.horizon:
        given = [target, *given]
    if target in chunk.times:
        raise BadInput(
            f"the target {target!r} holds times, and numbers or classes are predicted: take a "
            f"column of hours, for example, and --numeric {quote(target)} if it does hold numbers"
        )
    named = [name for name in (target, training.group) if name is not None]
    unused = unused_texts(columns, [*given, *named, *training.levels], whole)
    check_some_left([name for name in columns if name not in given], unused)
    given = [*given, *unused]
    group = _group(training, columns, given)
    how: dict[str, Any] = {"times": chunk.times, "longer": longer, "group": group}
    inputs = Preprocessor.plan(columns, given, "off", training.levels, **how).d
    method = _method(training, inputs)
    mode = _scaling(training, method)
    prepared = Preprocessor.plan(columns, given, mode, training.levels, **how)
    prepared.forms = {name: form.spec() for name, form in chunk.forms.items()}
    if training.node is not None:
        _agree(prepared, chunk)
    classifying = _classifying(training, chunk.columns[target])
    estimator = _estimator(training, method, classifying, group is not None)
    return TableModel(estimator, prepared, target, training.node, series=series)


def _series(training: Training, chunk: Chunk, target: str) -> Series | None:
    """Lags and the horizon, where they are asked for."""
    if not training.lags:
        if training.lags.by is not None or training.lags.time is not None:
            raise BadInput("--by and --time are for lags and horizons: name some, or --lags auto")
        return None
    asked, node = training.lags, training.node
    if node is not None and asked.by not in (None, node):
        raise BadInput(
            f"lags at the nodes of a network are taken by node: leave out --by {asked.by}, or name "
            f"{node!r} there"
        )
    return planned_series(asked if node is None else replace(asked, by=node), chunk, target)


def _group(training: Training, columns: Mapping[str, Array], given: list[str]) -> str | None:
    """The column of groups: the one that was named, else by its levels."""
    name = training.group
    if "groups" in training.parameters:
        raise BadInput("name the column of groups by --group (in Python group=...)")
    if name is None:
        grouping = training.method != "gradient" and training.node is None
        return group_among(columns, [*given, *training.levels]) if grouping else None
    if training.node is not None:
        raise BadInput(f"the nodes of a network are its groups: leave out --group {name}")
    if training.method == "gradient":
        raise BadInput("only --method bank learns groups: leave out --method gradient, or --group")
    if name in given:
        raise BadInput(f"column {name!r} is the target, and no group of inputs")
    if name in training.levels:
        raise BadInput(
            f"column {name!r} is a group, whose levels need not be named: leave out --levels"
        )
    return name


def _method(training: Training, d: int) -> str:
    """The method; with very many inputs it must be given."""
    if training.method is not None and training.method not in METHODS:
        raise UnknownName("method", training.method, METHODS)
    if d > MOST_INPUTS and training.method is None:
        slow = "" if training.node else ", or --method bank, which takes minutes for that many"
        raise BadInput(
            f"there are {d:,} inputs, and a bank learns length scales of up to {MOST_INPUTS}: "
            f"choose --method gradient{slow}"
        )
    return training.method or "bank"


def _scaling(training: Training, method: str) -> str:
    """How numbers are standardised. A bank does that itself, once at each of its pilots."""
    usual = "fixed" if training.node is not None else "off"
    usual = "running" if usual == "off" and method == "gradient" else usual
    mode = training.standardise or usual
    if mode == "running" and method != "gradient" and training.node is None:
        raise BadInput(
            "standardise running would change the features of experts, which scale inputs "
            "themselves: standardise off, or fixed (by the first rows)"
        )
    return mode


def _of_rows(training: Training, chunk: Chunk) -> TableModel:
    """A model of LIBSVM rows, which are taken as they are."""
    named: dict[str, Any] = {"target": training.target, "node": training.node}
    named |= {"levels": training.levels or None, "lags": training.lags or None}
    named["group"] = training.group
    for option, value in named.items():
        if value is not None:
            raise BadInput(f"a LIBSVM file has no named columns: leave out the {option}")
    assert chunk.y is not None
    method = _method(training, chunk.X.shape[1])
    return TableModel(_estimator(training, method, _classifying(training, chunk.y)))


def _agree(prepared: Preprocessor, chunk: Chunk) -> None:
    """A network's scaling is fixed on the first rows, once for all nodes."""
    if prepared.standardise == "running":
        raise BadInput(
            "nodes of a network need one scaling of their inputs: standardise fixed (by the first "
            "rows), or off"
        )
    if not prepared.frozen:
        prepared.learn_transform(chunk.columns)  # the means that stand for missing numbers
    prepared.freeze()


def nodes_missing(training: Training, chunk: Chunk) -> list[str]:
    """Whether the first rows stand for the whole network."""
    if training.node is None:
        return []
    seen, nodes = set(chunk.columns[training.node].tolist()), set(training.graph.nodes)
    if nodes <= seen:
        return []
    return [
        f"the first {chunk.n:,} rows, which settle the standardisation for all, come from "
        f"{len(nodes & seen)} of {len(nodes)} nodes: sort the rows by time, or take a larger "
        "--chunk"
    ]


def nodes_grouped(training: Training, chunk: Chunk, model: TableModel) -> list[str]:
    """Whether nodes would learn one after the other, by the first rows.

    Every row of the same node as the row before is a step by itself; gradients deal rows out.
    """
    if training.node is None or not isinstance(model.estimator, NetworkEstimator):
        return []
    named = [name for name in chunk.columns[training.node].tolist() if name is not None]
    names, numbers = np.unique(np.array(named, str), return_inverse=True)
    changes = int(np.count_nonzero(np.diff(numbers)))
    usual = len(named) - float((np.bincount(numbers) ** 2).sum()) / max(1, len(named))
    if len(names) < 2 or changes >= GROUPED * usual:
        return []
    return [
        f"rows are grouped by node, {len(named) - 1 - changes:,} of the first {len(named):,} are "
        f"of the same {training.node!r} as the row before: one node learns after the other, where "
        "all should learn side by side. Sort the rows by time"
    ]


def _estimator(training: Training, method: str, classifying: bool, grouped: bool = False) -> Any:
    network = training.node is not None
    kind: Any = METHODS[method][network][classifying]
    parameters = dict(training.parameters)
    if method == "bank" and training.lags:  # a series is mostly predicted far beyond its rows
        parameters = {"experts": "lasting", **parameters}
    if network:
        parameters["graph"] = training.graph
    if grouped:
        parameters["groups"] = -1  # where a `Preprocessor` puts it
    known = [name for name in kind._get_param_names() if name != "n_nodes"]
    for name in parameters:
        others = (way for way in METHODS if _has(METHODS[way][network][classifying], name))
        if name not in known and (other := next(others, None)):
            raise BadInput(
                f"{name} is a parameter of method {other}, and this is method {method}: choose "
                f"--method {other} (in Python method={other!r}), or leave it out"
            )
        if name not in known:
            raise UnknownName(f"parameter of {kind.__name__}", name, known)
    if isinstance(parameters.get("loss"), str):
        parameters["loss"] = parsed_loss(parameters["loss"])
    return kind(**parameters)


def _has(kind: Any, name: str) -> bool:
    return name in kind._get_param_names()


def parsed_loss(text: str) -> str | losses.Loss:
    """A loss with its number: "quantile:0.9", "huber:2".

    >>> parsed_loss("quantile:0.9").spec()
    {'name': 'quantile', 'p': 0.9}
    """
    name, colon, number = text.partition(":")
    if not colon:
        return text
    try:
        return losses.resolve(name, p=float(number))
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"loss {text!r}: {number!r} is not a number") from None


def _target_name(training: Training, chunk: Chunk) -> str:
    if training.target is None:
        raise BadInput(f"name the target column with --target: {listed(chunk.names)}")
    if training.target not in chunk.columns and len(chunk.names) == 1:
        (only,) = chunk.names
        words = [word.strip("'\"") for word in only.split()]
        if training.target in words or (only == "x1" and _numbers_in(chunk.columns[only]) > 1):
            raise BadInput(
                f"the file has one column, {only!r}: cells seem to be separated by spaces",
                options=["--delimiter ' '"],
            )
    if training.target not in chunk.columns:
        raise UnknownName("target column", training.target, chunk.names)
    return training.target


def _numbers_in(cells: Array) -> int:
    """How many numbers the first cell holds, with spaces between them; 0 if it is no such cell."""
    words = str(cells[0]).split() if len(cells) else []
    return len(words) if all(number(word) is not None for word in words) else 0


def _classifying(training: Training, y: Array) -> bool:
    """What was given, else what the targets look like."""
    if training.task != "auto":
        return training.task == "classification"
    return bool(training.classes) or guessed_task(y, training.target or "y")[0]


def random_order(training: Training, chunk: Chunk, model: TableModel | None = None) -> str:
    """Why rows are learned in random order, as a line; empty where they keep theirs.

    Rows that are sorted by their target show one part of it at a time, and what was learned first
    is forgotten. A date among the columns gives rows an order that matters, and so do inputs that
    move gradually. model: the one that learns these rows, where there is one; chunk: the first of
    them.
    """
    node = training.node is not None if model is None else model.node is not None
    if training.lags if model is None else model.series is not None:
        if training.shuffle:
            raise BadInput("lags and horizons need the rows in order of time: leave out --shuffle")
        return ""
    if training.shuffle is not None:
        why = "the rows are learned in random order; --no-shuffle keeps theirs"
        return why if training.shuffle else ""
    target = training.target if model is None else model.target
    y = chunk.y if chunk.y is not None else chunk.columns.get(target or "")
    if y is None or y.ndim != 1 or node or chunk.times:
        return ""
    classifying = _classifying(training, y) if model is None else model.classifying
    known = np.array([cell is not None for cell in y]) if y.dtype == object else ~np.isnan(y)
    y = y[known].astype(str) if y.dtype == object else y[known]
    numbers = [cells[known] for name, cells in chunk.columns.items() if name != target]
    inputs = [cells for cells in numbers if cells.dtype != object]
    X = np.column_stack(inputs) if inputs else np.empty((len(y), 0))
    if (y.dtype.kind == "U" and not classifying) or not sorted_by_target(y, classifying, X):
        return ""
    return (
        f"the rows are sorted by {target or 'their target'!r}, and learned in random order; "
        "--no-shuffle keeps theirs"
    )


def guesses(training: Training, chunk: Chunk, model: TableModel) -> tuple[str, ...]:
    """What was found out about the file, and made of it: a line each, with the option that changes
    it.
    """
    found = list(chunk.guesses)
    prepared = model.preprocessor
    open_ = [] if prepared is None else [n for n in prepared.levels if n not in training.levels]
    if open_ and prepared is not None:
        shown = listed([f"{name} ({_sizes(prepared, name)})" for name in open_])
        found.append(f"taken as text: {shown}; --levels COLUMN=A,B,... or --numeric COLUMN")
    if prepared is not None:
        found += _of_groups(training, chunk, prepared)
    found += not_used(chunk, model)
    if training.links:
        found.append(
            f"{len(training.graph):,} nodes by column {training.node!r}, "
            f"{training.graph.number_of_edges():,} links between them {training.links}; --graph"
        )
    if isinstance(model.estimator, NetworkEstimator):
        found.append(LEAVES[model.estimator.share])
    if model.series is not None:
        found += lines_of(model.series, training.lags, chunk, str(model.target))
    if training.task == "auto" and not training.classes:
        y = chunk.y if chunk.y is not None else chunk.columns[str(model.target)]
        found.append(guessed_task(y, model.target or "y")[1])
    return tuple(found)


def not_used(chunk: Chunk, model: TableModel) -> Iterable[str]:
    """Columns of names and free text, which `start` has left out."""
    if model.preprocessor is None:
        return []
    left = set(model.preprocessor.excluded) - {model.target, model.node}
    some = {name: values for name, values in chunk.columns.items() if name in left}
    return unused_words(unused_texts(some, (), whole=True))


def _sizes(prepared: Preprocessor, name: str) -> str:
    """How many levels a column has, and how many of them are inputs."""
    kept, beyond = len(prepared.levels[name]), prepared.not_kept.get(name, 0)
    levels = counted(kept + beyond, "level")
    return f"{levels}, of which the {kept} most frequent are inputs" if beyond else levels


def _of_groups(training: Training, chunk: Chunk, prepared: Preprocessor) -> list[str]:
    """What is a group, and what might be one."""
    found, name = list[str](), prepared.group
    if name is not None:
        n = len(set(chunk.columns[name].tolist()) - {None})
        own = "" if training.group else "--group COLUMN names another, "
        found.append(
            f"column {name!r}: {n:,} levels in the first rows, each a group with a place of its "
            f"own; {own}--drop {quote(name)} leaves it out"
        )
    if training.method == "gradient" or training.node is not None or training.group is not None:
        return found
    used = {name: chunk.columns[name] for name in prepared.numeric if name in chunk.columns}
    likely = like_identifiers(used, list(prepared.forms))
    return found + [
        f"column {name!r}: {n:,} whole numbers that look like names of things and are taken as a "
        f"quantity; --group {quote(name)} gives each a place of its own"
        for name, n in likely.items()
    ]


def known_classes(training: Training, y: Array) -> Array:
    """All labels there will be: those named, else those of the first rows."""
    labels = np.unique(y)
    if training.classes and is_text(y):
        return np.array(sorted(training.classes))
    if training.classes:
        try:
            labels = np.array(sorted(float(label) for label in training.classes))
        except ValueError:
            raise BadInput(
                f"the labels are numbers, but --classes are {listed(training.classes)}"
            ) from None
    if len(labels) < 2:
        raise BadInput(
            f"the first rows have one class only, {listed(labels)}: is the file sorted by it? "
            "Shuffle its rows, or name all with --classes"
        )
    # Files know only one kind of number; labels that are whole are better shown as such.
    whole = labels.dtype.kind == "f" and bool(
        ((labels == labels.round()) & (np.abs(labels) < 2**53)).all()
    )
    return labels.astype(np.int64) if whole else labels
