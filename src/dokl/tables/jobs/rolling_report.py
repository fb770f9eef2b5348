"""A backtest as tables, sentences and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.base.arrays import Array
from dokl.tables.jobs.pictures import GREY
from dokl.tables.jobs.rolling_origin import FOLLOWING, FROZEN, PEERS, Backtest, Forecasts
from dokl.tables.models.scores import LEVEL, Coverage, RegressionScore
from dokl.tables.report import COLOURS, panelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALL = "all"  # folds together
DISTANCES = 6  # parts of a fold, from its origin on
MOST_DRAWN = 240  # rows in the picture of intervals
FEW = 20  # rows of a month, or part, that count
ALIKE = 0.01  # a difference of errors that does not count
MUCH = 1.2  # times the error of the model that follows


# -- figures ---------------------------------------------------------------------------------------
def scores(backtest: Backtest) -> list[dict[str, Any]]:
    """Of each horizon and predictor the error in all folds together and in each, and the coverage
    of 90 % intervals where there are any; the smallest error first.
    """
    return [row for forecasts in backtest.forecasts for row in _scores(forecasts)]


def _scores(forecasts: Forecasts) -> Iterator[dict[str, Any]]:
    for fold in (ALL, *forecasts.folds):
        rows = np.ones(len(forecasts.y), bool) if fold == ALL else forecasts.fold == fold
        found = [_score(forecasts, name, rows) for name in forecasts.predicted]
        for each in sorted(found, key=lambda row: float(row["rmse"])):
            yield {"horizon": str(forecasts.horizon), "fold": fold, **each}


def _score(forecasts: Forecasts, name: str, rows: Array) -> dict[str, Any]:
    score, y = RegressionScore(), forecasts.y[rows]
    score.add(y, forecasts.predicted[name][rows])
    figures = {"model": name, **score.figures()}
    figures.pop("mse")
    covered: dict[str, Any] = {"coverage": None, "half_width": None}
    if name in forecasts.ends:
        coverage = Coverage()
        coverage.add(y, *(end[rows] for end in forecasts.ends[name]))
        covered = {key: coverage.figures()[key] for key in covered}
    return figures | covered


def error_by_distance(forecasts: Forecasts) -> dict[str, list[float]]:
    """Root mean square errors in equal parts of the folds, {predictor: errors}; `rows` has the
    middle of each part, in rows from the origin.
    """
    edges = np.linspace(0, forecasts.steps.max() + 1, DISTANCES + 1)
    part = np.digitize(forecasts.steps, edges) - 1
    parts = [k for k in range(DISTANCES) if (part == k).sum() >= FEW] or [0]
    found: dict[str, list[float]] = {"rows": [float(edges[k : k + 2].mean()) for k in parts]}
    for name, predicted in forecasts.predicted.items():
        squares = (predicted - forecasts.y) ** 2
        found[name] = [float(np.sqrt(squares[part == k].mean())) for k in parts]
    return found


def coverage_over_time(forecasts: Forecasts) -> tuple[str, dict[str, dict[str, float]]]:
    """How often 90 % intervals held the target, {month: {model: share}}: by month where there are
    at least three, else by fold; and which of the two.
    """
    times, unit = forecasts.times(forecasts.due), "fold"
    labels = forecasts.fold.astype(str)
    if times is not None:
        months = times.astype("datetime64[M]").astype(str)
        names, counts = np.unique(months, return_counts=True)
        if (counts >= FEW).sum() >= 3:
            unit, labels = "month", np.where(np.isin(months, names[counts >= FEW]), months, "")
    found: dict[str, dict[str, float]] = {}
    for label in [name for name in np.unique(labels).tolist() if name]:
        rows = labels == label
        y = forecasts.y[rows]
        found[label] = {
            name: float(np.mean((lower[rows] <= y) & (y <= upper[rows])))
            for name, (lower, upper) in forecasts.ends.items()
        }
    return unit, found


def record(backtest: Backtest) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "target": backtest.target,
        "scores": scores(backtest),
        "horizons": [_horizon(each) for each in backtest.forecasts],
        "words": words(backtest),
        "notices": backtest.notices,
        "skipped": backtest.skipped,
        "interrupted": backtest.interrupted,
    }


def _horizon(forecasts: Forecasts) -> dict[str, Any]:
    unit, covered = coverage_over_time(forecasts)
    pairs = forecasts.pairs
    origins = np.asarray(pairs.origins[:-1])[: forecasts.folds[-1]]
    times = forecasts.times(origins)
    return {
        "horizon": str(forecasts.horizon),
        "inputs": list(pairs.model.preprocessor.names_out) if pairs.model.preprocessor else [],
        "origins": [
            {"row": int(row) + 1, "time": None if times is None else str(times[k])}
            for k, row in enumerate(origins)
        ],
        "error_by_distance": error_by_distance(forecasts),
        f"coverage_by_{unit}": covered,
    }


# -- words -----------------------------------------------------------------------------------------
def words(backtest: Backtest) -> list[str]:
    """Conclusions from the figures."""
    return [line for forecasts in backtest.forecasts for line in _words(forecasts)]


def _words(forecasts: Forecasts) -> Iterator[str]:
    every = {row["model"]: row["rmse"] for row in _scores(forecasts) if row["fold"] == ALL}
    ahead = f"{forecasts.horizon.words} ahead: " if forecasts.horizon else ""
    others = {name: error for name, error in every.items() if name not in (FOLLOWING, FROZEN)}
    best = min(others, key=lambda name: float(others[name]))
    for name in (FROZEN, FOLLOWING):
        ratio = every[name] / max(others[best], 1e-300)
        if ratio > 1.0 + ALIKE:
            found = f"is behind {best}: its error is {100 * (ratio - 1):.0f} % larger"
        elif ratio < 1.0 - ALIKE:
            found = f"is better than the best of the others, {best}: its error is "
            found += f"{100 * (1 - ratio):.0f} % smaller"
        else:
            found = f"is level with the best of the others, {best}"
        more = "" if name == FROZEN or best not in PEERS else f" ({best} learns at origins only)"
        yield f"{ahead}{name} {found}{more}"
    if every[FROZEN] > MUCH * every[FOLLOWING] and _forgets(forecasts):
        yield (
            f"{ahead}frozen, the model does much worse than following, and some of its experts "
            "forget: those that remember all rows may be better frozen (-p experts=lasting)"
        )


def _forgets(forecasts: Forecasts) -> bool:
    return bool(getattr(forecasts.pairs.model.estimator, "experts", "one") == "all")


def score_table(backtest: Backtest) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of all folds together."""
    several = len(backtest.forecasts) > 1
    header = [*(["horizon"] if several else []), "", "rows", "rmse", "mae", "r2"]
    rows = [
        [*([row["horizon"]] if several else []), *_cells(row)]
        for row in scores(backtest)
        if row["fold"] == ALL
    ]
    return [*header, "in 90 %", "+-"], rows


def _cells(row: dict[str, Any]) -> list[str]:
    inside = "" if row["coverage"] is None else f"{100 * row['coverage']:.1f} %"
    width = "" if row["half_width"] is None else f"{row['half_width']:.4g}"
    r2 = "-" if row["r2"] is None else f"{row['r2']:.3f}"
    figures = [f"{row['rows']:,}", f"{row['rmse']:.4g}", f"{row['mae']:.4g}", r2]
    return [row["model"], *figures, inside, width]


def fold_table(forecasts: Forecasts) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the errors by fold."""
    every = list(_scores(forecasts))
    found = {(row["model"], row["fold"]): f"{row['rmse']:.4g}" for row in every}
    names = [row["model"] for row in every if row["fold"] == ALL]
    rows = [[name, *(found[name, fold] for fold in forecasts.folds)] for name in names]
    times = forecasts.times(np.asarray(forecasts.pairs.origins[:-1]))
    at = [
        f"{k}: row {forecasts.pairs.origins[k - 1] + 1:,}" if times is None
        else f"{k}: {str(times[k - 1])[:10]}"
        for k in forecasts.folds
    ]  # fmt: skip
    return ["rmse", *at], rows


# -- pictures --------------------------------------------------------------------------------------
def draw(backtest: Backtest, title: str) -> Any:
    """A Matplotlib figure: intervals of the last fold, errors, and coverage."""
    forecasts = backtest.forecasts[0]
    panels = [partial(_fan, forecasts)]
    several = len(backtest.forecasts) > 1
    panels.append(partial(_by_horizon, backtest) if several else partial(_by_distance, forecasts))
    panels.append(partial(_coverage, forecasts))
    return panelled(title, panels)


def _fan(forecasts: Forecasts, axes: Axes) -> None:
    """Intervals of the frozen model from the last origin on, of one group."""
    rows = np.flatnonzero(forecasts.fold == forecasts.folds[-1])
    offset, of_group = rows[0], ""
    groups = forecasts.pairs.groups
    if groups is not None:
        first = groups[forecasts.at[offset]]
        rows, of_group = rows[groups[forecasts.at[rows]] == first], f", {first}"
    rows = rows[:MOST_DRAWN]
    times = forecasts.times(forecasts.due[rows])
    x = forecasts.due[rows] + 1 if times is None else times
    for k, (level, (lower, upper)) in enumerate(sorted(forecasts.fan.items(), reverse=True), 1):
        low, high, tint = lower[rows - offset], upper[rows - offset], _tint(COLOURS[0], 1 - 0.84**k)
        axes.fill_between(x, low, high, color=tint, lw=0, label=f"{100 * level:g} %")
    axes.plot(x, forecasts.predicted[FROZEN][rows], color=COLOURS[0], lw=1.2, label="predicted")
    axes.plot(x, forecasts.y[rows], color=COLOURS[1], lw=1.0, label="observed")
    ahead = f", {forecasts.horizon.words} ahead" if forecasts.horizon else ""
    axes.set_title(f"frozen at the last origin: intervals{ahead}{of_group}", fontsize=10)
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=8, ncols=5)
    axes.margins(x=0.01)


def _tint(colour: str, share: float) -> tuple[float, ...]:
    """So much of a colour, and the rest white: the legend shows bands as they are."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(1 - share * (1 - part) for part in parts)


def _by_distance(forecasts: Forecasts, axes: Axes) -> None:
    found = error_by_distance(forecasts)
    at = found.pop("rows")
    _lines(axes, found, at)
    axes.set_title("error by distance from the origin", fontsize=10)
    axes.set_xlabel("rows since the origin")


def _by_horizon(backtest: Backtest, axes: Axes) -> None:
    every = [row for row in scores(backtest) if row["fold"] == ALL]
    horizons = [str(each.horizon) for each in backtest.forecasts]
    found: dict[str, list[float]] = {}
    for name in dict.fromkeys(row["model"] for row in every):
        errors = {row["horizon"]: row["rmse"] for row in every if row["model"] == name}
        found[name] = [errors.get(horizon, np.nan) for horizon in horizons]
    _lines(axes, found, list(range(len(horizons))))
    axes.set_xticks(range(len(horizons)), horizons)
    axes.set_title("error by horizon", fontsize=10)
    axes.set_xlabel("horizon")


def _lines(axes: Axes, found: dict[str, list[float]], at: list[Any]) -> None:
    """A line for each predictor; persistence in grey."""
    styles = iter(("-", "--", ":", "-.", (0, (1, 3))))
    plain = iter(COLOURS[2:4])
    for name, errors in found.items():
        ours = {FOLLOWING: COLOURS[0], FROZEN: COLOURS[1]}.get(name)
        known = ours or (next(plain, GREY) if name in PEERS else None)
        colour, width = known or GREY, 1.6 if known else 1.0
        style = "-" if known else next(styles, "-")
        axes.plot(at, errors, label=name, color=colour, lw=width, ls=style, marker="o", ms=3)
    axes.set_ylabel("root mean square error")
    axes.set_ylim(0, 1.35 * axes.get_ylim()[1])  # the legend stands above the lines
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")


def _coverage(forecasts: Forecasts, axes: Axes) -> None:
    unit, found = coverage_over_time(forecasts)
    labels = list(found)
    for name, colour in ((FOLLOWING, COLOURS[0]), (FROZEN, COLOURS[1])):
        shares = [100 * found[label][name] for label in labels]
        axes.plot(range(len(labels)), shares, color=colour, lw=1.6, marker="o", ms=3, label=name)
    axes.axhline(100 * LEVEL, color=GREY, lw=0.9, ls=":")
    few = max(1, -(-len(labels) // 8))
    axes.set_xticks(range(0, len(labels), few), labels[::few], fontsize=8)
    axes.set_title(f"targets inside their 90 % interval, by {unit}", fontsize=10)
    axes.set_ylabel("%")
    axes.set_ylim(min(60.0, axes.get_ylim()[0]), 102)
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=8)
