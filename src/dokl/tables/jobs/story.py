"""A training or an evaluation as pictures: targets beside predictions, error, coverage,
earlier values beside the model, relevance of inputs, and nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dokl.estimators.worth import SharingWorth
from dokl.tables.jobs.curves import Course
from dokl.tables.jobs.pair_pictures import (
    draw_calibration,
    draw_confusion,
    draw_pairs,
    draw_residuals,
)
from dokl.tables.jobs.pairs import PredictionPairs
from dokl.tables.jobs.persistence import Persistence
from dokl.tables.models.scores import Coverage, Score
from dokl.tables.report import COLOURS, panelled, save_picture

MOST_INPUTS, MOST_NODES = 12, 24
GREY = "#555555"


@dataclass(frozen=True)
class Story:
    """What there is to draw of a run. relevance: {input: share}; frozen: the row of a snapshot and
    its error; coverage: of intervals, None where there are none; sharing: what it is worth to the
    nodes of a network, and who is alike; held: rows that were held out, and the error on them;
    persistence: what earlier values did.
    """

    title: str
    score: Score
    course: Course
    relevance: dict[str, float] = field(default_factory=dict)
    coverage: Coverage | None = None
    frozen: tuple[int, float] | None = None
    prequential: bool = True
    sharing: SharingWorth | None = None
    held: tuple[Course, float] | None = None
    persistence: Persistence | None = None

    @property
    def nodes(self) -> dict[str, Score]:
        """Scores of nodes, on held-out rows where there are some."""
        return (self.course if self.held is None else self.held[0]).nodes

    @property
    def rows(self) -> str:
        """Which rows targets are compared on."""
        if self.held is not None:
            return "held-out rows"
        return "each row before it was learned" if self.prequential else "rows of the file"


def error_of(score: Score) -> float:
    """The error that is drawn: the share of wrong labels, or the root mean square."""
    figures = score.figures()
    return float(figures["error"] if "error" in figures else figures.get("rmse", np.nan))


def draw(story: Story) -> Any:
    """A Matplotlib figure with a panel for each thing there is to see."""
    panels = _of_pairs(story)
    panels += [_error]
    if story.coverage is not None and story.coverage.n and len(story.course.covered.done) > 1:
        panels.append(_coverage)
    panels += [_persistence] if story.persistence and story.persistence.figures() else []
    panels += [_relevance] if story.relevance else []
    panels += [_nodes] if story.nodes else []
    panels += [_places] if story.sharing is not None and story.sharing.places is not None else []
    if len(panels) % 2:  # the first one is wide, which suits a curve
        panels.remove(_error)
        panels = [_error, *panels]
    return panelled(story.title, [partial(panel, story) for panel in panels])


def _of_pairs(story: Story) -> list[Callable[[Story, Any], None]]:
    """What there is to see of targets and predictions."""
    pairs = _pairs(story)
    if not pairs.classifying:
        return [_scatter, _residuals] if len(pairs.rows) > 1 else []
    found = [_confusion] if pairs.taken_for else []
    return found + ([_calibration] if pairs.calibration[:, 0].any() else [])


def _pairs(story: Story) -> PredictionPairs:
    return (story.course if story.held is None else story.held[0]).pairs


def save(story: Story, path: Path) -> Path:
    """Draw it into a PNG, SVG or PDF file."""
    return save_picture(draw(story), path)


def _scatter(story: Story, axes: Any) -> None:
    draw_pairs(_pairs(story), story.rows, axes)


def _residuals(story: Story, axes: Any) -> None:
    draw_residuals(_pairs(story), story.rows, axes)


def _confusion(story: Story, axes: Any) -> None:
    draw_confusion(_pairs(story), story.rows, axes)


def _calibration(story: Story, axes: Any) -> None:
    draw_calibration(_pairs(story), story.rows, axes)


def _persistence(story: Story, axes: Any) -> None:
    assert story.persistence is not None
    found, error = story.persistence.figures() or {}, story.persistence.error
    scale, at = 100 if story.persistence.classifying else 1, np.arange(len(found))
    for shift, key, colour, label in (
        (0.2, "model", COLOURS[0], "the model, on the same rows"),
        (-0.2, error, COLOURS[1], "repeating the earlier value"),
    ):
        values = [scale * each[key] for each in found.values()]
        axes.barh(at + shift, values, 0.38, color=colour, label=label)
    axes.set_yticks(at, list(found), fontsize=8)
    axes.set_title("persistence: repeating an earlier value", fontsize=10)
    axes.set_xlabel("wrong labels (%)" if scale == 100 else "root mean square error")
    axes.legend(frameon=False, fontsize=8)


def _error(story: Story, axes: Any) -> None:
    rows, means = story.course.errors.means()
    classifying = story.course.classifying
    shown = 100 * means if classifying else np.sqrt(means)
    label = "each row before it was learned" if story.prequential else "rows of the file"
    axes.plot(rows, shown, color=COLOURS[0], lw=1.6, label=label)
    whole = error_of(story.score) * (100 if classifying else 1)
    axes.axhline(whole, color=GREY, lw=0.9, ls=":")
    axes.annotate("all rows", (1, whole), (-2, 3), xycoords=("axes fraction", "data"),
                  textcoords="offset points", ha="right", fontsize=8, color=GREY)  # fmt: skip
    if story.frozen is not None:
        row, error = story.frozen
        axes.plot([row, rows[-1]], [error * (100 if classifying else 1)] * 2, color=COLOURS[1],
                  lw=1.6, label=f"the model of row {row:,}, frozen")  # fmt: skip
    if story.held is not None:
        held = story.held[1] * (100 if classifying else 1)
        axes.axhline(held, color=COLOURS[3], lw=1.6, ls="--", label="held-out rows, not learned")
    axes.set_title("prequential error" if story.prequential else "error", fontsize=10)
    axes.set_xlabel("rows")
    axes.set_ylabel("wrong labels (%)" if classifying else "root mean square error")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=8)


def _coverage(story: Story, axes: Any) -> None:
    assert story.coverage is not None
    level = 100 * story.coverage.level
    draw_coverage(story.course, level, "targets inside their interval", axes)
    axes.annotate(f"promised: {level:g} %", (1, level), (-2, -11), ha="right", fontsize=8,
                  xycoords=("axes fraction", "data"), textcoords="offset points",
                  color=GREY)  # fmt: skip


def draw_coverage(course: Course, level: float, title: str, axes: Any) -> None:
    """How many targets were inside their interval, in %, beside the level that was promised."""
    rows, means = course.covered.means()
    axes.plot(rows, 100 * means, color=COLOURS[2], lw=1.6)
    axes.axhline(level, color=GREY, lw=0.9, ls=":")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("rows")
    axes.set_ylabel("%")
    axes.set_ylim(min(60.0, 100 * float(means.min()) - 3), 102)
    axes.grid(alpha=0.25, lw=0.6)


def _relevance(story: Story, axes: Any) -> None:
    draw_relevance(story.relevance, axes)


def draw_relevance(shares: dict[str, float], axes: Any) -> None:
    """A bar for each input's share, the largest on top."""
    most = sorted(shares.items(), key=lambda each: -each[1])[:MOST_INPUTS][::-1]
    left = len(shares) - len(most)
    axes.barh([_short(name) for name, _ in most], [100 * v for _, v in most], color=COLOURS[0])
    more = f" ({left} more below these)" if left else ""
    axes.set_title(f"relevance of inputs{more}", fontsize=10)
    axes.set_xlabel("%")
    axes.tick_params(axis="y", labelsize=8)


def _nodes(story: Story, axes: Any) -> None:
    found = {name: error_of(score) for name, score in story.nodes.items()}
    scale = 100 if story.course.classifying else 1
    worst = sorted(found.items(), key=lambda each: each[1])[-MOST_NODES:]
    axes.barh([_short(name) for name, _ in worst], [scale * v for _, v in worst], color=COLOURS[3])
    left = len(found) - len(worst)
    which = "" if story.held is None else ", held-out rows"
    more = f" ({left} better ones not shown)" if left else ""
    axes.set_title(f"error of each node{which}{more}", fontsize=10)
    axes.set_xlabel("wrong labels (%)" if story.course.classifying else "root mean square error")
    axes.tick_params(axis="y", labelsize=8)


def _places(story: Story, axes: Any) -> None:
    assert story.sharing is not None
    story.sharing.plot(axes)


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:26] + "..."
