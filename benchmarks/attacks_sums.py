"""Faulty nodes where sums travel: is any honest node worse off than alone?

Ten nodes on a random graph, two of them faulty: kin40k, dealt out and sorted by an input, and
phoneme (two classes as -1 and 1). Prequential squared error of every honest node over that of the
same node alone, least squares with its own rows, over the whole stream and over its last third; the
worst node's.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.networks import rows
from benchmarks.streams.data import FOLDER
from dokl import Exchange, Features, Gaussian, Problem, run, squares
from dokl.base.arrays import Array, Block
from dokl.network.exchange import Attack
from dokl.network.graphs import metropolis, random_connected

K, FAULTY, EVERY, D, RIDGE = 10, (3, 8), 10, 100, 0.01
WORST = 1.1  # times its own alone
# Name, file, how its rows are dealt, width of the kernel.
STREAMS = (
    ("kin40k, dealt", "kin40k", "dealt", 2.0),
    ("kin40k, sorted", "kin40k", "sorted", 2.0),
    ("phoneme, dealt", "phoneme", "dealt", 1.0),
)
WAYS = {
    "per origin": squares(RIDGE, share="origins"),
    "per origin, robust": squares(RIDGE, share="origins", robust=True),
}


@dataclass(frozen=True)
class Dealt:
    """Rows of ten nodes."""

    given: Block

    @property
    def n(self) -> int:
        """Number of steps."""
        return self.given.n

    K = K

    def block(self) -> Block:
        """The samples as engines take them."""
        return self.given


def loaded(file: str) -> tuple[Array, Array]:
    """All of a stream; two classes become 0 and 1."""
    if file != "phoneme":
        return rows.load(file)
    with gzip.open(FOLDER / "streams" / f"{file}.csv.gz", "rt") as lines:
        table = np.loadtxt(lines, str, delimiter=",", skiprows=1)
    return table[:, :-1].astype(float), (table[:, -1:] == table[0, -1]).astype(float)


def stream(file: str, how: str, steps: int) -> Dealt:
    """N rows for every node, inputs and targets of mean 0 and variance 1."""
    X, y = loaded(file)
    order = np.random.default_rng(0).permutation(len(X))[: K * steps]
    X, y = X[order], y[order]
    X, y = ((a - a.mean(axis=0)) / a.std(axis=0) for a in (X, y))
    return Dealt(rows.block(X, y, K, how))


def ratios(
    dealt: Dealt, width: float, ways: Sequence[str], several: dict[str, Attack | None]
) -> Iterator[tuple[str, str, Array, Array]]:
    """(way, attack, ratio of every honest node to its own alone, over all rows and the last)."""
    features = Features(Gaussian(width), dealt.given.X.shape[1], D, "paired").draw(1)
    weights = metropolis(random_connected(K, p=0.5, seed=1))

    def errors(method: Any, exchange: Exchange) -> Array:
        settings: dict[str, Any] = {"record": ("node_mse",), "dtype": np.float64}
        trace = run(Problem(features, method), exchange, dealt, show_progress=False, **settings)
        return np.asarray(trace.curves["node_mse"][0])

    honest = [k for k in range(K) if k not in FAULTY]
    for way in ways:
        method = WAYS[way]
        alone = errors(squares(RIDGE), Exchange())
        for name, attack in several.items():
            faults = {} if attack is None else {"attack": attack, "faulty": FAULTY}
            found = errors(method, Exchange(weights, every=EVERY, **faults))
            spans = slice(0, None), slice(-len(found) // 3, None)
            each = [(found[s].mean(0) / alone[s].mean(0))[honest] for s in spans]
            yield way, name, *each


def show(quick: bool, ways: Sequence[str], several: dict[str, Attack | None]) -> None:
    """The table: over all rows / over the last third, and whether any is above the bound."""
    steps, over = 200 if quick else 500, []
    for title, file, how, width in STREAMS[:1] if quick else STREAMS:
        print(f"\n{title}, {steps} rows a node: worst honest node over its own alone, all / last")
        print(f"{'':18}" + "".join(f"{name:>20}" for name in several))
        for way, name, *each in ratios(stream(file, how, steps), width, ways, several):
            if name == next(iter(several)):
                print(f"{way:18}", end="")
            worst = [float(ratio.max()) for ratio in each]
            print(f"{worst[0]:13.3f} /{worst[1]:5.3f}", end="", flush=True)
            print(end="\n" if name == list(several)[-1] else "")
            if max(worst) > WORST:
                over.append(f"{title}, {way}, {name}: {max(worst):.3f}")
    print(f"\nabove {WORST}: " + ("; ".join(over) or "nobody"))
