"""A model as an ONNX graph, which runtimes in many languages and devices execute.

Raw rows go in: one input of shape (rows, 1) for each column, numbers with NaN where one is missing,
texts with "" there; a model without preprocessing has one input `X`, (rows, d). Out come

    prediction      (rows,), or (rows, outputs): numbers, or labels
    lower, upper    the ends of intervals, of models of experts and of networks of them
    std             standard deviations, of single models where they were asked for
    probabilities   (rows, classes), of classifiers that have them
    scores          as `decision_function` gives them, of classifiers

A column whose name is that of a result comes in as "column NAME".

The graph is written node by node, of operations that every runtime has: a product, sines, a product
for gradient methods; distances, exponentials, a product for experts.

>>> import dokl
>>> X = np.random.default_rng(0).normal(size=(300, 2))
>>> model = dokl.KernelRegressor(random_state=0).fit(X, X[:, 0] * X[:, 1])
>>> made = onnx_model(model)
>>> [node.op_type for node in made.graph.node]
['MatMul', 'Add', 'Sin', 'MatMul', 'Add', 'Reshape']
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dokl import __version__
from dokl.base.arrays import Array
from dokl.base.errors import MissingExtra, UnknownName
from dokl.base.files import PathLike, atomic_write
from dokl.learning.calibration import FARTHEST, SMOOTH
from dokl.learning.columns.times import DAY
from dokl.learning.experts.folding import Folded, Part, Waves
from dokl.learning.experts.ranks import Ranks
from dokl.learning.experts.scaling import CLIP, limits
from dokl.tables.export.formula import (
    Formula,
    LabelAnswer,
    NumberAnswer,
    RawInputs,
    Spread,
    formula_of,
    whitening,
)

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    raise MissingExtra("dokl.tables.export.onnx", "onnx") from None

PRECISIONS = {"double": np.float64, "float": np.float32}
# Old enough for runtimes of 2022, new enough for everything used here.
OPSET, ML_OPSET, FORMAT = 15, 2, 8

__all__ = ["onnx_model", "write_onnx"]


def write_onnx(
    model: object,
    path: PathLike,
    *,
    precision: str = "double",
    node: str | None = None,
    level: float = 0.9,
    std: bool = False,
) -> Path:
    """Write a fitted model, or estimator, to an ONNX file, whole or not at all.

    precision: of what is computed, "double" or "float". node: of a network, the one that predicts;
    else what the network predicts for a node that it has not seen. level: the share of targets that
    intervals hold. std: with the experts' matrices, for standard deviations and intervals that
    differ from row to row; without, intervals have one width and the file is small. Of networks
    there are no matrices in it.
    """
    made = onnx_model(model, precision=precision, node=node, level=level, std=std)
    with atomic_write(path) as file:
        file.write(made.SerializeToString())
    return Path(path)


def onnx_model(
    model: object,
    *,
    precision: str = "double",
    node: str | None = None,
    level: float = 0.9,
    std: bool = False,
) -> Any:
    """The `onnx.ModelProto` that `write_onnx` writes."""
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    formula = formula_of(model, node=node, level=level, std=std)
    graph = Graph(PRECISIONS[precision])
    x = graph.entry("X", formula.d) if formula.raw is None else inputs(graph, formula.raw)
    core, spread = formula.core, None
    if isinstance(core, Waves):
        scores = _waves(graph, core, x)
    elif formula.spread is not None:
        scores, spread = _with_spread(graph, _only_bank(core), formula.spread, x)
    else:
        scores = _add(graph, [_part(graph, part, x) for part in core])
    if isinstance(formula.answer, LabelAnswer):
        _labels(graph, formula.answer, scores, formula.m)
    else:
        _numbers(graph, formula.answer, scores, spread, formula.m)
    return graph.finished(formula)


class Graph:
    """Nodes and constants as they come; every method returns the name of what it made."""

    def __init__(self, kind: Any) -> None:
        self.kind = np.dtype(kind)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def entry(self, name: str, width: int, text: bool = False, exact: bool = False) -> str:
        """An input of the graph, (rows, width); exact: in double whatever the precision."""
        kind = TensorProto.STRING if text else self.type_of(np.dtype(float) if exact else self.kind)
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def constant(self, values: Any, kind: Any = None) -> str:
        """An array that the graph holds."""
        array = np.ascontiguousarray(values, kind or self.kind)
        name = f"dokl.c{len(self.constants)}"
        if array.dtype.kind == "U":
            array = array.astype(object)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, domain: str = "", **how: object) -> str:
        """One operation with one result."""
        name = f"dokl.t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **how))
        return name

    def give(self, name: str, made: str, shape: list[Any], kind: Any = None) -> None:
        """Let a result be an output of this shape, where a text stands for the rows there are."""
        whole = [-1 if isinstance(size, str) else size for size in shape]
        to = self.constant(np.array(whole, np.int64), np.int64)
        self.nodes.append(helper.make_node("Reshape", [made, to], [name]))
        kind = self.type_of(self.kind if kind is None else np.dtype(kind))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def type_of(self, kind: Any) -> Any:
        """ONNX's number of a type."""
        return TensorProto.STRING if kind.kind == "U" else helper.np_dtype_to_tensor_dtype(kind)

    def finished(self, formula: Formula) -> Any:
        """The model, checked."""
        parts = self.nodes, "dokl", self.inputs, self.outputs, self.constants
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        made = helper.make_model(
            helper.make_graph(*parts), opset_imports=opsets, ir_version=FORMAT,
            producer_name="dokl", producer_version=__version__,
        )  # fmt: skip
        helper.set_model_props(made, formula.about)
        onnx.checker.check_model(made)
        return made


# -- scores ------------------------------------------------------------------------------------
def _waves(graph: Graph, core: Waves, x: str) -> str:
    """(rows, m). cos(a) = sin(a + pi/2): runtimes have the sine of doubles, not all the cosine."""
    quarter = np.full(core.omega.shape[1], 0.5 * math.pi)
    if core.phases is None:
        omega, phases = np.hstack([core.omega] * 2), np.concatenate([quarter, 0.0 * quarter])
    else:
        omega, phases = core.omega, core.phases + quarter
    angles = graph.op("MatMul", x, graph.constant(omega))
    z = graph.op("Sin", graph.op("Add", angles, graph.constant(phases)))
    f = graph.op("MatMul", z, graph.constant(core.scale * core.theta.T))
    return graph.op("Add", f, graph.constant(core.constant))


def _only_bank(core: tuple[Part, ...]) -> Folded:
    """The one part of a single learner."""
    (part,) = core
    assert isinstance(part, Folded)
    return part


def _part(graph: Graph, core: Part, x: str) -> str:
    """(rows, m), to be added to other parts."""
    return _waves(graph, core, x) if isinstance(core, Waves) else _bumps(graph, core, x)


def _bumps(graph: Graph, core: Folded, x: str) -> str:
    """(rows, m)."""
    rows = _standardise(graph, core, x)
    total = graph.op("MatMul", rows, graph.constant(core.slope.T))
    total = graph.op("Add", total, graph.constant(core.base))
    ranked = rows if core.ranks is None else _rank(graph, core.ranks, rows)
    for each in core.bumps:
        own = ranked if each.ranked else rows
        near = _kernel(graph, each.kernel, own, each.lengths, each.centres, each.apart)
        total = graph.op("Add", total, graph.op("MatMul", near, graph.constant(each.heights.T)))
        if each.slope is not None:
            line = graph.op("MatMul", own, graph.constant(each.slope.T))
            total = graph.op("Add", total, line)
    return _outward(graph, core, total)


def _standardise(graph: Graph, core: Folded, x: str) -> str:
    rows = graph.op("Sub", x, graph.constant(core.inputs.centre))
    rows = graph.op("Div", rows, graph.constant(core.inputs.size))
    if core.extent is None:
        return graph.op("Clip", rows, _number(graph, -CLIP), _number(graph, CLIP))
    most = np.asarray(limits(core.extent))
    return graph.op("Max", graph.op("Min", rows, graph.constant(most)), graph.constant(-most))


def _rank(graph: Graph, ranks: Ranks, rows: str) -> str:
    """Standardised rows by their ranks: how far they are between values, added up."""
    d = ranks.values.shape[1]
    each = graph.op("Reshape", rows, graph.constant(np.array([-1, d, 1]), np.int64))
    off = graph.op("Sub", each, graph.constant(ranks.values[:-1].T))
    share = graph.op("Div", off, graph.constant(np.diff(ranks.values, axis=0).T))
    share = graph.op("Clip", share, _number(graph, 0), _number(graph, 1))
    steps = graph.op("Mul", share, graph.constant(np.diff(ranks.scores, axis=0).T))
    total = graph.op("ReduceSum", steps, graph.constant(np.array([2]), np.int64), keepdims=0)
    return graph.op("Add", total, graph.constant(ranks.scores[0]))


def _outward(graph: Graph, core: Folded, f: str) -> str:
    f = graph.op("Mul", f, graph.constant(core.targets.size))
    return graph.op("Add", f, graph.constant(core.targets.centre))


def _kernel(
    graph: Graph, kernel: str, rows: str, lengths: Array, centres: Array, further: Array
) -> str:
    """k(U, x): (rows, M) for standardised rows; further: (M,) added to squared distances."""
    U = graph.op("Div", rows, graph.constant(lengths))
    norms = graph.op("MatMul", graph.op("Mul", U, U), graph.constant(np.ones((len(lengths), 1))))
    apart = graph.op("MatMul", U, graph.constant(-2.0 * centres.T))
    apart = graph.op("Add", graph.op("Add", apart, norms), graph.constant((centres**2).sum(axis=1)))
    apart = graph.op("Max", apart, graph.constant(np.array(0.0)))
    if further.any():
        apart = graph.op("Add", apart, graph.constant(further))
    if kernel == "gaussian":
        return graph.op("Exp", graph.op("Mul", apart, graph.constant(np.array(-0.5))))
    root = graph.op("Sqrt", graph.op("Mul", apart, graph.constant(np.array(3.0))))
    fall = graph.op("Exp", graph.op("Neg", root))
    return graph.op("Mul", graph.op("Add", root, graph.constant(np.array(1.0))), fall)


def _with_spread(graph: Graph, core: Folded, spread: Spread, x: str) -> tuple[str, str]:
    """Means and standard deviations, (rows, m) each: those of the experts, and how they differ."""
    rows, d = _standardise(graph, core, x), core.slope.shape[1]
    ranked = rows if core.ranks is None else _rank(graph, core.ranks, rows)
    nothing = graph.op("Mul", _columns(graph, rows, 1), _number(graph, 0))
    ones = graph.op("Add", nothing, _number(graph, 1))
    whole, means, variances = {}, [], []
    for key, made in spread.maps.items():
        of_map = [each for each in spread.experts if each.features == key]
        M = max(len(each.root) for each in of_map) - d - 1
        slope = np.asarray(made.scales.linear / math.sqrt(d))
        own = rows if made.ranks is None else ranked
        parts = [ones, graph.op("Mul", own, graph.constant(slope))]
        if M > 0:
            near = _kernel(
                graph, made.kernel, own, made.scales.lengths, made.centres[:M], np.zeros(M)
            )
            parts.append(graph.op("MatMul", near, graph.constant(whitening(made, M))))
        whole[key] = graph.op("Concat", *parts, axis=1)
    for each in spread.experts:
        Z = _columns(graph, whole[each.features], len(each.root))
        f = graph.op("MatMul", Z, graph.constant(each.theta.T))
        means.append(_outward(graph, core, f))
        g = graph.op("MatMul", Z, graph.constant(each.root))
        q = graph.op("MatMul", graph.op("Mul", g, g), graph.constant(np.ones((len(each.root), 1))))
        one_more = graph.op("Add", q, _number(graph, 1))
        variances.append(graph.op("Mul", one_more, graph.constant(each.noise)))
    weights = [each.weight for each in spread.experts]
    mean = _mix(graph, weights, means)
    for i, f in enumerate(means):
        off = graph.op("Sub", f, mean)
        variances[i] = graph.op("Add", variances[i], graph.op("Mul", off, off))
    return mean, graph.op("Sqrt", _mix(graph, weights, variances))


def _mix(graph: Graph, weights: list[float], parts: list[str]) -> str:
    """Parts, weighed and added."""
    weighed = [
        graph.op("Mul", part, _number(graph, w)) for w, part in zip(weights, parts, strict=True)
    ]
    return _add(graph, weighed)


def _add(graph: Graph, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else graph.op("Sum", *parts)


def _number(graph: Graph, value: float) -> str:
    return graph.constant(np.array(float(value)))


def _columns(graph: Graph, rows: str, width: int) -> str:
    """The first ones."""
    numbers = (graph.constant([value], np.int64) for value in (0, width, 1))
    return graph.op("Slice", rows, *numbers)


# -- answers -----------------------------------------------------------------------------------
def _numbers(graph: Graph, answer: NumberAnswer, f: str, std: str | None, m: int) -> None:
    shape = ["rows"] if answer.flat else ["rows", m]
    graph.give("prediction", f, shape)
    if answer.width is None:
        return
    half = graph.constant(answer.width)
    half = half if std is None else graph.op("Mul", std, half)
    graph.give("lower", graph.op("Sub", f, half), shape)
    graph.give("upper", graph.op("Add", f, half), shape)
    if std is not None:
        graph.give("std", std, shape)


def _labels(graph: Graph, answer: LabelAnswer, scores: str, m: int) -> None:
    classes, levels = len(answer.labels), scores
    probabilities = None
    if answer.probability == "calibrated":
        levels = _levels(graph, answer, scores, m)
        probabilities = graph.op("Softmax", levels, axis=1)
    elif answer.probability == "logistic":
        probabilities = _logistic(graph, scores, classes)
    if answer.probability != "calibrated" and m == 1:
        second = graph.op("Greater", scores, _number(graph, 0))
        number = graph.op("Cast", second, to=TensorProto.INT64)
    else:
        number = graph.op("ArgMax", levels, axis=1, keepdims=1)
    labels = plain_labels(answer.labels)
    made = graph.op("Gather", graph.constant(labels, labels.dtype), number, axis=0)
    graph.give("prediction", made, ["rows"], labels.dtype)
    if probabilities is not None:
        graph.give("probabilities", probabilities, ["rows", classes])
    if answer.probability == "calibrated":
        scores = _odds(graph, levels) if classes == 2 else levels
    graph.give("scores", scores, ["rows"] if classes == 2 else ["rows", classes])


def _odds(graph: Graph, levels: str) -> str:
    """The second level less the first."""
    return graph.op("MatMul", levels, graph.constant(np.array([[-1.0], [1.0]])))


def plain_labels(labels: Array) -> Array:
    """Labels as a type that others have: whole numbers, doubles, truth values or texts."""
    kinds = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_}
    kind = kinds.get(labels.dtype.kind)
    return np.array([str(label) for label in labels]) if kind is None else labels.astype(kind)


def _levels(graph: Graph, answer: LabelAnswer, scores: str, m: int) -> str:
    """Log probabilities but for a constant, by the online calibration: (rows, classes)."""
    assert answer.slopes is not None
    assert answer.bias is not None
    if m == 1:
        scores = graph.op("Concat", graph.op("Neg", scores), scores, axis=1)
    near = graph.op("Clip", scores, _number(graph, -FARTHEST), _number(graph, FARTHEST))
    share = graph.op("Mul", graph.op("Add", near, _number(graph, 1)), _number(graph, 0.5))
    smooth = graph.op("Add", graph.op("Mul", share, share), _number(graph, 4.0 * SMOOTH**2))
    both = graph.op("Add", share, graph.op("Sqrt", smooth))
    logs = graph.op("Log", graph.op("Mul", both, _number(graph, 0.5)))
    first = graph.op("Mul", near, _number(graph, answer.slopes[0]))
    second = graph.op("Mul", logs, _number(graph, answer.slopes[1]))
    return graph.op("Add", graph.op("Add", first, second), graph.constant(answer.bias))


def _logistic(graph: Graph, scores: str, classes: int) -> str:
    """Two classes: the logistic function; more: one against the rest, scaled to sum to one."""
    positive = graph.op("Sigmoid", scores)
    if classes == 2:
        return graph.op("Concat", graph.op("Sub", _number(graph, 1), positive), positive, axis=1)
    total = graph.op("MatMul", positive, graph.constant(np.ones((classes, 1))))
    some = graph.op("Greater", total, _number(graph, 0))
    share = graph.op("Div", positive, total)
    return graph.op("Where", some, share, _number(graph, 1 / classes))


# -- inputs of raw columns ------------------------------------------------------------------------
RESULTS = ("prediction", "lower", "upper", "std", "probabilities", "scores")


def inputs(graph: Graph, raw: RawInputs) -> str:
    """x: (rows, d). Entries in the order of the columns, x as the model has it."""
    names = {
        name: graph.entry(_entry_name(name), 1, text=name in raw.levels, exact=name in raw.times)
        for name in raw.columns
    }
    numbers = [names[name] for name in raw.numeric]
    numbers += [_days(graph, names[name], raw.times[name].start) for name in raw.since]
    parts = [_scale(graph, raw, numbers)] if numbers else []
    for name, times in raw.times.items():
        parts += [_circle(graph, names[name], seconds) for seconds in times.rounds]
    for name, levels in raw.levels.items():
        if levels:
            parts.append(_one_hot(graph, names[name], levels))
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=1)


def _entry_name(name: str) -> str:
    return f"column {name}" if name in RESULTS or name.startswith("dokl.") else name


def _scale(graph: Graph, raw: RawInputs, columns: list[str]) -> str:
    together = columns[0] if len(columns) == 1 else graph.op("Concat", *columns, axis=1)
    scaled = graph.op("Sub", together, graph.constant(raw.centre))
    scaled = graph.op("Mul", scaled, graph.constant(raw.factor))
    missing = graph.op("IsNaN", together)
    return graph.op("Where", missing, graph.constant(raw.fill), scaled)


def _days(graph: Graph, seconds: str, start: float) -> str:
    """Days since the start; counted in double, since seconds have ten digits."""
    since = graph.op("Sub", seconds, graph.constant(start, np.float64))
    days = graph.op("Div", since, graph.constant(DAY, np.float64))
    return graph.op("Cast", days, to=graph.type_of(graph.kind))


def _circle(graph: Graph, seconds: str, around: float) -> str:
    """(rows, 2): cos and sin of the place on a circle of n seconds; 0 where it is missing."""
    turns = graph.op("Div", seconds, graph.constant(around, np.float64))
    turns = graph.op("Sub", turns, graph.op("Floor", turns))
    angles = graph.op("Mul", turns, graph.constant(2.0 * math.pi, np.float64))
    ahead = graph.op("Add", angles, graph.constant([[0.5 * math.pi, 0.0]], np.float64))
    both = graph.op("Where", graph.op("IsNaN", ahead), graph.constant(0.0, np.float64),
                    graph.op("Sin", ahead))  # fmt: skip
    return graph.op("Cast", both, to=graph.type_of(graph.kind))


def _one_hot(graph: Graph, text: str, levels: tuple[str, ...]) -> str:
    hot = graph.op(
        "OneHotEncoder", text, domain="ai.onnx.ml", cats_strings=list(levels), zeros=1
    )  # (rows, 1, levels), of float32
    flat = graph.op("Reshape", hot, graph.constant([-1, len(levels)], np.int64))
    return graph.op("Cast", flat, to=graph.type_of(graph.kind))
