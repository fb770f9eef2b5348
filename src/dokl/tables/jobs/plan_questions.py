"""What `dokl plan` says first: questions that people ask of a file, answered by measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning import answers
from dokl.learning.columns import LagColumns, LagPlan, Span, is_text
from dokl.tables.jobs.lagged import in_order, proposed, times_with_dates
from dokl.tables.jobs.planning import FileSample, Sharing
from dokl.tables.plan import Plan
from dokl.tables.plan.planner import checked_sample
from dokl.tables.plan.questions import (
    GroupGain,
    LearningCurve,
    column_worth,
    group_column,
    group_gain,
    learning_curve,
)
from dokl.tables.readers import Chunk

WORTH_ROWS = 400  # by which columns are judged
MOST_NAMED = 6
HELD_BACK = 0.2  # the last rows, which tell whether lags help
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
    """What can be said of the sample, a question at a time."""
    return [*_of_rows(plan, accuracy), *_of_columns(plan, sample), _of_lags(sample, target),
            _of_sharing(plan, sample, ways)]  # fmt: skip


# -- rows ----------------------------------------------------------------------------------------
def _of_rows(plan: Plan, accuracy: float | None) -> Iterator[Reply]:
    pilot, classes = plan.pilot, plan.task == "classification"
    asked = "how many rows do I need?", "what will more rows buy?"
    if pilot is None or pilot.said is None:
        why = "unknown" if pilot is None else f"not tried: {pilot.refused}"
        yield Reply(asked[0], why, "", {})
        return
    curve = learning_curve(pilot.y, pilot.said, classes)
    if curve is None:
        yield Reply(asked[0], "too few rows to tell: 256 or more show how the error falls",
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
    y = answers.class_numbers(Y) if classes else Y[:, 0]
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
    if column is None or pilot is None or pilot.said is None:
        return Reply(asked, "nobody to share with: no column of text names groups of 40 rows or "
                     "more; --graph tries a network", "", {})  # fmt: skip
    rows = slice(pilot.rows)
    labels = sample.texts[column][rows]
    gain = group_gain(column, labels, sample.X[rows], pilot.y, pilot.said, classes)
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
