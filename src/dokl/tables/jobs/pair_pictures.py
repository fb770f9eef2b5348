"""Targets beside predictions as pictures: dots, residuals, confusion matrix, calibration."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.tables.jobs.pairs import PredictionPairs
from dokl.tables.report import COLOURS

GREY = "#555555"
MOST_LABELS = 12
FEWEST_IN_BIN = 10  # probabilities, to compare them with what came
_SMALL = 9


def draw_pairs(pairs: PredictionPairs, rows: str, axes: Any) -> None:
    """What was predicted against the target, a dot for each row."""
    y, said = np.array(pairs.y), np.array(pairs.said)
    low, high = min(y.min(), said.min()), max(y.max(), said.max())
    axes.plot([low, high], [low, high], color=GREY, lw=0.9, ls=":")
    axes.scatter(y, said, _SMALL, color=COLOURS[0], alpha=_faint(len(y)), lw=0)
    axes.set_title(f"predicted against actual, {rows}", fontsize=10)
    axes.set_xlabel("actual")
    axes.set_ylabel("predicted")
    axes.grid(alpha=0.25, lw=0.6)


def draw_residuals(pairs: PredictionPairs, rows: str, axes: Any) -> None:
    """Target less prediction along the rows, and its mean over some of them."""
    at, residuals = 1 + np.array(pairs.rows), np.array(pairs.y) - np.array(pairs.said)
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


def draw_confusion(pairs: PredictionPairs, rows: str, axes: Any) -> None:
    """How many rows of each class were taken for each, the commonest classes if there are many."""
    labels = _commonest(pairs)
    counts = np.array([[pairs.taken_for[true, said] for said in labels] for true in labels], float)
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


def draw_calibration(pairs: PredictionPairs, rows: str, axes: Any) -> None:
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
