"""How well: the streams, the examples of docs/when-not.md, drift, and intervals."""

from __future__ import annotations

import math
import time
from functools import cache

import numpy as np

from benchmarks.common import Row, Section
from benchmarks.streams import data, peers
from dokl import AutoClassifier, AutoRegressor
from dokl.learning import intervals

WINDOW = 500


def regression(quick: bool) -> Section:
    """Error over variance after the first fifth, beside what one would use instead."""
    found = Section(
        "regression",
        "error / variance after the first fifth of the stream, one pass, no settings",
    )
    ahead = list[tuple[float, dict[str, float]]]()
    for name, (_, prototype) in data.REGRESSION.items():
        if not data.wanted(name, quick):
            continue
        X, y = data.load(name)
        ours, text, pace = _seeds(name, 1 if quick else 3)
        others = _others(name, X, y, peers.REGRESSORS, quick)
        line = f"{pace}; {_best(ours, others)}{_listed(others)}"
        found.at_most(name, text, ours / prototype, 1.05, line)
        ahead.append((ours, others))
    _compared(found, ahead)
    found.notes.append("ratio: to a prototype's error; accuracy: rows a second, and other learners")
    return found


def classification(quick: bool) -> Section:
    """Share of errors in the last fifth."""
    found = Section("classification", "errors in the last fifth of the stream, one pass")
    ahead = list[tuple[float, dict[str, float]]]()
    for name, (_, most) in data.CLASSIFICATION.items():
        if not data.wanted(name, quick):
            continue
        X, y = data.load(name)
        ours, text, pace = _seeds(name, 1 if quick else 5)
        others = _others(name, X, y, peers.CLASSIFIERS, quick)
        line = f"{pace}; {_best(ours, others)}{_listed(others)}"
        found.add(name, text, None, f"<= {most:g}", ours <= most, line)
        ahead.append((ours, others))
    _compared(found, ahead)
    return found


def _best(ours: float, others: dict[str, float]) -> str:
    best = peers.best_batch(others)
    return f"{ours / best[1]:.2f} of the best batch learner ({best[0]}); " if best else ""


def _compared(found: Section, ahead: list[tuple[float, dict[str, float]]]) -> None:
    """Geometric means of our error over that of LightGBM, CatBoost and the best batch learner."""
    for who in ("LightGBM refitted", "CatBoost refitted", "ExtraTrees refitted"):
        ratios = [ours / others[who] for ours, others in ahead if who in others]
        if ratios:
            mean = math.exp(float(np.mean(np.log(ratios))))
            found.notes.append(f"geometric mean {mean:.2f} of the error of {who}")
    best = [(ours, peers.best_batch(others)) for ours, others in ahead]
    ratios = [ours / each[1] for ours, each in best if each is not None]
    if ratios:
        mean, behind = math.exp(float(np.mean(np.log(ratios)))), sum(r > 1.0 for r in ratios)
        found.notes.append(
            f"geometric mean {mean:.2f} of the best batch learner of each stream, chosen in "
            f"hindsight; behind it on {behind} of {len(ratios)}"
        )


def _seeds(name: str, seeds: int) -> tuple[float, str, str]:
    """Mean over seeds, all of them as text, and the pace."""
    y, results = data.load(name)[1], [_result_of(name, seed) for seed in range(seeds)]
    scores = [data.score(name)(f, y) for f, *_ in results]
    pace = seeds * len(y) / sum(seconds for *_, seconds in results)
    mean = float(np.mean(scores))
    each = " ".join(f"{s:.4f}" for s in scores) if seeds > 1 else ""
    return mean, f"{mean:.4f}" + (f" ({each})" if each else ""), f"{pace:,.0f} rows/s"


@cache
def _result_of(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """What was predicted, its standard deviation and 90 % reach (for numbers), and the seconds."""
    X, y = data.load(name)
    began, nothing = time.perf_counter(), np.empty(0)
    if name in data.CLASSIFICATION:
        f = AutoClassifier(random_state=seed).prequential(X, y, classes=np.unique(y))
        return f, nothing, nothing, time.perf_counter() - began
    f, sd, low, _ = AutoRegressor(random_state=seed).prequential(
        X, y, return_std=True, return_interval=0.9
    )
    return f, sd, f - low, time.perf_counter() - began


def _others(name: str, X: np.ndarray, y: np.ndarray, them: dict, quick: bool) -> dict[str, float]:
    present = peers.present(them, quick)
    return {who: data.score(name)(run(X, y), y) for who, run in present.items()}


def _listed(others: dict[str, float]) -> str:
    return ", ".join(f"{who} {error:.4f}" for who, error in others.items())


def examples(quick: bool) -> Section:
    """R2 on the examples that docs/when-not.md had for when not to use it."""
    found = Section("examples", "R2 on rows never seen")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2300, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=2300)
    few, rest = slice(0, 300), slice(300, None)
    for how in ("fit", "partial_fit"):
        model = getattr(AutoRegressor(random_state=0), how)(X[few], y[few])
        _at_least(found, f"300 rows, {how}", model.score(X[rest], y[rest]), 0.97)
    L = rng.normal(size=(12_000, 20))
    t = L @ rng.normal(size=20) + 0.1 * rng.normal(size=12_000)
    if not quick:
        model = AutoRegressor(random_state=0).partial_fit(L[:10_000], t[:10_000])
        _at_least(found, "linear target", model.score(L[10_000:], t[10_000:]), 0.999)
    for extra in (0, 5, 20, 50):
        W = np.hstack([X, rng.normal(size=(2300, extra))])
        if quick and extra != 20:
            continue
        model = AutoRegressor(random_state=0).fit(W[:2000], y[:2000])
        least = 0.98 if extra >= 20 else 0.97
        _at_least(found, f"{extra} useless inputs", model.score(W[2000:], y[2000:]), least)
    return found


def _at_least(found: Section, what: str, value: float, least: float) -> None:
    found.add(what, f"{value:.4f}", None, f">= {least:g}", value >= least)


def drift(quick: bool) -> Section:
    """River's FriedmanDrift, beside the better of its forest and its linear model."""
    found = Section("drift", "FriedmanDrift, 12,000 rows, error / variance after the first fifth")
    for kind in data.DRIFTS:
        X, y = data.friedman(kind, 3000 if quick else 12_000)
        f = AutoRegressor(random_state=0).prequential(X, y)
        ours = data.error_over_variance(f, y)
        them = {k: v for k, v in peers.REGRESSORS.items() if k.startswith("River")}
        others = _others(kind, X, y, them, quick)
        found.at_most(kind, f"{ours:.4f}", ours / min(others.values()), 0.6, _listed(others))
        if quick:
            break
    return found


def coverage(quick: bool) -> Section:
    """Intervals for 90 %: how often they hold, also in the worst window, and how wide they are."""
    found = Section(
        "intervals", f"share of targets inside 90 % intervals; windows of {WINDOW} rows"
    )
    for name in data.REGRESSION:
        if not data.wanted(name, quick):
            continue
        y, (f, sd, reach, _) = data.load(name)[1], _result_of(name, 0)
        off, first = np.abs(y - f), len(y) // 5
        inside, normal = (off <= reach)[first:], (off <= 1.645 * sd)[first:]
        worst = np.convolve(inside, np.ones(WINDOW) / WINDOW, "valid").min()
        slack = 0.005 if len(y) >= 5000 else 0.01
        held = abs(inside.mean() - 0.9) <= slack and worst >= 0.85
        narrow = float(np.mean(reach[first:]) / np.mean(1.645 * sd[first:]))
        wanted = f"{0.9 - slack:g} to {0.9 + slack:g}, worst >= .85"
        about = f"Gaussian {normal.mean():.3f}, {narrow:.2f} of its width"
        if normal.mean() >= 0.9:
            held = held and narrow < 1.0
        found.add(name, f"{inside.mean():.3f}, worst {worst:.3f}", None, wanted, held, about)
    found.rows.append(_doubling())
    return found


def _doubling() -> Row:
    """Scores that double at row 10^5 are covered again soon."""
    rng = np.random.default_rng(0)
    scores = np.abs(rng.normal(size=(104_000, 1)))
    scores[100_000:] *= 2.0
    _, widths = intervals.follow_scores(intervals.start((0.9,), 1), scores)
    held = scores <= widths[:, :, 0]
    next_2000, after = float(held[100_000:102_000].mean()), float(held[102_000:].mean())
    about = f"{held[100_000:100_500].mean():.3f} of the first 500"
    wanted = ">= .87 in 2,000 rows and after"
    text = f"{next_2000:.3f}, then {after:.3f}"
    return Row("scores double at 10^5", text, None, wanted, min(next_2000, after) >= 0.87, about)
