"""`dokl plan`: read a sample of a file, estimate, and answer the questions people have."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base import config
from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.random_numbers import generator
from dokl.learning import classification
from dokl.learning.columns import (
    LagColumns,
    LagPlan,
    Preprocessor,
    Span,
    check_some_left,
    class_target,
    guessed_task,
    is_text,
    numeric_target,
    unused_texts,
    unused_words,
)
from dokl.network import graphs
from dokl.tables.jobs.sources import Source
from dokl.tables.models.series import in_order, proposed, times_with_dates
from dokl.tables.plan import Budget, Plan, Way, compare
from dokl.tables.plan.planner import checked_sample
from dokl.tables.plan.questions import (
    GroupGain,
    LearningCurve,
    column_worth,
    group_column,
    group_gain,
    learning_curve,
)
from dokl.tables.plan.ways import VectorRules
from dokl.tables.readers import Chunk


@dataclass(frozen=True)
class FileSample:
    """Rows of a file: X (n, d) standardised, y (n,); why agents cannot read such a file, or
    nothing; names of the d inputs; what was guessed, a line each. owners: the column of each input;
    texts: {column: (n,)} of text; first: the first rows as they come, None of LIBSVM.
    """

    X: Any
    y: Array
    unfit: str = ""
    names: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    texts: Mapping[str, Array] = field(default_factory=dict)
    first: Chunk | None = None


def read_sample(
    source: Source, target: str | None, rows: int, say: Callable[[str], None] | None = None
) -> FileSample:
    """Up to `rows` rows of a file, in random order.

    The first rows that fit are taken; a stream has no other sample to offer. `say` receives what
    was guessed, a line at a time.
    """
    with source.open(target=target) as reader:
        chunks, n = [], 0
        for chunk in reader:
            chunks.append(chunk)
            n += chunk.n
            if n >= rows:
                break
    if chunks[0].X is not None:
        from scipy.sparse import vstack

        X, y = vstack([c.X for c in chunks]).tocsr(), np.concatenate([_own(c.y) for c in chunks])
        made = FileSample(X, y)
        unused: dict[str, str] = {}
    else:
        made, unused = _prepare(chunks, target)
    task = guessed_task(made.y, target or "y")[1]
    guesses = (*chunks[0].guesses, *unused_words(unused), task)
    if say is not None:
        for line in guesses:
            say(line)
    order = generator(0, "plan-rows").permutation(made.X.shape[0])[:rows]
    texts = {name: values[order] for name, values in made.texts.items()}
    how = {"unfit": _unfit(chunks[0]), "guesses": guesses, "texts": texts}
    return replace(made, X=made.X[order], y=made.y[order], **how)  # type: ignore[arg-type]


def _unfit(first: Chunk) -> str:
    """Why a network of agents cannot take this file as its sample; "" if it can."""
    if first.X is not None:
        return "agents need rows with named columns"
    return ""


def _own(y: Array | None) -> Array:
    assert y is not None
    return y


def _prepare(chunks: list[Any], target: str | None) -> tuple[FileSample, dict[str, str]]:
    """Rows in order, and columns that are not used with examples."""
    names = chunks[0].names
    if target is None or target not in names:
        raise BadInput(f"name the target column with --target: {', '.join(names)}")
    columns = {name: np.concatenate([c.columns[name] for c in chunks]) for name in names}
    unused = unused_texts(columns, [target])
    check_some_left([name for name in names if name != target], unused)
    prepared = Preprocessor.plan(columns, [target, *unused], "fixed", times=chunks[0].times)
    pick = class_target if is_text(columns[target]) else numeric_target
    y, keep = pick(columns[target], target)
    given = [name for name in names if name != target and name not in unused]
    owners = tuple(_owner(name, given) for name in prepared.names_out)
    texts = {k: columns[k].astype(str)[keep] for k in given if is_text(columns[k])}
    X = prepared.transform(columns)[keep]
    about = {"names": prepared.names_out, "owners": owners, "texts": texts, "first": chunks[0]}
    return FileSample(X, y[keep], **about), unused


def _owner(made: str, columns: Sequence[str]) -> str:
    """The column that an input was made of: the longest whose name it begins with."""
    return max((name for name in columns if made.startswith(name)), key=len, default=made)


def weights_of(graph: str | None, nodes: int, seed: int) -> Any:
    """Metropolis weights of a named topology, None for one node."""
    return None if graph is None else graphs.metropolis(graphs.build(graph, nodes, seed=seed))


def train_lines(plan: Plan, data: str, options: Sequence[str]) -> dict[str, str]:
    """The commands that apply a plan to a file, the advised one first, each after what it is.

    options: further words of the command: the target, the task, how to read the file.
    """
    start = shlex.join(["dokl", "train", data, *options, "--model", "model.dokl"])
    tuned = f"{start} --standardise fixed {plan.train_options}"
    if plan.method == "bank":
        return {"applied": start, "by gradients, where time or memory is short": tuned}
    return {"applied": tuned, "without settings, slower, and mostly better": start}


def network_line(
    plan: Plan, data: str, options: Sequence[str], graph: str | None, nodes: int, seed: int
) -> str:
    """The `dokl network new` that applies a plan to live nodes; without a graph, a small ring.

    options: as for `train_lines`, but for the task.
    """
    where = ["--graph", graph, "--nodes", str(nodes)] if graph else ["--nodes", "3"]
    options = ["--sample", data, *options, "--task", plan.task]
    start = shlex.join(["dokl", "network", "new", "network.toml", *where, *options])
    return f"{start} {plan.network_options} --seed {seed}"


@dataclass(frozen=True)
class Sharing:
    """Ways to share, compared on the sample; none, and why, where they could not be."""

    ways: list[Way]
    why: str = ""

    @property
    def best(self) -> Way | None:
        """The least error among those that the budget allows."""
        return min((w for w in self.ways if w.fits), key=lambda way: way.error, default=None)

    def table(self) -> list[list[str]]:
        """Way, rows between exchanges, error, bytes of a node and row, microseconds, and a mark."""
        return [
            [
                way.name,
                f"{way.every or 'never'}",
                *map(_figure, (way.error, way.bytes_sent, way.microseconds)),
                "best" if way is self.best else "" if way.fits else "over budget",
            ]
            for way in self.ways
        ]


def rules_of(options: Sequence[str]) -> VectorRules:
    """Rules for vectors, each given as "sending.key=value" or "mixing.key=value"."""
    return config.parse(VectorRules, config.changed({}, options))


def sharing(
    plan: Plan, sample: FileSample, weights: object, budget: Budget, seed: int,
    rules: VectorRules | None = None,
) -> Sharing:  # fmt: skip
    """Try ways to share on the sample."""
    try:
        return Sharing(compare(plan, sample.X, sample.y, weights, budget, seed, rules))
    except BadInput as error:
        return Sharing([], str(error))


def sharing_lines(found: Sharing, graph: str, nodes: int, seed: int) -> list[str]:
    """How to simulate each way, in Python; gradients' vectors are a live network's, too."""
    start = [
        "from dokl import *; from dokl.learning.kernels import *",
        f"weights = graphs.metropolis(graphs.build({graph!r}, {nodes}, seed={seed}))",
    ]
    maps = list(dict.fromkeys(way.map_python for way in found.ways if way.map_python))
    lines = [way.python for way in found.ways]
    for i, made in enumerate(maps):
        start.append(f"z{i} = {made}")
        lines = [line.replace(made, f"z{i}") for line in lines]
    return start + [f"{line}  # {way.name}" for line, way in zip(lines, found.ways, strict=True)]


def _figure(value: float) -> str:
    return f"{value:.4g}" if value < 1e4 else f"{value:,.0f}"


def rows(plan: Plan) -> list[list[str]]:
    """The plan as a table: what, value, what it rests on."""
    return [[line.name, shown(line.value), line.rests_on] for line in plan.lines]


def shown(value: object) -> str:
    """A value for people."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# -- questions and replies ------------------------------------------------------------------------
WORTH_ROWS = 400  # by which columns are judged
MOST_NAMED = 6
HELD_BACK = 0.2  # the last rows, which show whether lags help
HELP = 0.05  # of the error, that lags or sharing must save to be called a help
RIDGE = 1e-3


@dataclass(frozen=True)
class Reply:
    """A question, its answer in plain words, and what it rests on; figures: for programs."""

    question: str
    words: str
    rests_on: str
    figures: dict[str, Any]


def replies(
    plan: Plan, sample: FileSample, target: str | None, accuracy: float | None = None,
    ways: Sharing | None = None,
) -> list[Reply]:  # fmt: skip
    """The answers about the sample, a question at a time."""
    return [*_of_rows(plan, accuracy), *_of_columns(plan, sample), _of_lags(sample, target),
            _of_sharing(plan, sample, ways)]  # fmt: skip


# -- rows ----------------------------------------------------------------------------------------
def _of_rows(plan: Plan, accuracy: float | None) -> Iterator[Reply]:
    pilot, classes = plan.pilot, plan.task == "classification"
    asked = "how many rows do I need?", "what will more rows buy?"
    if pilot is None or pilot.predicted is None:
        why = "unknown" if pilot is None else f"not tried: {pilot.refused}"
        yield Reply(asked[0], why, "", {})
        return
    curve = learning_curve(pilot.y, pilot.predicted, classes)
    if curve is None:
        yield Reply(asked[0], "too few rows to decide: 256 or more show how the error falls",
                    f"{pilot.rows:,} rows", {})  # fmt: skip
        return
    now = curve.shown(curve.errors[-1])
    points = ", ".join(
        f"{_error(curve.shown(e), classes)} after {n:,.0f}"
        for n, e in zip(curve.rows, curve.errors, strict=True)
    )
    about = f"{pilot.rows:,} rows in random order, each predicted before it was learned"
    enough = curve.enough
    if enough is None or enough > 4 * curve.last:
        words = f"more than these: the error still falls after {curve.last:,}"
    else:
        words = f"about {_round(enough):,}; from then on twice as many buy less than 5 %"
    if accuracy is not None:
        words += "; " + _for_accuracy(curve, accuracy)
    law = {"floor": curve.floor, "scale": curve.scale, "power": curve.power}
    figures = {"enough": enough, "rows": curve.rows, "errors": curve.errors, "law": law}
    yield Reply(asked[0], words, f"{about}: error {points}", figures)
    twice, four = curve.at(2 * curve.last), curve.at(4 * curve.last)
    here = curve.at(curve.last)
    words = (
        f"twice as many: {_error(twice, classes)} ({_change(twice, here)}); four times: "
        f"{_error(four, classes)} ({_change(four, here)}); now {_error(now, classes)}"
    )
    kind = "share of wrong labels" if classes else "mean square error"
    rule = f"extrapolated: {kind} = c + a / n^{curve.power:g}, fitted to these points"
    least = f"c is {_error(curve.shown(curve.floor), classes)}" if curve.floor else "c is 0"
    yield Reply(asked[1], words, f"{rule}; {least}", {"twice": twice, "four_times": four})


def _for_accuracy(curve: LearningCurve, wanted: float) -> str:
    rows = curve.rows_for(wanted)
    return f"{wanted:g} is never reached" if rows is None else f"{wanted:g} takes {_round(rows):,}"


def _error(value: float, classes: bool) -> str:
    return f"{100 * value:.1f} %" if classes else f"{value:.3g}"


def _change(new: float, old: float) -> str:
    return f"{100 * (new / old - 1):+.0f} %" if old > 0 else "no change"


def _round(n: int) -> int:
    """To two digits."""
    digits = max(0, len(str(n)) - 2)
    return int(round(n, -digits))


# -- columns -------------------------------------------------------------------------------------
def _of_columns(plan: Plan, sample: FileSample) -> Iterator[Reply]:
    pilot, asked = plan.pilot, "which columns matter?"
    if pilot is None or pilot.model is None or not sample.owners:
        return
    classes = plan.task == "classification"
    X, Y, _ = checked_sample(sample.X, sample.y, plan.task)
    y = classification.class_numbers(Y) if classes else Y[:, 0]
    rows = slice(pilot.rows, pilot.rows + WORTH_ROWS)
    found = column_worth(pilot.model, X[rows], y[rows], sample.owners, classes)
    much = [each for each in found if each.matters]
    little = [each.name for each in found if not each.matters]
    words = ", ".join(
        f"{each.name} ({_error(each.shuffled, classes)} without)" for each in much[:MOST_NAMED]
    )
    words = words or "none: shuffling any of them changes nothing"
    words += f" and {len(much) - MOST_NAMED} more" if len(much) > MOST_NAMED else ""
    if little and much:
        some = ", ".join(little[:MOST_NAMED])
        words += f"; little: {some}{', ...' if len(little) > MOST_NAMED else ''}"
    error = _error(found[0].error, classes)
    rest = (
        f"error {error} on {len(y[rows]):,} rows not learned, and with a column's values shuffled"
    )
    yield Reply(asked, words, rest, {each.name: each.shuffled for each in found})


# -- lags ----------------------------------------------------------------------------------------
def _of_lags(sample: FileSample, target: str | None) -> Reply:
    asked = "would lags help?"
    chunk = sample.first
    if chunk is None or target is None or is_text(chunk.columns[target]):
        return Reply(asked, "not tried: lags are of columns of numbers, by name", "", {})
    time = next(iter(times_with_dates(chunk)), None)
    order = f"rows in the order of {time!r}" if time else "rows as they come"
    try:
        plan = LagPlan(time=time, hidden=(target,))
        chunk = in_order(plan, chunk)
        if chunk.n < 0.99 * sample.first.n:  # type: ignore[union-attr]
            return Reply(asked, f"not tried: rows are not in the order of {time!r}", "", {})
        made = proposed(plan, Span.of(0, least=0), chunk, target)
    except BadInput as error:
        return Reply(asked, f"not tried: {error}", "", {})
    if not made:
        return Reply(asked, "no: none explains the target beside the other columns", order, {})
    without, with_lags = _lag_errors(replace(plan, made=made), chunk, target)
    names = ", ".join(replace(plan, made=made).names)
    rest = f"{order}; least squares, error on the last fifth of {chunk.n:,} rows"
    figures = {"without": without, "with": with_lags, "lags": names}
    errors = f"{with_lags:.3g} with {names}, {without:.3g} without"
    if with_lags > (1 - HELP) * without:
        return Reply(asked, f"hardly: {errors}", rest, figures)
    where = "" if time else ", if rows are in the order of time"
    return Reply(asked, f"yes{where}: {errors}; dokl train --lags auto", rest, figures)


def _lag_errors(plan: LagPlan, chunk: Chunk, target: str) -> tuple[float, float]:
    """Root mean square errors of linear models on the last rows, without lags and with them."""
    y = np.asarray(chunk.columns[target], float)
    found, _ = LagColumns(plan).extend(chunk.columns)
    own = [
        np.asarray(values, float)
        for name, values in chunk.columns.items()
        if name != target and name not in chunk.times and not is_text(values)
    ]
    rows = np.isfinite(y)
    first = max((span.rows for _, _, span in plan.made), default=0)
    rows[: min(first, chunk.n // 4)] = False  # whose lags are not known
    return tuple(  # type: ignore[return-value]
        _late_error([each[rows] for each in columns], y[rows])
        for columns in (own, [*own, *found.values()])
    )


def _late_error(columns: list[Array], y: Array) -> float:
    """Of ridge regression on the first rows, on the last ones."""
    first = int(len(y) * (1 - HELD_BACK))
    A = np.column_stack([np.ones(len(y)), *(np.nan_to_num(_unit(c, first)) for c in columns)])
    G = A[:first].T @ A[:first]
    theta = np.linalg.solve(G + RIDGE * first * np.eye(len(G)), A[:first].T @ y[:first])
    return float(np.sqrt(np.mean((A[first:] @ theta - y[first:]) ** 2)))


def _unit(column: Array, first: int) -> Array:
    """By mean and spread of the first rows."""
    known = column[:first][np.isfinite(column[:first])]
    if not len(known):
        return np.zeros(len(column))
    return np.asarray((column - known.mean()) / (known.std() or 1.0))


# -- sharing -------------------------------------------------------------------------------------
def _of_sharing(plan: Plan, sample: FileSample, ways: Sharing | None) -> Reply:
    asked, classes = "what would sharing buy?", plan.task == "classification"
    if ways is not None:
        return _of_ways(asked, ways, classes)
    pilot = plan.pilot
    column = group_column(sample.texts, 0 if pilot is None else pilot.rows)
    if column is None or pilot is None or pilot.predicted is None:
        return Reply(asked, "no nodes to share with: no column of text names groups of 40 rows or "
                     "more; --graph tries a network", "", {})  # fmt: skip
    rows = slice(pilot.rows)
    labels = sample.texts[column][rows]
    gain = group_gain(column, labels, sample.X[rows], pilot.y, pilot.predicted, classes)
    if gain is None:
        return Reply(asked, f"too few rows for each {column}", "", {})
    return Reply(asked, _gain_words(gain, classes),
                 f"second half of the rows of {gain.groups} of them, {gain.rows:,} in all",
                 {"column": column, "alone": gain.alone, "together": gain.together})  # fmt: skip


def _gain_words(gain: GroupGain, classes: bool) -> str:
    errors = f"{_error(gain.together, classes)} together, {_error(gain.alone, classes)} alone"
    if gain.together < (1 - HELP) * gain.alone:
        return f"much to each {gain.column}: {errors}; keep all rows in one model, or one network"
    if gain.alone < (1 - HELP) * gain.together:
        return f"nothing to each {gain.column}: {errors}; a model for each is better"
    return f"little to each {gain.column}: {errors}"


def _of_ways(asked: str, ways: Sharing, classes: bool) -> Reply:
    best = ways.best
    alone = next((way for way in ways.ways if not way.every), None)
    if best is None or alone is None:
        return Reply(asked, f"not tried: {ways.why or 'nothing fits the budget'}", "", {})
    ours, theirs = (each.error if classes else each.error**0.5 for each in (best, alone))
    words = f"{_error(ours, classes)} by {best.name}, {_error(theirs, classes)} alone"
    figures = {"best": best.name, "together": ours, "alone": theirs}
    return Reply(asked, words, "rows of the sample, dealt out to the nodes", figures)
