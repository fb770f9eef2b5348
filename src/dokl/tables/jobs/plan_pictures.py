"""A plan as pictures: what the experts did on the sample, what theory predicts, and inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.base.errors import BadInput
from dokl.tables.jobs.course import Course
from dokl.tables.jobs.pictures import draw_coverage, draw_relevance
from dokl.tables.jobs.planning import FileSample, Sharing
from dokl.tables.plan import Plan
from dokl.tables.report import COLOURS, panelled, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#555555"


def draw(plan: Plan, title: str, sample: FileSample | None = None, ways: Any = None) -> Any:
    """A Matplotlib figure with a panel for each thing that a plan has to show.

    sample: the rows it was made from, for the names of inputs; ways: to share, compared.
    """
    panels: list[Callable[[Any], None]] = []
    pilot = plan.pilot
    if pilot is not None and pilot.predicted is not None:
        course = Course(plan.task == "classification")
        course.add(pilot.y, pilot.predicted)
        panels.append(partial(_errors, course))
        if pilot.inside is not None:
            course.covered.add(np.asarray(pilot.inside, float))
            title = "targets inside their 90 % interval"
            panels.append(partial(draw_coverage, course, 90, title))
    panels += [partial(_curve, plan)] if plan.curve is not None else []
    shares = _shares(plan, sample)
    panels += [partial(draw_relevance, shares)] if shares else []
    panels += [partial(_ways, ways)] if ways is not None and ways.ways else []
    if not panels:
        raise BadInput(
            "there is nothing to draw: the experts were not tried, and the theory covers "
            "regression only"
        )
    return panelled(title, panels)


def save(
    plan: Plan, path: Path, title: str, sample: FileSample | None = None, ways: object = None
) -> Path:
    """Draw it into a PNG, SVG or PDF file."""
    return save_picture(draw(plan, title, sample, ways), path)


def _shares(plan: Plan, sample: FileSample | None) -> dict[str, float]:
    """How much the function bends along each input, as experts or learned lengths say."""
    pilot = plan.pilot
    bend = None if pilot is None else pilot.relevance
    if bend is None and plan.lengths is not None:
        bend = 1.0 / np.asarray(plan.lengths)
    if bend is None:
        return {}
    names = sample.names if sample is not None and sample.names else ()
    names = names or tuple(f"x{i + 1}" for i in range(len(bend)))
    return dict(zip(names, (bend / bend.sum()).tolist(), strict=True))


def _errors(course: Course, axes: Axes) -> None:
    rows, means = course.errors.means()
    shown = 100 * means if course.classifying else np.sqrt(means)
    axes.plot(rows, shown, color=COLOURS[0], lw=1.6, label="each row before it was learned")
    axes.set_title("experts on the sample", fontsize=10)
    axes.set_xlabel("rows")
    axes.set_ylabel("wrong labels (%)" if course.classifying else "root mean square error")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=8)


def _curve(plan: Plan, axes: Axes) -> None:
    """The predicted learning curve of the gradient method, together and alone."""
    assert plan.curve is not None
    curves = {"one node": plan.curve}
    if plan.curve_alone is not None:
        curves = {"together": plan.curve, "alone": plan.curve_alone}
    for colour, (label, curve) in zip(COLOURS, curves.items(), strict=False):
        axes.plot(np.arange(1, len(curve.mse) + 1), curve.decibels, color=colour, label=label)
    best = 10 * np.log10(plan.curve.j_opt)
    axes.axhline(best, color=GREY, lw=0.9, ls=":")
    axes.annotate("best vector", (1, best), (4, 4), textcoords="offset points", fontsize=8,
                  color=GREY)  # fmt: skip
    axes.set_xscale("log")
    axes.set_title("by gradients, as theory predicts", fontsize=10)
    axes.set_xlabel("samples per node")
    axes.set_ylabel("mean square error (dB)")
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=8)


def _ways(found: Sharing, axes: Axes) -> None:
    """Error against what a node sends, a dot for each way to share."""
    for i, way in enumerate(found.ways):
        label = f"{way.name}, every {way.every}" if way.every else way.name
        label += "" if way.fits else " (over budget)"
        colour, mark = COLOURS[i % len(COLOURS)], "os^v"[i // len(COLOURS) % 4]
        sent = [max(way.bytes_sent, 1.0)]
        axes.plot(sent, [way.error], ls="", label=label, color=colour, marker=mark)
    axes.set_xscale("log")
    axes.set_title("ways to share, tried on the sample", fontsize=10)
    axes.set_xlabel("bytes a node sends for each row")
    axes.set_ylabel("error")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=7)
