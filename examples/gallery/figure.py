"""What all examples draw with: one frame, small files."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

BLUE, RED, GREY = "#3b5bdb", "#e03131", "#868e96"


def frame(title: str, across: str, upward: str) -> tuple[Any, Any]:
    """A figure of one panel, and its axes."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(across)
    axes.set_ylabel(upward)
    axes.grid(alpha=0.25, lw=0.6)
    return figure, axes


def save(figure: Any, path: str | Path) -> None:
    """Write it, and forget it."""
    figure.axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=80)
    plt.close(figure)
