"""A training or an evaluation as pictures: targets beside predictions, error, coverage,
earlier values beside the model, relevance of inputs, and nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.estimators.sharing_worth import SharingWorth
from dokl.tables.jobs.course import Course, Persistence, PredictionPairs
from dokl.tables.models.scores import Coverage, Score
from dokl.tables.report import COLOURS, panelled, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_INPUTS, MOST_NODES = 12, 24
GREY = "#555555"


@dataclass(frozen=True)
class RunSummary:
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


def draw(summary: RunSummary) -> Any:
    """A Matplotlib figure with a panel for each thing there is to see."""
    panels = _of_pairs(summary)
    panels += [_error]
    if summary.coverage is not None and summary.coverage.n and len(summary.course.covered.done) > 1:
        panels.append(_coverage)
    panels += [_persistence] if summary.persistence and summary.persistence.figures() else []
    panels += [_relevance] if summary.relevance else []
    panels += [_nodes] if summary.nodes else []
    panels += (
        [_places] if summary.sharing is not None and summary.sharing.places is not None else []
    )
    if len(panels) % 2:  # the first one is wide, which suits a curve
        panels.remove(_error)
        panels = [_error, *panels]
    return panelled(summary.title, [partial(panel, summary) for panel in panels])


def _of_pairs(summary: RunSummary) -> list[Callable[[RunSummary, Axes], None]]:
    """What there is to see of targets and predictions."""
    pairs = _pairs(summary)
    if not pairs.classifying:
        return [_scatter, _residuals] if len(pairs.rows) > 1 else []
    found: list[Callable[[RunSummary, Axes], None]] = [_confusion] if pairs.taken_for else []
    return found + ([_calibration] if pairs.calibration[:, 0].any() else [])


def _pairs(summary: RunSummary) -> PredictionPairs:
    return (summary.course if summary.held is None else summary.held[0]).pairs


def save(summary: RunSummary, path: Path) -> Path:
    """Draw it into a PNG, SVG or PDF file."""
    return save_picture(draw(summary), path)


def _scatter(summary: RunSummary, axes: Axes) -> None:
    draw_pairs(_pairs(summary), summary.rows, axes)


def _residuals(summary: RunSummary, axes: Axes) -> None:
    draw_residuals(_pairs(summary), summary.rows, axes)


def _confusion(summary: RunSummary, axes: Axes) -> None:
    draw_confusion(_pairs(summary), summary.rows, axes)


def _calibration(summary: RunSummary, axes: Axes) -> None:
    draw_calibration(_pairs(summary), summary.rows, axes)


def _persistence(summary: RunSummary, axes: Axes) -> None:
    assert summary.persistence is not None
    found, error = summary.persistence.figures() or {}, summary.persistence.error
    scale, at = 100 if summary.persistence.classifying else 1, np.arange(len(found))
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


def _error(summary: RunSummary, axes: Axes) -> None:
    rows, means = summary.course.errors.means()
    classifying = summary.course.classifying
    shown = 100 * means if classifying else np.sqrt(means)
    label = "each row before it was learned" if summary.prequential else "rows of the file"
    axes.plot(rows, shown, color=COLOURS[0], lw=1.6, label=label)
    whole = error_of(summary.score) * (100 if classifying else 1)
    axes.axhline(whole, color=GREY, lw=0.9, ls=":")
    axes.annotate("all rows", (1, whole), (-2, 3), xycoords=("axes fraction", "data"),
                  textcoords="offset points", ha="right", fontsize=8, color=GREY)  # fmt: skip
    if summary.frozen is not None:
        row, error = summary.frozen
        axes.plot([row, rows[-1]], [error * (100 if classifying else 1)] * 2, color=COLOURS[1],
                  lw=1.6, label=f"the model of row {row:,}, frozen")  # fmt: skip
    if summary.held is not None:
        held = summary.held[1] * (100 if classifying else 1)
        axes.axhline(held, color=COLOURS[3], lw=1.6, ls="--", label="held-out rows, not learned")
    axes.set_title("prequential error" if summary.prequential else "error", fontsize=10)
    axes.set_xlabel("rows")
    axes.set_ylabel("wrong labels (%)" if classifying else "root mean square error")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=8)


def _coverage(summary: RunSummary, axes: Axes) -> None:
    assert summary.coverage is not None
    level = 100 * summary.coverage.level
    draw_coverage(summary.course, level, "targets inside their interval", axes)
    axes.annotate(f"promised: {level:g} %", (1, level), (-2, -11), ha="right", fontsize=8,
                  xycoords=("axes fraction", "data"), textcoords="offset points",
                  color=GREY)  # fmt: skip


def draw_coverage(course: Course, level: float, title: str, axes: Axes) -> None:
    """How many targets were inside their interval, in %, beside the level that was promised."""
    rows, means = course.covered.means()
    axes.plot(rows, 100 * means, color=COLOURS[2], lw=1.6)
    axes.axhline(level, color=GREY, lw=0.9, ls=":")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("rows")
    axes.set_ylabel("%")
    axes.set_ylim(min(60.0, 100 * float(means.min()) - 3), 102)
    axes.grid(alpha=0.25, lw=0.6)


def _relevance(summary: RunSummary, axes: Axes) -> None:
    draw_relevance(summary.relevance, axes)


def draw_relevance(shares: dict[str, float], axes: Axes) -> None:
    """A bar for each input's share, the largest on top."""
    most = sorted(shares.items(), key=lambda each: -each[1])[:MOST_INPUTS][::-1]
    left = len(shares) - len(most)
    axes.barh([_short(name) for name, _ in most], [100 * v for _, v in most], color=COLOURS[0])
    more = f" ({left} more below these)" if left else ""
    axes.set_title(f"relevance of inputs{more}", fontsize=10)
    axes.set_xlabel("%")
    axes.tick_params(axis="y", labelsize=8)


def _nodes(summary: RunSummary, axes: Axes) -> None:
    found = {name: error_of(score) for name, score in summary.nodes.items()}
    scale = 100 if summary.course.classifying else 1
    worst = sorted(found.items(), key=lambda each: each[1])[-MOST_NODES:]
    axes.barh([_short(name) for name, _ in worst], [scale * v for _, v in worst], color=COLOURS[3])
    left = len(found) - len(worst)
    which = "" if summary.held is None else ", held-out rows"
    more = f" ({left} better ones not shown)" if left else ""
    axes.set_title(f"error of each node{which}{more}", fontsize=10)
    axes.set_xlabel("wrong labels (%)" if summary.course.classifying else "root mean square error")
    axes.tick_params(axis="y", labelsize=8)


def _places(summary: RunSummary, axes: Axes) -> None:
    assert summary.sharing is not None
    summary.sharing.plot(axes)


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:26] + "..."


# -- targets beside predictions -------------------------------------------------------------------
MOST_LABELS = 12
FEWEST_IN_BIN = 10  # probabilities, to compare them with what came
_SMALL = 9


def draw_pairs(pairs: PredictionPairs, rows: str, axes: Axes) -> None:
    """What was predicted against the target, a dot for each row."""
    y, predicted = np.array(pairs.y), np.array(pairs.predicted)
    low, high = min(y.min(), predicted.min()), max(y.max(), predicted.max())
    axes.plot([low, high], [low, high], color=GREY, lw=0.9, ls=":")
    axes.scatter(y, predicted, _SMALL, color=COLOURS[0], alpha=_faint(len(y)), lw=0)
    axes.set_title(f"predicted against actual, {rows}", fontsize=10)
    axes.set_xlabel("actual")
    axes.set_ylabel("predicted")
    axes.grid(alpha=0.25, lw=0.6)


def draw_residuals(pairs: PredictionPairs, rows: str, axes: Axes) -> None:
    """Target less prediction along the rows, and its mean over some of them."""
    at, residuals = 1 + np.array(pairs.rows), np.array(pairs.y) - np.array(pairs.predicted)
    axes.axhline(0, color=GREY, lw=0.9, ls=":")
    axes.scatter(at, residuals, _SMALL, color=COLOURS[0], alpha=_faint(len(at)), lw=0)
    pieces = np.array_split(np.arange(len(at)), max(1, min(30, len(at) // 10)))
    middle = [at[piece].mean() for piece in pieces]
    means = [residuals[piece].mean() for piece in pieces]
    axes.plot(middle, means, color=COLOURS[1], lw=1.6, label="mean of neighbouring rows")
    axes.set_title(f"residuals over time, {rows}", fontsize=10)
    axes.set_xlabel("rows")
    axes.set_ylabel("actual less predicted")
    axes.grid(alpha=0.25, lw=0.6)
    axes.legend(frameon=False, fontsize=8)


def draw_confusion(pairs: PredictionPairs, rows: str, axes: Axes) -> None:
    """How many rows of each class were taken for each, the commonest classes if there are many."""
    labels = _commonest(pairs)
    counts = np.array(
        [[pairs.taken_for[true, predicted] for predicted in labels] for true in labels], float
    )
    share = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, j in np.ndindex(counts.shape):
        colour = "white" if share[i, j] > 0.5 else "black"
        axes.text(
            j, i, f"{int(counts[i, j]):,}", ha="center", va="center", fontsize=8, color=colour
        )
    names = [str(label)[:14] for label in labels]
    axes.set_xticks(range(len(labels)), names, fontsize=8, rotation=30 if len(labels) > 4 else 0)
    axes.set_yticks(range(len(labels)), names, fontsize=8)
    left = len(pairs.labels) - len(labels)
    more = f" ({left} rarer classes not shown)" if left else ""
    axes.set_title(f"confusion matrix, {rows}{more}", fontsize=10)
    axes.set_xlabel("predicted")
    axes.set_ylabel("actual")


def draw_calibration(pairs: PredictionPairs, rows: str, axes: Axes) -> None:
    """How often what was given some probability came."""
    n, given, right = pairs.calibration[pairs.calibration[:, 0] >= FEWEST_IN_BIN].T
    axes.plot([0, 100], [0, 100], color=GREY, lw=0.9, ls=":")
    axes.plot(100 * given / n, 100 * right / n, color=COLOURS[2], lw=1.6, marker="o", ms=5)
    axes.set_title(f"calibration of probabilities, {rows}", fontsize=10)
    axes.set_xlabel("probability given to a class (%)")
    axes.set_ylabel("how often it was that class (%)")
    axes.set_xlim(-2, 102)
    axes.set_ylim(-2, 102)
    axes.grid(alpha=0.25, lw=0.6)


def _commonest(pairs: PredictionPairs) -> list[Any]:
    seen = dict.fromkeys(pairs.labels, 0)
    for (true, _), n in pairs.taken_for.items():
        seen[true] += n
    most = sorted(seen, key=lambda label: -seen[label])[:MOST_LABELS]
    return [label for label in pairs.labels if label in most]


def _faint(n: int) -> float:
    return 0.7 if n < 300 else 0.35 if n < 1500 else 0.2
