"""How fast: eighteen experts beside River's forest, least squares beside its BLAS calls alone."""

from __future__ import annotations

import os
import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Section, in_turns, micro, ratio
from benchmarks.streams import data, peers
from dokl.learning.experts import bank, learn
from dokl.learning.experts.kinds import Settings, for_numbers
from dokl.learning.squares import blocks
from dokl.learning.squares.memory import LIST, Numbers, start

D, ROWS = 500, 1024


def measure(quick: bool) -> Section:
    """Ratios of neighbouring rounds; what runs in threads is timed on the wall clock."""
    found = Section("speed", f"{os.cpu_count()} cores, experts of at most {D} centres, no pilots")
    rounds = 2 if quick else 6
    _experts(found, rounds, "airfoil" if quick else "kin40k")
    _products(found, rounds)
    _single(found, rounds)
    return found


def _experts(found: Section, rounds: int, name: str) -> None:
    """Rows between two pilots, all experts awake or as they are."""
    X, y = data.load(name)
    begin = 1000 if len(X) < 9000 else 5000
    model, _ = learn.learn(bank.start(X.shape[1], 1, Settings(most=D)), X[:begin], y[:begin, None])
    forest = peers.forest()
    rows = [dict(enumerate(row)) for row in X.tolist()]
    for x, t in zip(rows[:begin], y.tolist(), strict=False):
        forest.learn_one(x, t)
    part = min(ROWS, (len(X) - begin) // rounds)

    def ours(number: int) -> int:
        nonlocal model
        some = slice(begin + number * part, begin + (number + 1) * part)
        model, _ = learn.learn(model, X[some], y[some, None])
        return part

    def theirs(number: int) -> int:
        for i in range(begin + number * part, begin + number * part + part // 4):
            forest.predict_one(rows[i])
            forest.learn_one(rows[i], float(y[i]))
        return part // 4

    taken = in_turns({"ours": ours, "forest": theirs}, rounds, time.perf_counter)
    times = ratio(taken["forest"], taken["ours"])
    pace = 1.0 / float(np.median(taken["ours"]))
    awake = 0 if model.awake is None else int(model.awake.sum())
    about = f"forest {micro(taken['forest'], 'row')}, {awake} experts awake at the end"
    found.at_least(
        f"{len(for_numbers())} experts, {name}", micro(taken["ours"], "row"), times, 5.0, about
    )
    found.add("", f"{pace:,.0f} rows/s", None, ">= 2,000", pace >= 2000)


def _products(found: Section, rounds: int) -> None:
    """`squares` beside symm, trsm and syrk of the same sizes on one thread."""
    from scipy.linalg.blas import dsymm, dsyrk, dtrsm

    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(ROWS, D)) / np.sqrt(D), rng.normal(size=(ROWS, 1))
    numbers = Numbers(0.01, 1.0, 10.0)
    P, C = np.asfortranarray(np.eye(D)), np.asfortranarray(np.eye(LIST))
    Zt = np.asfortranarray(Z.T)

    def ours(number: int) -> int:
        blocks.learn(numbers, start(D, 1, 0.01), Z, Y)
        return ROWS

    def alone(number: int) -> int:
        for i in range(0, ROWS, LIST):
            G = dsymm(1.0, P, Zt[:, i : i + LIST], lower=1)
            W = dtrsm(1.0, C, G, side=1, lower=1, trans_a=1, overwrite_b=1)
            dsyrk(-1e-9, W, beta=1.0, c=P, lower=1, overwrite_c=1)
        return ROWS

    with threadpool_limits(1, "blas"):
        taken = in_turns({"ours": ours, "alone": alone}, max(4, rounds))
    times = ratio(taken["ours"], taken["alone"])
    about = f"BLAS alone {micro(taken['alone'], 'row')}"
    found.at_most(f"squares, D = {D}", micro(taken["ours"], "row"), times, 2.0, about)


def _single(found: Section, rounds: int) -> None:
    """Rows fed one by one beside whole blocks, D = 300."""
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(ROWS, 300)) / np.sqrt(300), rng.normal(size=(ROWS, 1))
    numbers = Numbers(0.01, 0.999, 10.0)

    def whole(number: int) -> int:
        blocks.learn(numbers, start(300, 1, 0.01), Z, Y)
        return ROWS

    def single(number: int) -> int:
        blocks.learn_row_by_row(numbers, start(300, 1, 0.01), Z, Y)
        return ROWS

    with threadpool_limits(1, "blas"):
        taken = in_turns({"single": single, "whole": whole}, max(4, rounds))
    times = ratio(taken["single"], taken["whole"])
    about = f"in blocks {micro(taken['whole'], 'row')}"
    found.at_most("single rows, D = 300", micro(taken["single"], "row"), times, 3.0, about)
