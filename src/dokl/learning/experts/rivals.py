"""What predicts beside a bank that is frozen: a linear function, and each input as it is.

A bank bends where its rows were, and rows long after its last may lie elsewhere. A linear function
of all rows, or an input that is an earlier value of the target, ages more slowly. For rows far
beyond the last one the prediction is

    f* = w_0 f + w_1 (a + b'x) + sum_j w_j x_j,   w >= 0, sum w = 1

with f the bank's own. Frozen copies of the bank (`copies`) predict the rows after them, and so do
the linear function as it was then and the inputs; with e the errors of all on the same row,

    G = mean of e e',   w minimises  w'G w + (CHANCE^2/k) sum_i G*_ii (w_i - [i = 0])^2

with G*_ii = G_ii, and the least of all for the bank; so weight leaves the bank as far as more than
chance explains it; k is the effective number of rows (`mixture.weigh`). What nobody foresaw decides
little: where all errors of a row are larger than FORESEEN times that of f* so far, they are scaled
down to it. (A sensor that fails is no reason to leave one predictor for another.) Inputs whose
squared errors are more than WORST times the bank's are not tried, and where all of it gains the
share g of the bank's squared error, weight leaves it by the share 1 - (1/g - 1)/(1/LEAST - 1) of
that: a bank that learns from row to row is better than its copies were.

(LEAST, and how copies count, were chosen by models frozen at rows within the first four fifths of
39 series and horizons; streams in no order then lose nothing.)

>>> rng = np.random.default_rng(0)
>>> x = rng.normal(size=(400, 2)).cumsum(axis=0)
>>> known = start(x[:300], x[:300, :1], np.ones(300))
>>> bank = np.full((1, 100, 1), x[299, 0])  # stays where it was frozen
>>> known = with_copy(known)
>>> known, _ = judged(known, bank, x[300:], x[300:, :1], np.ones(100))
>>> bool(beside(known).weights[0, 0] < 0.1)
True
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import drift
from dokl.learning.drift import CHANCE
from dokl.learning.experts.scaling import CLIP, cut_wild_targets, scaling_of

WORST, LEAST = 2.0, 0.05
FORESEEN = 3.0
MOST_TRIED = 100  # inputs; of more none is tried as it is
ROUNDING = 1e-10
FARTHEST = 1e6  # squares stay finite
SIZES = 1e-150, 1e150  # of inputs: one beyond is nearly constant, or cut off
PENALTIES = tuple(10.0**k for k in range(4, -5, -1))  # rows that inputs would explain
HEAVY = 1e3  # that weights sum to one, as an equation beside others


@dataclass(frozen=True)
class Beside:
    """weights: (m, K), of the bank, a linear function, and the inputs if they are tried; linear:
    (m, 1 + d); low, high: (d,), where inputs are cut off. error: (m,), of f* with these
    weights, the root of its mean square over all distances.
    """

    weights: Array
    error: Array
    linear: Array
    low: Array
    high: Array

    def each(self, f: Array, X: Array) -> Array:
        """All predictions, (n, K, m), where a bank predicts f: (n, m) for rows X: (n, d)."""
        x, (m, K) = np.clip(X, self.low, self.high), self.weights.shape
        linear = self.linear[:, 0] + x @ self.linear[:, 1:].T
        inputs = np.broadcast_to(x[:, : K - 2, None], (len(x), K - 2, m))
        return np.concatenate([f[:, None], linear[:, None], inputs], axis=1)

    def mixed(self, f: Array, X: Array) -> Array:
        """f*: (n, m), where a bank predicts f: (n, m) for rows X: (n, d)."""
        if (self.weights[:, 0] == 1.0).all():
            return f
        return np.asarray(np.einsum("mk,nkm->nm", self.weights, self.each(f, X)))

    def variance(self, of_bank: Array) -> Array:
        """Of f*, (n, m), where that of the bank's prediction is (n, m)."""
        own = self.weights[:, 0]
        return np.asarray(own * of_bank + (1.0 - own) * self.error**2)


@dataclass(frozen=True)
class Rivals:
    """Sums over rows of weight w: xx, w z z' (1 + d, 1 + d), and yx, w y z' (m, 1 + d), with
    z = [1, (x - origin)/scale] of inputs cut off at low and high, (d,) each; seen: (2, d), the
    lowest and highest inputs. yy: (m,), w y^2; earlier files have none.

    With errors e in units of `unit`: (m,), products: (m, K, K) are sums of e e', squares: (m, K) of
    e^4, over `rows`. counts: (1 + DISTANCES, m, SCORES) of scores of f* by distance, as of
    copies in `Drift`, and of all together (0). copies: as they were when copies of the bank were
    taken, the newest ones.
    """

    origin: Array
    scale: Array
    unit: Array
    xx: Array
    yx: Array
    seen: Array
    low: Array
    high: Array
    products: Array
    squares: Array
    counts: Array
    rows: float = 0.0
    yy: Array | None = None
    copies: tuple[Beside, ...] = field(default=())


def inputs_tried(d: int) -> int:
    """How many of d inputs are tried as they are: all of them, or none."""
    return d if d <= MOST_TRIED else 0


def start(X: Array, Y: Array, weight: Array) -> Rivals:
    """After rows X: (n, d), Y: (n, m) of weight (n,), nothing compared."""
    d, m = X.shape[1], Y.shape[1]
    x, y, K = cut_wild_targets(X), cut_wild_targets(Y), 2 + inputs_tried(d)
    inputs = scaling_of(x)
    scale = np.clip(inputs.size, *SIZES)
    low = np.maximum(x.min(axis=0), inputs.centre - FARTHEST * scale)
    high = np.minimum(x.max(axis=0), inputs.centre + FARTHEST * scale)
    known = Rivals(
        origin=inputs.centre,
        scale=scale,
        unit=scaling_of(y).size,
        xx=np.zeros((1 + d, 1 + d)),
        yx=np.zeros((m, 1 + d)),
        seen=np.stack([low, high]),
        low=low,
        high=high,
        products=np.zeros((m, K, K)),
        squares=np.zeros((m, K)),
        counts=drift.start(m).counts[0],
        yy=np.zeros(m),
    )
    return _with_limits(with_rows(known, x, y, weight))


def with_rows(known: Rivals, X: Array, Y: Array, weight: Array) -> Rivals:
    """After further rows."""
    x = np.clip(X, known.low, known.high)
    seen = np.stack([x.min(axis=0, initial=np.inf), x.max(axis=0, initial=-np.inf)])
    seen = np.stack([np.minimum(known.seen[0], seen[0]), np.maximum(known.seen[1], seen[1])])
    z = np.hstack([np.ones((len(x), 1)), (x - known.origin) / known.scale])
    heavy = weight[:, None] * z
    yy = None if known.yy is None else known.yy + weight @ Y**2
    return replace(known, xx=known.xx + heavy.T @ z, yx=known.yx + Y.T @ heavy, yy=yy, seen=seen)


def _with_limits(known: Rivals) -> Rivals:
    """Inputs are cut off at CLIP standard deviations beyond all so far, and at FARTHEST of those of
    the first rows; what was the same in all rows only there.
    """
    mean, (lowest, highest) = known.xx[0, 1:] / known.xx[0, 0], known.seen
    size = np.sqrt(np.maximum(known.xx.diagonal()[1:] / known.xx[0, 0] - mean**2, 0.0))
    farthest, same = FARTHEST * known.scale, highest - lowest <= ROUNDING * known.scale
    room = np.where(same, farthest, CLIP * size * known.scale)
    low = np.maximum(lowest - room, known.origin - farthest)
    return replace(known, low=low, high=np.minimum(highest + room, known.origin + farthest))


def with_copy(known: Rivals) -> Rivals:
    """With a copy as of now, and from now on the limits of the inputs so far."""
    known = _with_limits(known)
    return replace(known, copies=(*known.copies, beside(known)))


def faded(known: Rivals, share: float) -> Rivals:
    """What was compared so far counts this share."""
    return replace(
        known,
        products=share * known.products,
        squares=share**2 * known.squares,
        counts=share * known.counts,
        rows=share * known.rows,
    )


def judged(
    known: Rivals, f: Array, X: Array, Y: Array, weight: Array, after: Array | None = None
) -> tuple[Rivals, Array]:
    """After comparing on rows X: (n, d), Y: (n, m), for which copies of the bank predict f: (C, n,
    m); and what each copy makes of it with the weights of the newest one, f*: (C, n, m).

    weight: (n,), how many rows each stands for; after: (C, n), which rows follow a copy, else all.
    """
    found = np.empty_like(f)
    if not known.copies:
        return known, found
    products, squares = known.products.copy(), known.squares.copy()
    rows, newest = known.rows, known.copies[-1]
    for c, copy in enumerate(known.copies):
        each = copy.each(f[c], X)
        found[c] = np.einsum("mk,nkm->nm", newest.weights, each)
        w = weight if after is None else weight * after[c]
        for k in range(Y.shape[1]):
            with np.errstate(over="ignore"):
                e = (each[:, :, k] - Y[:, k, None]) / known.unit[k]
            e = _foreseen(np.clip(e, -FARTHEST, FARTHEST), newest.error[k] / known.unit[k])
            products[k] += e.T @ (w[:, None] * e)
            squares[k] += w @ e**4
        rows += float(w.sum())
    return replace(known, products=products, squares=squares, rows=rows), found


def _foreseen(e: Array, usual: float) -> Array:
    """Errors (n, K) of rows, smaller where the least of a row is beyond FORESEEN usual ones."""
    if not usual > 0.0:
        return e
    least = np.abs(e).min(axis=1, keepdims=True)
    return np.asarray(e * (FORESEEN * usual / np.maximum(least, FORESEEN * usual)))


def beside(known: Rivals) -> Beside:
    """What predicts beside the bank as of now, for inputs as far as they have come by now."""
    known = _with_limits(known)
    both = zip(known.products, known.squares, strict=True)
    weights = np.array([_weights(*each) for each in both])
    square = np.einsum("mk,mkl,ml->m", weights, known.products, weights) / max(known.rows, 1.0)
    error = known.unit * np.sqrt(np.maximum(square, 0.0))
    return Beside(weights, error, _linear(known), known.low, known.high)


def _linear(known: Rivals) -> Array:
    """(m, 1 + d), by least squares with a penalty that generalised cross-validation chooses; in
    earlier files as if one row were explained by each input.
    """
    n = known.xx[0, 0]
    mean, of_y = known.xx[0, 1:] / n, known.yx[:, 0] / n
    spread = known.xx[1:, 1:] / n - np.outer(mean, mean)
    size = np.sqrt(np.maximum(spread.diagonal(), 0.0))
    size = np.where(size > ROUNDING, size, np.inf)
    pull = (known.yx[:, 1:] / n - np.outer(of_y, mean)) / size
    correlation = spread / np.outer(size, size)
    correlation.flat[:: len(size) + 1] = 1.0
    values, axes = np.linalg.eigh(correlation)
    of_targets = None if known.yy is None else known.yy / n - of_y**2
    along = _ridge(np.maximum(values, 0.0), pull @ axes, of_targets, n)
    slope = along @ axes.T / (size * known.scale)
    return np.column_stack([of_y - slope @ (known.origin + known.scale * mean), slope])


def _ridge(values: Array, pull: Array, variance: Array | None, n: float) -> Array:
    """Slopes (m, d) along axes on which inputs have variances `values`: (d,), and covariances
    `pull`: (m, d) with targets of this variance: (m,); n: rows.
    """
    penalties = np.array(PENALTIES if variance is not None else (1.0,)) / n
    slopes = pull / (values + penalties[:, None, None])
    if variance is None:
        return np.asarray(slopes[0])
    left = variance - 2.0 * np.einsum("pmd,md->pm", slopes, pull) + slopes**2 @ values
    left = np.maximum(left, ROUNDING * variance)
    free = 1.0 - (1.0 + (values / (values + penalties[:, None])).sum(axis=1)) / n
    chosen = np.argmin(left / np.maximum(free, ROUNDING)[:, None] ** 2, axis=0)
    return np.asarray(slopes[chosen, np.arange(len(pull))])


def _weights(G: Array, squares: Array) -> Array:
    """(K,), of sums of products of errors G: (K, K) and of their fourth powers (K,)."""
    from scipy.optimize import nnls

    own, w = G.diagonal(), np.zeros(len(G))
    w[0] = 1.0
    if not own[0] > 0.0:
        return w
    tried = np.flatnonzero((own <= WORST * own[0]) | (np.arange(len(G)) < 2))
    errs = tried[own[tried] > ROUNDING * own[0]]
    best = errs[own[errs].argmin()]
    effective_rows = max(float(own[best] ** 2 / squares[best]), 1.0)
    G = G[np.ix_(tried, tried)] / own[0]
    # What chance may do has the size of the errors of the best, however far off the bank is.
    chance = CHANCE**2 / effective_rows * np.append(own[best] / own[0], G.diagonal()[1:]) + ROUNDING
    A = np.linalg.cholesky(G + np.diag(chance)).T
    b = np.linalg.solve(A.T, chance * (tried == 0))
    found = nnls(np.vstack([A, np.full(len(A), HEAVY)]), np.append(b, HEAVY))[0]
    w[tried] = found / found.sum()
    gain = 1.0 - float(w[tried] @ G @ w[tried])
    kept = LEAST / (1.0 - LEAST) * (1.0 - gain) / gain if gain > 0.0 else 1.0
    share = max(0.0, 1.0 - kept)
    w *= share
    w[0] += 1.0 - share
    return w
