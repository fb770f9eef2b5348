"""The comparison as tables, a picture, and JSON."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dokl.paper.bench.compare import Comparison, Result
from dokl.paper.bench.engines import EngineRow
from dokl.paper.bench.own import Outcome, OwnComparison
from dokl.paper.bench.tasks import Task
from dokl.tables.report import COLOURS, facts, pyplot, save_picture, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADER = ["", "samples/s", "time/dokl", "online", "test", "model", "RSS +"]
FAMILY_COLOURS = {
    "dokl": "black",
    "sklearn": COLOURS[0],
    "exact": COLOURS[4],
    "river": COLOURS[1],
    "vw": COLOURS[2],
    "padasip": COLOURS[3],
}


def print_tables(comparisons: list[Comparison]) -> None:
    """One table a task."""
    for comparison in comparisons:
        task = comparison.task
        what = "accuracy in %" if task.classifying else "mean squared error"
        title = (
            f"{task.name}: {len(task.learn):,} rows to learn, {len(task.test):,} to test, "
            f"d = {task.d}, sigma = {task.sigma:.3g}; {what}"
        )
        table(title, HEADER, [_cells(task, result) for result in comparison.results])


def print_settings(comparisons: list[Comparison]) -> None:
    """Who was run how."""
    settings = {r.peer: f"{r.version}; {r.settings}" for c in comparisons for r in c.results}
    facts("settings", settings)
    about = {c.task.name: c.task.about for c in comparisons if c.task.about}
    if about:
        facts("data", about)


def _cells(task: Task, result: Result) -> list[str]:
    few = f" ({result.rows:,})" if result.rows < len(task.learn) else ""
    return [
        result.peer + few,
        f"{result.samples_per_second:,.0f}",
        _ratio(result.times_dokl),
        _score(task, result.prequential),
        _score(task, result.test),
        _bytes(result.model_bytes),
        _bytes(result.peak_rss_growth),
    ]


def _ratio(times: float) -> str:
    return f"{times:,.0f}x" if times >= 100 else f"{times:.2g}x"


def _score(task: Task, value: float | None) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f}" if task.classifying else f"{value:.3g}"


def _bytes(count: int | None) -> str:
    if count is None:
        return ""
    size, unit = (count / 1e6, "MB") if count >= 999_500 else (count / 1e3, "kB")
    return f"{size:.2g} {unit}" if size < 100 else f"{size:,.0f} {unit}"


def record(comparisons: list[Comparison], skipped: dict[str, str]) -> dict[str, Any]:
    """Everything, for programs; missing numbers are null."""
    data = [
        {
            "data": c.task.name,
            "rows": len(c.task.learn),
            "test_rows": len(c.task.test),
            "d": c.task.d,
            "sigma": c.task.sigma,
            "metric": c.task.metric,
            "about": c.task.about,
            "peers": [_finite(asdict(result)) for result in c.results],
            "skipped": c.skipped,
        }
        for c in comparisons
    ]
    return {"machine": machine(), "results": data, "skipped": skipped}


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    def plain(value: object) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {name: plain(value) for name, value in values.items()}


def machine() -> dict[str, Any]:
    """Where this ran: figures mean little without it."""
    packages = {name: version(name) for name in ("dokl", "numpy", "numba", "scikit-learn")}
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    where = {"cores": os.cpu_count(), "load": load, "system": platform.platform(terse=True)}
    return {**where, "python": platform.python_version(), **packages}


def print_own(own: OwnComparison) -> None:
    """A user's own file, the best first."""
    data = own.table
    what = f"{len(data.labels)} classes" if data.labels else "regression"
    title = (
        f"{data.name}: {data.n:,} rows in order, {data.d} inputs, {what}; {data.metric} after the "
        f"first {data.cuts[0]:,} rows, predicted before they were learned"
    )
    best = sorted(own.outcomes, key=lambda o: math.inf if o.error is None else o.error)
    header = ["", data.metric, "seconds", "rows/s", "memory +"]
    table(title, header, [_own_cells(own, outcome) for outcome in best])


def winners(own: OwnComparison) -> list[str]:
    """Who wins where: overall, in each fifth, and in speed; and where dokl stands. A line each."""
    done = [o for o in own.outcomes if o.error is not None and o.rows == own.table.n]
    if len(done) < 2:
        return []
    order = sorted(done, key=lambda o: _or_last(o.error))
    shown = [f"{o.title} {_own_error(own, o.error)}" for o in order[:3]]
    found = [f"smallest error: {shown[0]}, then {' and '.join(shown[1:])}"]
    parts = range(len(own.table.cuts))
    best = [min(done, key=lambda o: _or_last(o.errors[k])).title for k in parts]
    each = "; ".join(f"{k + 2}. {title}" for k, title in enumerate(best))
    found.append(f"smallest error in each fifth of the rows: {each}")
    fast = min(done, key=lambda o: o.seconds)
    found.append(f"fastest: {fast.title}, {fast.rows_per_second:,.0f} rows/s")
    ours = [o for o in order if o.name == "auto"]
    if ours and ours[0] is not order[0]:
        times = _or_last(ours[0].error) / max(1e-12, _or_last(order[0].error))
        place = 1 + order.index(ours[0])
        found.append(f"{ours[0].title} is no. {place} of {len(order)}: {times:.3g} times the error")
    return found


def _or_last(error: float | None) -> float:
    return math.inf if error is None or not math.isfinite(error) else error


def best_of_each(comparisons: list[Comparison]) -> list[str]:
    """Who wins on each task, in the score on other rows and in speed."""
    found = list[str]()
    for comparison in comparisons:
        task, tested = comparison.task, [r for r in comparison.results if r.test is not None]
        if len(tested) < 2:
            continue
        errors = {r.peer: _or_last(_as_error(task, r.test)) for r in tested}
        best = min(tested, key=lambda r: errors[r.peer])
        fast = max(comparison.results, key=lambda r: r.samples_per_second)
        score = _score(task, best.test)
        found.append(
            f"{task.name}: best on other rows {best.peer} ({score}), fastest {fast.peer} "
            f"({fast.samples_per_second:,.0f} samples/s)"
        )
    return found


def _as_error(task: Task, score: float | None) -> float | None:
    return 1.0 - score if task.classifying and score is not None else score


def _own_cells(own: OwnComparison, outcome: Outcome) -> list[str]:
    few = f" ({outcome.rows:,} rows)" if outcome.rows < own.table.n else ""
    speed = f"{outcome.seconds:,.3g}", f"{outcome.rows_per_second:,.0f}"
    cells = _own_error(own, outcome.error), *speed, _bytes(outcome.peak_growth)
    return [outcome.title + few, *cells]


def _own_error(own: OwnComparison, error: float | None) -> str:
    if error is None:
        return ""
    return f"{100 * error:.2f} %" if own.table.labels else f"{error:.4g}"


def print_own_settings(own: OwnComparison) -> None:
    """Who was run how."""
    facts("settings", {o.title: f"{o.version}; {o.settings}" for o in own.outcomes})


def own_record(own: OwnComparison) -> dict[str, Any]:
    """The same, for programs."""
    data = own.table
    results = [_finite({**asdict(o), "rows_per_second": o.rows_per_second}) for o in own.outcomes]
    about = {"data": data.name, "rows": data.n, "d": data.d, "classes": list(data.labels)}
    judged = {"metric": data.metric, "after": data.cuts[0], "results": results}
    judged["winners"] = winners(own)
    end = {"skipped": own.skipped, "interrupted": own.interrupted}
    return {"machine": machine(), **about, **judged, **end}


def print_engines(rows: Sequence[EngineRow]) -> None:
    """dokl's own engines, one table a problem."""
    for task in dict.fromkeys(row.task for row in rows):
        cells = [_engine_cells(row) for row in rows if row.task == task]
        table(task, ["", "seconds", "speed-up", "first call", "largest difference"], cells)
    notes = {row.engine: row.note for row in rows if row.note}
    if notes:
        facts("notes", notes)


def _engine_cells(row: EngineRow) -> list[str]:
    if row.seconds is None:
        return [row.engine, "", "", "", ""]
    return [
        f"{row.engine}, {row.dtype}",
        f"{row.seconds:.3g}",
        f"{row.speedup:.3g}x",
        f"{row.first_seconds:.3g}",
        f"{row.difference:.1e}",
    ]


def engines_record(rows: Sequence[EngineRow]) -> dict[str, Any]:
    """The same, for programs."""
    return {"machine": machine(), "engines": [_finite(asdict(row)) for row in rows]}


def draw(comparisons: list[Comparison], path: Path) -> Path:
    """Test score over samples per second, one panel a task: up and to the right is better."""
    plt = pyplot()
    columns = min(3, len(comparisons))
    lines = math.ceil(len(comparisons) / columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4.6 * columns, 3.9 * lines), squeeze=False, layout="constrained"
    )
    for ax, comparison in zip(axes.flat, comparisons, strict=False):
        _panel(ax, comparison)
    for ax in axes.flat[len(comparisons) :]:
        ax.set_axis_off()
    handles = {dots.get_label(): dots for ax in axes.flat for dots in ax.collections}
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False,
        fontsize=9,
    )  # fmt: skip
    return save_picture(figure, path)


def _panel(ax: Axes, comparison: Comparison) -> None:
    task, seen = comparison.task, dict.fromkeys(FAMILY_COLOURS, 0)
    for result in comparison.results:
        if result.test is None or not math.isfinite(result.test):
            continue
        family = "dokl" if result.peer.startswith("dokl") else result.family
        marker, seen[family] = "o^s"[seen[family]], seen[family] + 1
        ax.scatter(
            result.samples_per_second, 100 * result.test if task.classifying else result.test,
            s=46, color=FAMILY_COLOURS[family], marker=marker, label=result.peer, alpha=0.85,
        )  # fmt: skip
    ax.set_xscale("log")
    if not task.classifying:
        ax.set_yscale("log")
        ax.invert_yaxis()
    ax.set_title(f"{task.name} ({len(task.learn):,} rows)", fontsize=10)
    ax.set_xlabel("samples per second")
    ax.set_ylabel("test accuracy (%)" if task.classifying else "test MSE (better is up)")
    ax.grid(alpha=0.25, lw=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
