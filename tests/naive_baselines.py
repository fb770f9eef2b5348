"""The slow truth for the baselines: plain loops over lists, in float64."""

import math


def kappa(x, c, sigma):
    return math.exp(-sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) / (2 * sigma**2))


def value(f, x, sigma):
    return sum(a * kappa(x, c, sigma) for c, a in f)


def naive_klms(X, y, w, sigma, mu):
    f, predictions, sizes = [], [], []
    for x, target, weight in zip(X, y, w, strict=True):
        predictions.append(value(f, x, sigma) if weight else math.nan)
        if weight:
            f.append((x, mu * weight * (target - predictions[-1])))
        sizes.append(len(f))
    return predictions, sizes, f


def naive_qklms(X, y, w, sigma, mu, q):
    f, predictions, sizes = [], [], []
    for x, target, weight in zip(X, y, w, strict=True):
        predictions.append(value(f, x, sigma) if weight else math.nan)
        if weight:
            push = mu * weight * (target - predictions[-1])
            squares = [sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c, _ in f]
            if f and min(squares) <= q:
                i = squares.index(min(squares))
                f[i] = (f[i][0], f[i][1] + push)
            else:
                f.append((x, push))
        sizes.append(len(f))
    return predictions, sizes, f


def naive_pegasos(X, y, w, sigma, lam):
    f, predictions, sizes, n = [], [], [], 0
    for x, target, weight in zip(X, y, w, strict=True):
        predictions.append(value(f, x, sigma) if weight else math.nan)
        if weight:
            n += 1
            f = [(c, (1 - 1 / n) * a) for c, a in f]
            if target * predictions[-1] < 1:
                f.append((x, weight * target / (lam * n)))
        sizes.append(len(f))
    return predictions, sizes, f


def naive_diffusion(X, y, w, sigma, mu, A):
    """Functions as dictionaries {(step, node): coefficient}; what is sent is counted on the way."""
    n, K = len(y), len(A)
    f, sent = [{} for _ in range(K)], [set() for _ in range(K)]
    predictions, sizes, numbers = [], [], []
    for t in range(n):
        numbers.append([len(f[k]) + len(X[0][0]) * len(set(f[k]) - sent[k]) for k in range(K)])
        for k in range(K):
            sent[k] |= set(f[k])
        psi = [{} for _ in range(K)]
        for k in range(K):
            for j in range(K):
                for name, a in f[j].items() if A[k][j] else ():
                    psi[k][name] = psi[k].get(name, 0.0) + A[k][j] * a
        row = []
        for k in range(K):
            if w[t][k]:
                held = [(X[s][j], a) for (s, j), a in psi[k].items()]
                row.append(value(held, X[t][k], sigma))
                psi[k][t, k] = mu * w[t][k] * (y[t][k] - row[-1])
            else:
                row.append(math.nan)
        f = psi
        predictions.append(row)
        sizes.append([len(g) for g in f])
    return predictions, sizes, numbers, f


def naive_linear(X, y, w, mu, constant, A):
    K = len(A)
    extra = [constant] if constant else []
    theta = [[0.0] * (len(X[0][0]) + len(extra)) for _ in range(K)]
    predictions = []
    for t in range(len(y)):
        psi = [
            [sum(A[k][j] * theta[j][i] for j in range(K)) for i in range(len(theta[0]))]
            for k in range(K)
        ]
        row = []
        for k in range(K):
            x = [*X[t][k], *extra]
            row.append(sum(a * b for a, b in zip(psi[k], x, strict=True)) if w[t][k] else math.nan)
            push = mu * w[t][k] * (y[t][k] - row[-1]) if w[t][k] else 0.0
            psi[k] = [a + push * b for a, b in zip(psi[k], x, strict=True)]
        theta = psi
        predictions.append(row)
    return predictions, theta
