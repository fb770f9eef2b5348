"""Faulty nodes in a network: `python -m benchmarks.attacks [digits] [sums] [--quick]`.

sums: see `attacks_sums`; whether any honest node is worse off than alone where sums travel.

digits: vectors, and rules of mixing.

MNIST, ten classes, one-vs-rest logistic on random features, one pass, 12 nodes of which two lie;
every node receives from every other, unless --links is given.
Labels are separated: each honest node sees one digit only, so everything it knows of the others it
has from its neighbours. Test accuracy in %, mean over the honest nodes; the lowest in brackets;
nan where the iterates diverged.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks import attacks_sums
from benchmarks.streams.data import FOLDER
from dokl import Exchange, Features, Gaussian, Mixing, Problem, gradient, losses, run, schedules
from dokl.base.arrays import Array, Block
from dokl.base.errors import Diverged
from dokl.network.exchange import Attack, attacks
from dokl.network.graphs import faulty_tolerated, metropolis, random_connected
from dokl.paper.datasets.files import contents
from dokl.paper.datasets.parse import idx

K, FAULTY, DIGITS = 12, (3, 8), 10
EVERY = 10
SEVERAL: dict[str, Attack | None] = {
    "none": None,
    "sign flip": attacks.sign_flip(),
    "isolation": attacks.isolation(),
    "noise": attacks.noise(1.0),
    "a little is enough": attacks.little(),
    "flipped labels": attacks.flipped_labels(),
    "inflated": attacks.inflated(),
    "stale": attacks.stale(since=10),
}
RULES = {
    "mean": Mixing(),
    "ios": Mixing(rule="ios", faulty=2),
    "ios, far = 2": Mixing(rule="ios", faulty=2, far=2),
    "ios as published": Mixing(rule="ios", faulty=2, far=0),
    "trimmed mean": Mixing(rule="trimmed", faulty=2),
    "clip": Mixing(0.5),
}
# Attacks that the rule must hold, by how many points; and what it may cost where nobody lies.
HELD, MOST_LOST, MOST_COST = ("sign flip", "isolation", "noise"), 1.0, 0.3


@dataclass(frozen=True)
class Digits:
    """Rows of honest nodes, a digit each, and of faulty nodes, any; index: (steps, K)."""

    X: Array
    labels: Array
    index: Array
    X_test: Array
    test: Array

    @property
    def n(self) -> int:
        """Number of steps."""
        return len(self.index)

    K = K

    def block(self) -> Block:
        """The samples as engines take them; targets 1 for the true class, -1 otherwise."""
        Y = np.where(self.labels[:, None] == np.arange(DIGITS), 1.0, -1.0)
        return Block(self.X, Y.astype(np.float32), None, self.index)


def dealt(steps: int, seed: int = 0) -> Digits:
    """All rows in random order: faulty nodes take any of the first, honest ones their digit's."""
    images, labels, more, test = (idx(part) for part in contents("mnist", FOLDER))
    X, X_test = (each.reshape(len(each), -1).astype(np.float32) / 255 for each in (images, more))
    order = np.random.default_rng(seed).permutation(len(labels))
    first, rest = np.split(order, [len(FAULTY) * steps])
    index = np.empty((steps, K), np.int64)
    index[:, list(FAULTY)] = first.reshape(steps, -1)
    honest = [k for k in range(K) if k not in FAULTY]
    for digit, k in enumerate(honest):  # a digit with fewer rows starts over
        index[:, k] = np.resize(rest[labels[rest] == digit], steps)
    return Digits(X, labels, index, X_test, test)


def accuracies(
    digits: Digits, D: int, weights: Any, every: int, seed: int, rules: Sequence[str],
    several: Sequence[str],
) -> Iterator[tuple[str, str, Array]]:  # fmt: skip
    """(rule, attack, accuracy of each honest node in %), of these rules and attacks."""
    features = Features(Gaussian(6.0), digits.X.shape[1], D, "orthogonal").draw(seed)
    step = schedules.inverse_power(40.0, 0.5, 400.0)
    problem = Problem(features, gradient(losses.logistic(), step))
    Z = features.transform(digits.X_test)
    honest = [k for k in range(K) if k not in FAULTY]
    for rule, name in product(rules, several):
        mixing, attack = RULES[rule], SEVERAL[name]
        faults = {} if attack is None else {"attack": attack, "faulty": FAULTY}
        exchange = Exchange(weights, "atc", every, mixing=mixing, **faults)
        settings = {"record": (), "engine": "numba", "show_progress": False}
        try:
            theta = run(problem, exchange, digits, **settings).states[0].theta[honest]
        except Diverged:
            yield rule, name, np.full(len(honest), np.nan)
            continue
        right = (Z @ theta.transpose(0, 2, 1)).argmax(axis=2) == digits.test
        yield rule, name, 100 * right.mean(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument("section", nargs="*", help="digits, sums; default both")
    parser.add_argument("--quick", action="store_true", help="fewer rows and features")
    parser.add_argument("--seed", type=int, default=0, help="of rows, graph and features")
    parser.add_argument("--every", type=int, default=EVERY, help="steps between exchanges")
    parser.add_argument("--links", type=float, default=1.0, help="share of pairs that are linked")
    parser.add_argument("--attacks", nargs="*", default=list(SEVERAL), choices=list(SEVERAL))
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=list(RULES))
    parser.add_argument(
        "--ways", nargs="*", default=list(attacks_sums.WAYS), choices=list(attacks_sums.WAYS)
    )
    args = parser.parse_args()
    for section in args.section or SECTIONS:
        if section not in SECTIONS:
            parser.error(f"sections are {', '.join(SECTIONS)}, not {section!r}")
        SECTIONS[section](args)


def sums(args: argparse.Namespace) -> None:
    """Where sums travel."""
    several = {name: SEVERAL[name] for name in args.attacks}
    if "flipped labels" in several:  # which no check can detect, and larger
        several["flipped, times 10"] = attacks.flipped_labels(10.0)
    attacks_sums.show(args.quick, args.ways, several)


def digits(args: argparse.Namespace) -> None:
    """Where vectors travel."""
    steps, D = (1000, 200) if args.quick else (5000, 500)
    found: dict[tuple[str, str], Array] = {}
    weights = metropolis(random_connected(K, p=args.links, seed=args.seed + 1))
    tolerated = faulty_tolerated(weights).tolist()
    print(f"seed {args.seed}; faulty neighbours that each node tolerates: {tolerated}")
    print(f"{'':22}" + "".join(f"{name:>20}" for name in args.attacks))
    about = weights, args.every, args.seed, args.rules, args.attacks
    for rule, name, each in accuracies(dealt(steps, args.seed), D, *about):
        found[rule, name] = each
        if name == "none":
            print(f"{rule:22}", end="")
        print(f"{each.mean():13.2f} ({each.min():4.1f})", end="", flush=True)
        if name == args.attacks[-1]:
            print()
    for rule in args.rules:
        if rule.startswith("ios") and {("mean", "none"), (rule, "none")} <= set(found):
            verdict(found, rule)


def verdict(found: dict[tuple[str, str], Array], rule: str) -> None:
    """What a rule costs, and what it holds."""
    best = found["mean", "none"].mean()
    cost = best - found[rule, "none"].mean()
    print(f"{rule}: {cost:.2f} points lost without faulty nodes (at most {MOST_COST})", end="")
    for name in HELD:
        if (rule, name) in found:
            print(f", {best - found[rule, name].mean():.2f} under {name}", end="")
    print(f" (at most {MOST_LOST})")


SECTIONS = {"digits": digits, "sums": sums}

if __name__ == "__main__":
    main()
