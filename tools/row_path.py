"""The way of a row: which files of dokl it passes through, counted by calls between files.

    python tools/row_path.py            three journeys, a line each
    python tools/row_path.py --files    and the files, in the order in which they are first called
    python tools/row_path.py --calls    and what is called in each, how often, and from where

Under `sys.setprofile` every call of a Python function is seen; what Numba compiled is not. A file
counts once, a hop is a call from one file into another. What is imported or compiled the first
time is done before, on rows of the same kind.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import dokl

ROOT = Path(dokl.__file__).parent
ROWS = 300  # before the row that counts: past the first pilots


def main() -> None:
    """Print the three journeys."""
    for name, prepare in JOURNEYS.items():
        path = passed(prepare())
        print(f"{name:32} {len(path.files):3} files {path.hops:4} hops")
        for file in path.files if {"--files", "--calls"} & set(sys.argv[1:]) else ():
            print(f"    {file}")
            if "--calls" in sys.argv[1:]:
                calls = [(n, *call[1:]) for call, n in path.calls.items() if call[0] == file]
                calls.sort(key=lambda call: (-call[0], *call[1:]))
                print("".join(f"    {n:8} {name}, from {by}\n" for n, name, by in calls), end="")


class RowPath:
    """The files in the order of their first call, and the calls that went from one to another:
    how often, by file called, function, and file that called.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.calls: Counter[tuple[str, str, str]] = Counter()

    @property
    def hops(self) -> int:
        """How many these are."""
        return self.calls.total()

    def seen(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` is given."""
        if event != "call":
            return
        here, before = file_of(frame), file_of(frame.f_back)
        if here is None:
            return
        if before is not None and before != here:
            self.calls[here, frame.f_code.co_qualname, before] += 1
        if here not in self.files:
            self.files.append(here)


def file_of(frame: FrameType | None) -> str | None:
    """The file of dokl that a frame is in; of others, that of the nearest caller in dokl."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(f"{ROOT}/"):
            return name.removeprefix(f"{ROOT}/")
        frame = frame.f_back
    return None


def passed(action: Callable[[], object]) -> RowPath:
    """The way through an action."""
    path = RowPath()
    sys.setprofile(path.seen)
    try:
        action()
    finally:
        sys.setprofile(None)
    return path


# -- the journeys ------------------------------------------------------------------------------
def one_row() -> Callable[[], object]:
    """A row of a single learner."""
    X, y = rows(ROWS + 2)
    model = dokl.AutoRegressor(100, random_state=0).partial_fit(X[:ROWS], y[:ROWS])
    model.partial_fit(X[ROWS : ROWS + 1], y[ROWS : ROWS + 1])
    return lambda: model.partial_fit(X[ROWS + 1 :], y[ROWS + 1 :])


def one_step() -> Callable[[], object]:
    """A row of each of four nodes."""
    X, y = rows(4 * (ROWS + 2))
    nodes = np.arange(len(X)) % 4
    model = dokl.NetworkRegressor("ring", n_nodes=4, n_components=100, random_state=0)
    model.partial_fit(X[: 4 * ROWS], y[: 4 * ROWS], nodes=nodes[: 4 * ROWS])
    last, step = slice(4 * ROWS, 4 * ROWS + 4), slice(4 * ROWS + 4, None)
    model.partial_fit(X[last], y[last], nodes=nodes[last])
    return lambda: model.partial_fit(X[step], y[step], nodes=nodes[step])


def one_file() -> Callable[[], object]:
    """`dokl train` of a small CSV, for the second time."""
    from dokl.cli import main as command

    temporary = tempfile.TemporaryDirectory()
    atexit.register(temporary.cleanup)
    folder = Path(temporary.name)
    X, y = rows(ROWS)
    table = np.column_stack([X, y])
    np.savetxt(folder / "rows.csv", table, "%.6f", ",", header="a,b,c,y", comments="")

    def train() -> None:
        words = ["dokl", "train", str(folder / "rows.csv"), "--target", "y", "--overwrite"]
        before, sys.argv = sys.argv, [*words, "--model", str(folder / "m.dokl")]
        quiet = contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit)
        with contextlib.redirect_stdout(io.StringIO()), quiet[0], quiet[1]:
            command()
        sys.argv = before
        assert (folder / "m.dokl").exists()

    train()
    return train


def rows(n: int) -> tuple[Any, Any]:
    """X: (n, 3) and y: (n,) of a function that is not linear."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


JOURNEYS = {
    "AutoRegressor.partial_fit, a row": one_row,
    "NetworkRegressor, a step": one_step,
    "dokl train, a small CSV": one_file,
}

if __name__ == "__main__":
    main()
