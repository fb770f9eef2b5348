"""How long a row may take: `python -m benchmarks.pauses [--pace 20] [--skip-errors]`.

Rows of given streams are predicted and learned one by one, back to back and at a pace, past pilots
at up to 1000 rows and at 10,000; the longest and the 99 % longest calls are printed. Then the error
of whole streams is compared with that of maps made at the row of the pilot itself, all at once, as
they were before they were made in the background: the price of beginning earlier.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.common import Section, machine
from benchmarks.streams import data
from dokl import AutoClassifier, AutoRegressor
from dokl.learning.experts import pending

STREAMS = ("kin40k", "letter")
# Rows learned at once, and then one by one: past the pilots at 30 to 1000, and past the largest.
STRETCHES = ((0, 1050), (9740, 10_010))
COMPARED = ("airfoil", "concrete", "air", "elevators", "phoneme", "satimage")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pauses", description=__doc__)
    parser.add_argument("--pace", type=float, default=20.0, help="rows a second")
    parser.add_argument("--skip-errors", action="store_true", help="pauses alone")
    options = parser.parse_args()
    print(", ".join(f"{key} {value}" for key, value in machine().items()), "\n")
    print(pauses(options.pace).text(), flush=True)
    if not options.skip_errors:
        print(errors().text(), flush=True)


def pauses(pace: float) -> Section:
    """The longest calls."""
    found = Section("pauses", "milliseconds of one call with one row: longest, and 99 % longest")
    for name in STREAMS:
        for how, rows_per_second, most in ((f"{pace:g} rows/s", pace, 100), ("together", 0, 1000)):
            for first, last in STRETCHES:
                took = _one_by_one(name, first, last, rows_per_second)
                for call, seconds in took.items():
                    longest, high = 1e3 * seconds.max(), 1e3 * np.quantile(seconds, 0.99)
                    what = f"{name} {first}-{last}, {how}, {call}"
                    about = f"row {first + 1 + int(seconds.argmax()):,}"
                    figure = f"{longest:.0f} {high:.0f}"
                    found.add(what, figure, None, f"<= {most}", longest <= most, about)
    return found


def _one_by_one(name: str, first: int, last: int, pace: float) -> dict[str, np.ndarray]:
    """Seconds of every call."""
    X, y = data.load(name)
    model, more = _model(name, y)
    if first:
        model.partial_fit(X[:first], y[:first], **more)
    took: dict[str, list[float]] = {"partial_fit": [], "predict": []}
    began = time.perf_counter()
    for i in range(first, last):
        if pace:
            time.sleep(max(0.0, began + (i - first) / pace - time.perf_counter()))
        row, start = slice(i, i + 1), time.perf_counter()
        model.partial_fit(X[row], y[row], **more)
        middle = time.perf_counter()
        model.predict(X[row])
        took["partial_fit"].append(middle - start)
        took["predict"].append(time.perf_counter() - middle)
    return {call: np.array(seconds) for call, seconds in took.items()}


def errors() -> Section:
    """What beginning earlier costs."""
    found = Section("errors", "error, and its ratio to that of maps made at the row of the pilot")
    ratios = []
    for name in COMPARED:
        earlier, (at_once, seconds) = _error(name), _all_at_once(name)
        ratios.append(earlier[0] / at_once)
        about = f"{earlier[1]:.0f} s, at once {seconds:.0f} s"
        found.at_most(name, f"{earlier[0]:.4f}", ratios[-1], 1.02, about)
    mean = float(np.exp(np.mean(np.log(ratios))))
    found.at_most("geometric mean", "", mean, 1.02, "")
    return found


def _error(name: str) -> tuple[float, float]:
    """The error of a stream, and the seconds that it took."""
    X, y = data.load(name)
    model, more = _model(name, y)
    began = time.perf_counter()
    f = model.prequential(X, y, **more)
    return data.score(name)(f, y), time.perf_counter() - began


def _all_at_once(name: str) -> tuple[float, float]:
    """The same with maps that are made and adopted at one row."""
    ahead, pending.begin_row = pending.begin_row, lambda pilot: pilot
    try:
        return _error(name)
    finally:
        pending.begin_row = ahead


def _model(name: str, y: np.ndarray) -> tuple[Any, dict[str, Any]]:
    if name in data.CLASSIFICATION:
        return AutoClassifier(random_state=0), {"classes": np.unique(y)}
    return AutoRegressor(random_state=0), {}


if __name__ == "__main__":
    main()
