"""Error against bytes, every rule of sending: `python -m benchmarks.compression [--plot FILE]`.

Sixteen nodes in a random graph. Examples 1 and 2 of the paper by gradient steps: mean square error
in dB over the last tenth. kin40k by least squares, own matrices and vectors that travel: error over
variance in the last fifth. Sums of rows, by least squares, are the last line of each.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.streams.data import load
from dokl import (
    Exchange,
    Features,
    Gaussian,
    GraphRecipe,
    Problem,
    Sending,
    run,
    squares,
)
from dokl.learning.metrics import decibels
from dokl.network.graphs import one_peer
from dokl.paper.problems import example_problem
from dokl.simulation.streams import Example1, Example2, Shards
from dokl.tables import report

K = 16
Point = tuple[str, str, float, float]  # family, rule, bytes that a node sent, error
F32, GRAPH = Sending("float32"), GraphRecipe("random", K)


def exchanges() -> dict[str, dict[str, Exchange]]:
    """Families of rules, each from much to little."""

    def rules(*all_of_them: tuple[str, Sending]) -> dict[str, Exchange]:
        return {name: Exchange(GRAPH, sending=sending) for name, sending in all_of_them}

    def bits(b: int, **more: Any) -> Sending:
        return Sending("float32", bits=b, **more)

    turns = {f"{e}": Exchange(one_peer(K, e), every=e, sending=F32) for e in (1, 4, 16)}
    peers = replace(turns["1"], sending=bits(2))
    quiet = replace(turns["1"], sending=bits(2, least=0.1))
    return {
        "float64, 32, 16": rules(
            ("64", Sending("float64")), ("32", F32), ("16", Sending("float16"))
        ),
        "bits": rules(*((f"{b}", bits(b)) for b in (8, 4, 2, 1))),
        "parts": rules(*((f"{p}", replace(F32, parts=p)) for p in (2, 4, 16, 64))),
        "quiet": rules(*((f"{x:g}", replace(F32, least=x)) for x in (0.01, 0.03, 0.1, 0.3))),
        "every": {f"{e}": Exchange(GRAPH, every=e, sending=F32) for e in (4, 16, 64)},
        "one peer, every": turns,
        "2 bits and": {
            "quiet .1": Exchange(GRAPH, sending=bits(2, least=0.1)),
            "4 parts": Exchange(GRAPH, sending=bits(2, parts=4)),
            "one peer": peers,
            "one peer, quiet .1": quiet,
        },
    }


@dataclass(frozen=True)
class Panel:
    """A task: what learns by vectors, what by sums, the stream, and how errors are read."""

    title: str
    vectors: Problem
    sums: Problem
    stream: Any
    share: float
    in_dB: bool

    def error(self, trace: Any) -> float:
        """The error that is drawn."""
        tail = float(np.mean(trace.tail("mse", self.share)))
        return float(decibels(tail)) if self.in_dB else tail


def panels(quick: bool) -> list[Panel]:
    """Examples 1 and 2, and kin40k with a target of unit variance."""
    n, some = (300, 3000) if quick else (2000, 12_000)
    found = []
    for example in (Example1(K=K, n=n), Example2(K=K, n=n)):
        vectors = example_problem(300)
        sums = Problem(example_problem(100).features, squares(0.01, share="sums"))
        name = f"Example {len(found) + 1}, gradient"
        found.append(Panel(name, vectors, sums, example, 0.1, True))
    X, y = load("kin40k")
    y, features = (y - y.mean()) / y.std(), Features(Gaussian(2.0), X.shape[1], 200, "orthogonal")
    both = (Problem(features, squares(0.01, share=share)) for share in ("theta", "sums"))
    return [
        *found,
        Panel("kin40k, least squares", *both, Shards(X[:some], y[:some], K), 0.2, False),
    ]


def measured(panel: Panel) -> Iterator[Point]:
    """Every rule in turn, then sums, then nothing at all."""
    settings: dict[str, Any] = {"seed": 1, "show_progress": False, "record": ("mse", "bytes")}
    for family, several in exchanges().items():
        for name, exchange in several.items():
            trace = run(panel.vectors, exchange, panel.stream, **settings)
            yield family, name, float(trace["bytes"][-1]) / K, panel.error(trace)
    for every in (10, 50, 250):
        exchange = Exchange(GRAPH, every=every, sending=F32)
        trace = run(panel.sums, exchange, panel.stream, **settings)
        yield "sums, every", f"{every}", float(trace["bytes"][-1]) / K, panel.error(trace)
    alone = run(panel.vectors, Exchange(), panel.stream, **settings)
    yield "alone", "", 0.0, panel.error(alone)


STYLE = {
    "float64, 32, 16": ("#222222", "s"), "bits": ("#1f5fa8", "o"), "parts": ("#3f8f5b", "^"),
    "quiet": ("#d1662a", "v"), "every": ("#8a4fa3", "D"), "one peer, every": ("#7a7a7a", "P"),
    "2 bits and": ("#46a3d9", "*"), "sums, every": ("#b3202a", "X"),
}  # fmt: skip


def draw(above: Any, below: Any, panel: Panel, points: list[Point]) -> None:
    """One panel: families in colours, each a line from much to little; sums below."""
    for family, (colour, marker) in STYLE.items():
        axes, alone = (below if family.startswith("sums") else above), family == "2 bits and"
        own = [point for point in points if point[0] == family]
        look = {"color": colour, "marker": marker, "lw": 0 if alone else 1.2}
        x, errors = [p[2] for p in own], [p[3] for p in own]
        axes.plot(x, errors, ms=9 if alone else 5.5, label=family, **look)
        for _, name, at, error in own:
            place = {"xytext": (5, -9 if alone else 4), "textcoords": "offset points"}
            axes.annotate(name, (at, error), fontsize=7, color=colour, **place)
    alone = next(error for family, *_, error in points if family == "alone")
    above.axhline(alone, color="#999999", ls=":", lw=1, label="alone")
    above.set_title(panel.title, fontsize=11)
    above.set_ylabel("mean square error (dB)" if panel.in_dB else "error / variance")
    below.set_xlabel("bytes that a node sent in all")
    least = min(error for family, *_, error in points if family.startswith("sums"))
    most = max(error for family, *_, error in points if family.startswith("sums"))
    room = max(0.4 * (most - least), 0.2 if panel.in_dB else 0.01)
    below.set_ylim(least - room, most + room)
    below.ticklabel_format(axis="y", useOffset=False)
    for axes in (above, below):
        axes.set_xscale("log")
        axes.grid(alpha=0.25, lw=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)


def picture(found: list[tuple[Panel, list[Point]]], path: Path) -> None:
    """All panels."""
    plt = report.pyplot()
    size = {"figsize": (17, 7.5), "layout": "constrained"}
    figure, axes = plt.subplots(2, 3, height_ratios=(4, 1), sharex="col", **size)
    for above, below, (panel, points) in zip(*axes, found, strict=True):
        draw(above, below, panel, points)
    lines = [line for each in axes[:, 0] for line in each.get_lines()]
    figure.legend(handles=lines, loc="outside lower center", ncols=9, frameon=False, fontsize=9)
    report.save_picture(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compression", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it: PNG, SVG or PDF")
    args = parser.parse_args()
    found = []
    for panel in panels(args.quick):
        print(f"== {panel.title} ==\n{'rule':28}{'kB a node':>12}{'error':>10}", flush=True)
        points = []
        for point in measured(panel):
            points.append(point)
            family, name, sent, error = point
            print(f"{family + ' ' + name:28}{sent / 1000:12.1f}{error:10.3f}", flush=True)
        found.append((panel, points))
    if args.plot:
        picture(found, args.plot)


if __name__ == "__main__":
    main()
