"""Cooperation that never hurts: `python -m benchmarks.cooperation [beijing] [examples] [--quick]`.

beijing   12 stations over the real graph of examples/beijing, first year, all labels and a tenth of
          them: error over variance, months 2-3 and the rest, alone and together, and the station to
          which sharing is worth least
examples  the paper's Examples 1 to 4: mean squared error of the last tenth in dB, alone, together
          (least squares on the network's sums) and cooperating
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dokl import (
    Exchange,
    Features,
    Gaussian,
    GraphRecipe,
    NetworkRegressor,
    Problem,
    run,
    squares,
    streams,
)
from dokl.base.random_numbers import generator
from dokl.simulation.methods import cooperation

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
PREDICT_ONLY = 1e-30  # the weight of an hour without a label
# Examples with the width of their kernel, ridge, and features.
EXAMPLES: dict[str, tuple[Any, float, float, int]] = {
    "Example 1": (streams.Example1(n=1000), 5.0, 1e-3, 100),
    "Example 2": (streams.Example2(n=1000), 5.0, 1e-4, 100),
    "Example 3": (streams.Example3(), 0.15, 1e-3, 60),
    "Example 3, state": (streams.Example3(inputs="state"), 1.0, 1e-3, 60),
    "Example 4": (streams.Example4(), 0.15, 1e-3, 60),
}


def beijing(data: Path, hours: int, rounds: int, components: int, shares: list[float]) -> None:
    """Shares of labels, alone and over the graph, with so many rounds of messages an hour."""
    sys.path.insert(0, str(ROOT / "examples" / "beijing"))
    from beijing_data import MONTH, QUARTER, from_full, read_links, weights

    stations = from_full(str(data))
    X, y = stations.inputs()[:hours].astype(float), stations.target[:hours]
    A = weights(read_links(), stations.names)
    together = np.linalg.matrix_power(A.toarray(), rounds)
    spans = {"months 2-3": slice(MONTH, QUARTER), "rest": slice(QUARTER, hours)}
    spans = {name: span for name, span in spans.items() if span.start < hours}
    for share in shares:
        labelled = generator(0, "label").random(stations.target.shape)[:hours] < share
        found = {}
        for name, rule in (("alone", np.eye(len(A.toarray()))), ("together", together)):
            began = time.perf_counter()
            found[name] = _squares(X, y, labelled, rule, components)
            ratios = [np.nanmean(found[name][s]) / np.nanvar(y[s]) for s in spans.values()]
            text = ", ".join(f"{n} {r:.4f}" for n, r in zip(spans, ratios, strict=True))
            spent = time.perf_counter() - began
            print(f"{share:4.0%} of the labels, {name:8}: {text}   ({spent:.0f} s)", flush=True)
        each = [np.nanmean(found[name][MONTH:], axis=0) for name in ("together", "alone")]
        worst = int(np.argmax(each[0] / each[1]))
        print(
            f"     least is won at {stations.names[worst]}: "
            f"{(each[0] / each[1])[worst]:.3f} of its own alone\n",
            flush=True,
        )


def _squares(X: Any, y: Any, labelled: Any, weights: Any, components: int) -> Any:
    """Squared errors (hours, K) of predictions made before each hour was learned."""
    hours, K = y.shape
    known = ~np.isnan(y)
    at = np.flatnonzero(known)
    hour, node = np.divmod(at, K)
    weight = np.where(labelled.ravel()[at], 1.0, PREDICT_ONLY)
    model = NetworkRegressor(weights, n_components=components, random_state=0)
    errors = np.full(y.shape, np.nan)
    for day in range(0, hours, 24 * 30):
        some = (hour >= day) & (hour < day + 24 * 30)
        rows = at[some]
        f = model.prequential(
            X.reshape(-1, X.shape[2])[rows], y.ravel()[rows], weight[some], node[some]
        )
        errors.ravel()[rows] = (f - y.ravel()[rows]) ** 2
    return errors


def examples(runs: int) -> None:
    """dB of the last tenth of each stream."""
    print(f"{'':18} {'alone':>8} {'together':>8} {'cooperating':>11}   last tenth, dB; {runs} runs")
    for name, (stream, sigma, ridge, D) in EXAMPLES.items():
        d = stream.draw(0).d
        features = Features(Gaussian(sigma), d, D, "paired")
        graph, line = GraphRecipe("random", stream.K), []
        for method, weights in (
            (cooperation(ridge), None),
            (squares(ridge, share="sums"), graph),
            (cooperation(ridge), graph),
        ):
            every = 1 if weights is None else 2
            trace = run(
                Problem(features, method), Exchange(weights, every=every), stream, runs=runs,
                seed=1, show_progress=False,
            )  # fmt: skip
            line.append(10 * np.log10(trace.tail().mean()))
        print(f"{name:18} {line[0]:8.2f} {line[1]:8.2f} {line[2]:11.2f}", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cooperation", description=__doc__)
    parser.add_argument("part", nargs="*", choices=["beijing", "examples", []], default=[])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with beijing_air.csv.gz")
    parser.add_argument("--hours", type=int, default=8760)
    parser.add_argument("--rounds", type=int, default=1, help="rounds of messages an hour")
    parser.add_argument("--components", type=int, default=1000, help="centres of the widest maps")
    parser.add_argument("--labels", type=float, nargs="*", default=[1.0, 0.1], help="shares")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="three months, one run")
    told = parser.parse_args()
    hours, runs = (2208, 1) if told.quick else (told.hours, told.runs)
    if "examples" in told.part or not told.part:
        examples(runs)
    if "beijing" in told.part or not told.part:
        beijing(told.data, hours, told.rounds, told.components, told.labels)


if __name__ == "__main__":
    main()
