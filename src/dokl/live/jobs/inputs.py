"""What the nodes of a live network agree on before they start: inputs, labels, and the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.estimators.choices import SIGMAS, variant_of, width
from dokl.learning import classification
from dokl.learning.columns import LagColumns, LagPlan, Span, class_target, numeric_target
from dokl.learning.kernels import resolve as resolve_kernel
from dokl.learning.losses import resolve as resolve_loss
from dokl.learning.schedules import BUILTIN
from dokl.live.description import AgreedInputs, Model
from dokl.live.description.cells import form_entries, time_entries
from dokl.live.description.epochs import NUMBER, TIME, kinds_of
from dokl.network import agreed
from dokl.network.agreed import LearnedMap
from dokl.tables.jobs.start import Training, guesses, known_classes, start
from dokl.tables.models.series import MORE, LagRequest, Series, lines_of, planned_series
from dokl.tables.plan.pilots import MOST_INPUTS, sample_scales
from dokl.tables.readers import MISSING, Chunk, Options, open_table

SAMPLE_ROWS = 100_000
ANY = (-1e30, 1e30)  # of a number of which nothing is known
UNSEEN = 1000.0  # numbers that no sample shows are believed up to here: they come as they are


@dataclass(frozen=True)
class Sample:
    """Rows that settle scaling and labels; or, without any, the number d of inputs x1 ... xd, or
    the names of the input columns, NAME:time for one of times.

    reading: how to read the file, but for what is dropped. levels: of text columns, where the rows
    do not show them all. node_column: the one that names each row's node, which is no input. lags:
    earlier values that nodes make of their own rows.
    """

    path: str | None = None
    target: str | None = None
    task: str = "auto"
    classes: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    standardise: str = "fixed"
    d: int | None = None
    reading: Options = field(default_factory=Options)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    node_column: str | None = None
    lags: LagRequest = field(default_factory=LagRequest)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class AgreedRows:
    """Rows of the sample: inputs X (n, d), all zero where there is no sample; which ones have a
    target, (n,); these targets or labels y; and the names of their nodes, if the sample has them.
    """

    X: Array
    keep: Array
    y: Array | None = None
    nodes: Array | None = None


def agreed_inputs(
    sample: Sample, say: Callable[[str], None] | None = None
) -> tuple[AgreedInputs, AgreedRows]:
    """The section [inputs], and the rows of the sample.

    `say` receives the guesses about the sample, a line at a time.
    """
    if sample.path is None:
        return _without_sample(sample)
    if sample.columns:
        raise BadInput("the sample defines the columns: give --sample or --columns")
    if sample.d is not None:
        raise BadInput("the sample defines the number of inputs: give --sample or --inputs")
    chunk_rows = sample.reading.chunk or SAMPLE_ROWS
    reading = replace(sample.reading, drop=sample.drop, chunk=chunk_rows, quantity=sample.target)
    if sample.node_column is not None:
        reading = replace(reading, text=(*reading.text, sample.node_column))
    with open_table(sample.path, reading) as reader:
        chunk = reader.first
    if chunk.X is not None:
        raise BadInput(f"{sample.path}: LIBSVM rows have no named columns: take CSV, for example")
    return _from_rows(sample, chunk, say)


def _from_rows(
    sample: Sample, chunk: Chunk, say: Callable[[str], None] | None
) -> tuple[AgreedInputs, AgreedRows]:
    chunk, nodes = _without_nodes(sample, chunk)
    chunk, series = _with_lags(sample, chunk, nodes, say)
    plan, horizon = series.plan, series.horizon
    about = sample.target, sample.task, sample.classes, sample.levels
    training = Training(*about, standardise=sample.standardise, method="gradient")
    if horizon:  # then the target is an input, too
        training = replace(training, lags=LagRequest(horizon=horizon.rows or 1))
    planned = start(training, chunk)
    if say is not None:
        for line in guesses(training, chunk, planned):
            say(line)
    prepared, target = planned.preprocessor, planned.target
    assert prepared is not None
    assert target is not None
    if not prepared.frozen:
        prepared.learn_transform(chunk.columns)  # the means that stand for missing numbers
        prepared.freeze()
    labels: tuple[Any, ...] = ()
    if planned.classifying:
        y, keep = class_target(chunk.columns[target], target)
        labels = tuple(known_classes(training, y[keep]).tolist())
    else:
        y, keep = numeric_target(chunk.columns[target], target)
    agreed, used = prepared.agreed(), {target, *prepared.columns, plan.time}
    inputs = AgreedInputs(
        target=target,
        task="classification" if labels else "regression",
        labels=labels,
        numeric=prepared.numeric,
        levels=tuple(prepared.levels.items()),
        standardise=prepared.standardise,
        shift=tuple(agreed["shift"]),
        count=tuple(agreed["count"]),
        total=tuple(agreed["total"]),
        square=tuple(agreed["square"]),
        drop=sample.drop if nodes is None else (*sample.drop, str(sample.node_column)),
        target_range=() if labels else _widened_range(y[keep]),
        ranges=tuple(_widened_range(chunk.columns[name]) for name in prepared.numeric),
        times=time_entries(prepared.times),
        forms=form_entries({name: form for name, form in chunk.forms.items() if name in used}),
        missing=() if sample.reading.missing == MISSING else tuple(sample.reading.missing),
        lags=_lag_entries(plan),
        ordered_by=plan.time or "",
        horizon=str(horizon),
    )
    X = prepared.transform(chunk.columns)
    if horizon:
        X, keep = _ahead(series, chunk, nodes, X, keep)
    named = None if nodes is None else nodes[keep]
    return inputs, AgreedRows(X, keep, y[keep], named)


def _ahead(
    series: Series, chunk: Chunk, nodes: Array | None, X: Array, keep: Array
) -> tuple[Array, Array]:
    """For each row of the sample the inputs whose target it is, X (n, d), where there are any, and
    which rows these are.
    """
    columns = dict(chunk.columns)
    if series.plan.by is not None and nodes is not None:
        columns[series.plan.by] = nodes
    found = series.due(columns, X, np.full((len(X), MORE), np.nan))[0]
    there = np.asarray(~np.isnan(found).any(axis=1))
    return np.where(there[:, None], found, X), keep & there


def _without_nodes(sample: Sample, chunk: Chunk) -> tuple[Chunk, Array | None]:
    """The sample without the column that names nodes, and these names, (n,)."""
    name = sample.node_column
    if name is None:
        return chunk, None
    if name not in chunk.columns:
        raise UnknownName(f"column of {sample.path}", name, chunk.names)
    nodes = chunk.columns[name]
    nameless = [line for line, node in zip(chunk.lines, nodes, strict=True) if node is None]
    if nameless:
        raise BadInput(
            f"{sample.path}, line {nameless[0]}: column {name!r} names no node: fill it in, or "
            "remove the row"
        )
    columns = {key: values for key, values in chunk.columns.items() if key != name}
    names = tuple(key for key in chunk.names if key != name)
    return replace(chunk, names=names, columns=columns), nodes.astype(str)


def _with_lags(
    sample: Sample, chunk: Chunk, nodes: Array | None, say: Callable[[str], None] | None
) -> tuple[Chunk, Series]:
    """The sample with columns of earlier values, of each node its own, and which these are."""
    asked = sample.lags
    if not asked:
        return chunk, Series(LagColumns(LagPlan()))
    if sample.target is None:
        raise BadInput("lags need to know what is predicted: give --target")
    rows = chunk
    if nodes is not None:
        asked = replace(asked, by=sample.node_column)
        rows = replace(chunk, columns={**chunk.columns, str(sample.node_column): nodes})
    series = planned_series(asked, rows, sample.target)
    try:
        series.lags.check(rows.columns)
    except BadInput as error:
        raise BadInput(f"{sample.path}: {error}; --node-column distinguishes nodes") from None
    for line in lines_of(series, asked, rows, sample.target) if say is not None else ():
        assert say is not None
        say(line)
    if not series.plan.made and not series.horizon:
        return chunk, Series(LagColumns(LagPlan()))
    made, _ = series.lags.extend(rows.columns)
    names = (*chunk.names, *made)
    return replace(chunk, names=names, columns={**chunk.columns, **made}), series


def _widened_range(values: Array) -> tuple[float, float]:
    """The range of numbers (n,), ten times as wide on either side.

    Where they do not vary, a thousand times their size: a rain gauge may have stood at 0 all along.
    """
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    room = 10 * (high - low) if low < high else UNSEEN * max(1.0, abs(low))
    return float(f"{low - room:.3g}"), float(f"{high + room:.3g}")


def _without_sample(sample: Sample) -> tuple[AgreedInputs, AgreedRows]:
    if sample.columns:
        return _named_columns(sample)
    if sample.d is None:
        raise BadInput(
            "what are the inputs? Give --sample FILE, or --inputs and their number; with --share "
            "rows, --columns and their names"
        )
    classifying = sample.task == "classification" or bool(sample.classes)
    if sample.drop or (classifying and not sample.classes):
        missing = "--drop needs" if sample.drop else "labels are settled by --classes, or by"
        raise BadInput(f"{missing} a sample of rows: --sample FILE")
    labels = _plain_labels(sample.classes)
    made = AgreedInputs.plain(sample.d, sample.target or "y", labels)
    believed = (-UNSEEN, UNSEEN)
    made = replace(made, target_range=() if labels else believed, ranges=(believed,) * sample.d)
    return made, AgreedRows(np.zeros((2, sample.d)), np.zeros(2, bool))


def _named_columns(sample: Sample) -> tuple[AgreedInputs, AgreedRows]:
    """Columns by name, of which nobody has seen a row: numbers as they come, a missing one as 0."""
    if sample.d is not None:
        raise BadInput("--columns names the inputs: leave --inputs out")
    if sample.target is None:
        raise BadInput("which column is to be predicted? Give --target")
    classifying = sample.task == "classification" or bool(sample.classes)
    if classifying and not sample.classes:
        raise BadInput("labels are settled by --classes, or by a sample of rows: --sample FILE")
    numeric, times = _kinds(sample.columns, sample.levels)
    plan = _named_lags(sample, numeric, times)
    horizon = Span.of(sample.lags.horizon, least=0)
    numeric += [*([sample.target] if horizon else []), *plan.names]
    zeros = (0.0,) * len(numeric)
    labels = _plain_labels(sample.classes)
    made = AgreedInputs(
        target=sample.target,
        task="classification" if labels else "regression",
        labels=labels,
        numeric=tuple(numeric),
        levels=tuple(sample.levels.items()),
        times=_named_times(times),
        shift=zeros,
        count=zeros,
        total=zeros,
        square=zeros,
        drop=sample.drop,
        lags=_lag_entries(plan),
        ordered_by=plan.time or "",
        horizon=str(horizon),
    )
    return made, AgreedRows(np.zeros((2, 1)), np.zeros(2, bool))


def _kinds(columns: tuple[str, ...], levels: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Names of numbers, and of times, among columns as --columns has them; the rest have levels."""
    times, numeric = list[str](), list[str]()
    for given in columns:
        name, _, kind = given.partition(":")
        if kind not in ("", "time"):
            raise BadInput(
                f"--columns {given!r}: a column of numbers is NAME, one of times NAME:time, and "
                "one of text is NAME with its levels in --levels NAME=A,B"
            )
        if kind == "time":
            times.append(name)
        elif name not in levels:
            numeric.append(name)
    names = [given.partition(":")[0] for given in columns]
    unknown = [name for name in levels if name not in names]
    if unknown:
        raise UnknownName("column of --levels", unknown[0], names)
    return numeric, times


def _named_times(names: list[str]) -> tuple[Any, ...]:
    """Columns of times as [inputs] has them, where no row says which parts of them count."""
    return tuple((name, ("day", "week", "year"), 0.0) for name in names)


def changed_columns(
    inputs: AgreedInputs,
    add: tuple[str, ...],
    drop: tuple[str, ...],
    levels: Mapping[str, tuple[str, ...]],
) -> AgreedInputs:
    """The section [inputs] with further columns, of which nobody has seen a row, and without some,
    which may be there all the same: senders need not change at once.
    """
    made = dict(zip(inputs.lag_plan.names, inputs.lag_plan.made, strict=True))
    known = [*inputs.brought, *(name for name, _ in inputs.levels), *made]
    for name in drop:
        if name not in known or name == inputs.target:
            raise UnknownName("column", name, known)
    numeric, times = _kinds(add, levels)
    come = [*numeric, *times, *levels]
    if inputs.target in come or len(set(come)) < len(come) or set(come) & set(drop):
        raise BadInput("a column is added once, is not dropped as well, and is not the target")
    kinds = kinds_of(inputs)
    new_kinds = dict.fromkeys(numeric, NUMBER) | dict.fromkeys(times, TIME)
    again = [name for name, kind in new_kinds.items() if kinds.get(name) == kind]
    if again:
        raise BadInput(f"column {again[0]!r} is an input already, of the same kind")
    gone = {*drop, *come}  # those that come with another kind replace what was there
    gone |= {name for name, (_, column, _) in made.items() if column in gone}
    follows = bool(inputs.ahead) or any(name not in gone for name in made)
    if inputs.ordered_by in gone and follows:
        raise BadInput(
            f"column {inputs.ordered_by!r} orders the rows of lags or a horizon: it is needed"
        )
    scaled = [name for name in inputs.numeric if name not in gone]
    left = [inputs.numeric.index(name) for name in scaled]
    zeros = (0.0,) * len(numeric)
    since = len(inputs.numeric)  # behind numbers, times have their sums
    kept_times = tuple(each for each in inputs.times if each[0] not in gone)
    dated = [name for name, parts, _ in inputs.times if "since" in parts]
    left_dated = [since + i for i, name in enumerate(dated) if name not in gone]
    sums = {
        key: (*(values[i] for i in left), *zeros, *(values[i] for i in left_dated))
        for key in ("shift", "count", "total", "square")
        for values in [getattr(inputs, key)]
    }
    believed = (*(inputs.ranges[i] for i in left), *[ANY] * len(numeric)) if inputs.ranges else ()
    entries = [entry for entry, name in zip(inputs.lags, made, strict=True) if name not in gone]
    may_be_there = [name for name in (*inputs.drop, *drop) if name not in come and name not in made]
    return replace(
        inputs,
        numeric=(*scaled, *numeric),
        times=(*kept_times, *_named_times(times)),
        levels=(*(each for each in inputs.levels if each[0] not in gone), *levels.items()),
        ranges=believed,
        forms=tuple(each for each in inputs.forms if each[0] not in gone),
        lags=tuple(entries),
        ordered_by=inputs.ordered_by if follows else "",
        drop=tuple(dict.fromkeys(may_be_there)),
        shift=sums["shift"],
        count=sums["count"],
        total=sums["total"],
        square=sums["square"],
    )


def _named_lags(sample: Sample, numeric: list[str], times: list[str]) -> LagPlan:
    """Which earlier values nodes make, by the names of columns alone."""
    asked, target = sample.lags, sample.target
    assert target is not None
    if asked.auto:
        raise BadInput("--lags auto proposes lags by rows: give --sample FILE, or name them: --lag")
    if not asked:
        return LagPlan()
    time = asked.time or next(iter(times), None)
    if time is not None and time not in times:
        raise BadInput(f"--time {time}: name it as a column of times, --columns {time}:time")
    hidden: tuple[str, ...] = () if Span.of(asked.horizon, least=0) else (target,)
    plan = LagPlan.of(asked.lags, asked.rolling, asked.differences, time=time, hidden=hidden)
    for name in plan.columns:
        if name not in (*numeric, target):
            raise UnknownName("column of lags", name, [*numeric, target])
    hidden = tuple(name for name in plan.hidden if name in plan.columns)
    return replace(plan, hidden=hidden)


def _lag_entries(plan: LagPlan) -> tuple[tuple[str, str, str], ...]:
    """As the section [inputs] has them."""
    return tuple((kind, name, str(span)) for kind, name, span in plan.made)


def _plain_labels(classes: tuple[str, ...]) -> tuple[Any, ...]:
    """Labels as numbers where all are numbers, sorted."""
    labels = [_number(label) for label in classes]
    texts = any(isinstance(label, str) for label in labels)
    return tuple(sorted(set(classes))) if texts else tuple(sorted(set(labels)))


def _number(text: str) -> Any:
    """A label: a number where it looks like one."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


def chosen_model(given: Mapping[str, Any], inputs: AgreedInputs, rows: AgreedRows) -> Model:
    """The section [model] from options, None where one was not given, and the sample's rows.

    sigma "auto" is what `dokl train` takes, "scale" of the rows, sqrt(d/2) where there are none;
    "median" their median distance; "learned" one for each input, by the rows. variant "auto" is the
    best that kernel and D allow; "huber:2" a loss with its number.
    """
    values = {key: value for key, value in given.items() if value is not None}
    if values.get("share") == "rows":
        kept = {key: values[key] for key in ("seed", "own_components") if key in values}
        return Model(method="squares", share="rows", **kept)
    sigma = values.get("sigma", "auto")
    values["sigma"] = (
        tuple(float(f"{each:.4g}") for each in _learned(rows, inputs.classifying))
        if sigma == "learned"
        else _width(sigma, rows.X)
    )
    kernel = resolve_kernel(
        values.get("kernel", Model.kernel), values["sigma"], **values.get("parameters", {})
    )
    D = values.get("D", Model.D)
    values["variant"] = variant_of(values.get("variant", "auto"), kernel, D)
    loss, colon, number = values.get("loss", "").partition(":")
    steps = values.get("method", Model.method) == "gradient"
    values["loss"] = loss or ("logistic" if inputs.classifying and steps else "squared")
    if colon:
        values["loss_parameter"] = _loss_number(loss, number)
    model = Model(**values)
    if model.mu is None and "mu" in signature(BUILTIN[model.schedule]).parameters:
        model = replace(model, mu=0.5 if model.schedule == "normalised" else 1.0)  # to be seen
    return model


def learned_map(model: Model, inputs: AgreedInputs, rows: AgreedRows) -> LearnedMap:
    """The map that nodes agree on, by the rows of the sample: as many centres as [model] says."""
    if rows.y is None:
        raise BadInput("the map is learned from rows: give --sample FILE, or --map drawn")
    X, classes, d = rows.X[rows.keep], len(inputs.labels), rows.X.shape[1]
    Y = np.asarray(rows.y, np.float64)[:, None] if not classes else _class_targets(inputs, rows.y)
    nodes = None if rows.nodes is None else rows.nodes.tolist()
    most = model.D - 1 - d
    if most < 1:
        raise BadInput(f"--components {model.D}: {d} inputs need at least {d + 2}")
    return agreed.learned_map(X, Y, most, nodes=nodes, classes=classes, seed=model.seed)


def _class_targets(inputs: AgreedInputs, y: Array) -> Array:
    """Targets (n, m) of labels (n,)."""
    at = {label: number for number, label in enumerate(inputs.labels)}
    return classification.targets(np.array([at[label] for label in y.tolist()]), len(inputs.labels))


def _width(sigma: object, X: Array) -> float | tuple[float, ...]:
    """As a person would write it: it is in every copy of lab.toml."""
    if sigma in ("auto", *SIGMAS):
        found = width("scale" if sigma == "auto" else sigma, X)
        return float(f"{found:.3g}")
    try:
        widths = [width(float(each), X) for each in str(sigma).split(",")]
    except ValueError:
        raise BadInput(
            "sigma must be a number above 0, auto, scale or median; or one for each input: "
            f"learned, or numbers with commas; got {sigma!r}"
        ) from None
    return widths[0] if len(widths) == 1 else tuple(widths)


def _learned(rows: AgreedRows, classifying: bool) -> Array:
    """Length scales (d,) by the rows of the sample, as the experts learn them."""
    if rows.y is None:
        raise BadInput("sigma learned: length scales are learned from rows, so give --sample FILE")
    names, numbers = np.unique(rows.y, return_inverse=True)
    Y = classification.targets(numbers, len(names)) if classifying else rows.y[:, None]
    found = sample_scales(rows.X[rows.keep], Y, classifying)
    if found is None:
        d = rows.X.shape[1]
        raise BadInput(f"sigma learned is for at most {MOST_INPUTS} inputs, and there are {d}")
    return found.lengths


def _loss_number(loss: str, number: str) -> float:
    value = _number(number)
    if isinstance(value, str):
        raise BadInput(f"loss {loss}:{number}: {number!r} is not a number")
    resolve_loss(loss, p=value)
    return float(value)
