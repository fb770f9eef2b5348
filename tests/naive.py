"""Algorithm 1 as plain loops in float64, numbers only: the slow truth that engines are held to.

It shares no code with the package but the frequencies and the loss's slope is written out again,
so that a mistake made once is not made twice.
"""

from __future__ import annotations

import math


def slope(name: str, y: float, f: float, p: float | None) -> float:
    e = f - y
    if name == "squared":
        return e
    if name == "hinge":
        return -y if y * f < 1 else 0.0
    if name == "squared_hinge":
        return -y * (1 - y * f) if y * f < 1 else 0.0
    if name == "logistic":
        return -y / (1 + math.exp(y * f))
    if name == "huber":
        return e if abs(e) <= p else math.copysign(p, e)
    if name == "absolute":
        return 0.0 if e == 0 else math.copysign(1.0, e)
    if name == "epsilon_insensitive":
        return math.copysign(1.0, e) if abs(e) > p else 0.0
    if name == "quantile":
        return (1 - p) if e > 0 else (-p if e < 0 else 0.0)
    raise KeyError(name)


def z_of(features, omega, x):
    """Features of one input, one number at a time, from explicit frequencies."""
    F, scale = features.n_frequencies, math.sqrt(2 / features.D)
    angle = [sum(omega[j][i] * float(x[j]) for j in range(len(x))) for i in range(F)]
    if features.phases is not None:
        return [scale * math.cos(a + float(b)) for a, b in zip(angle, features.phases, strict=True)]
    return [scale * math.cos(a) for a in angle] + [scale * math.sin(a) for a in angle]


def explicit_frequencies(features):
    """omega as d lists of F numbers; a structured map is multiplied out with a full Hadamard."""
    if features.omega is not None:
        return features.omega.tolist()
    _, B, p = features.signs.shape
    hadamard = [
        [(-1.0) ** bin(i & j).count("1") / math.sqrt(p) for j in range(p)] for i in range(p)
    ]
    columns = []
    for b in range(B):
        rows = [[1.0 if i == j else 0.0 for j in range(p)] for i in range(p)]  # identity
        for s in (2, 1, 0):  # H D_0 H D_1 H D_2 x: the last sign vector touches x first
            sign = [float(v) for v in features.signs[s][b]]
            rows = [
                [sum(hadamard[i][k] * sign[k] * rows[k][j] for k in range(p)) for j in range(p)]
                for i in range(p)
            ]
        columns += [[float(features.norms[b][i]) * rows[i][j] for j in range(p)] for i in range(p)]
    columns = columns[: features.n_frequencies]
    return [[column[j] for column in columns] for j in range(features.d)]


def learn(features, loss, schedule, lam, graphs, order, every, intercept, average, X, Y, weight, K):
    """X[t][k], Y[t][k], weight[t][k] -> predictions[t][k], theta[k], bias[k], means."""
    n, m, D, c = len(X), len(Y[0][0]), features.D, intercept
    theta = [[[0.0] * D for _ in range(m)] for _ in range(K)]
    bias = [[0.0] * m for _ in range(K)]
    mean = [[[0.0] * D for _ in range(m)] for _ in range(K)]
    mean_bias = [[0.0] * m for _ in range(K)]
    count = [0] * K
    omega = explicit_frequencies(features)
    predictions = []

    def combined(vectors, t):
        A = graphs[t % len(graphs)]
        return [
            [
                [sum(A[k][j] * vectors[j][o][i] for j in range(K) if A[k][j]) for i in range(D)]
                for o in range(m)
            ]
            for k in range(K)
        ]

    for t in range(n):
        if order == "cta" and graphs and t % every == 0:
            theta = combined(theta, t)
        row = []
        for k in range(K):
            if weight[t][k] <= 0:
                row.append([math.nan] * m)
                continue
            z = z_of(features, omega, X[t][k])
            f = [sum(a * b for a, b in zip(theta[k][o], z, strict=True)) for o in range(m)]
            f = [f[o] + c * bias[k][o] for o in range(m)]
            count[k] += 1
            mu = schedule(count[k], sum(v * v for v in z) + c * c)
            for o in range(m):
                g = weight[t][k] * slope(loss.name, Y[t][k][o], f[o], loss.p)
                theta[k][o] = [
                    (1 - mu * lam) * v - mu * g * u for v, u in zip(theta[k][o], z, strict=True)
                ]
                bias[k][o] -= mu * g * c
            row.append(f)
        predictions.append(row)
        if order == "atc" and graphs and (t + 1) % every == 0:
            theta = combined(theta, t)
        gain = 1 / (t + 1) if average == "uniform" else 2 / (t + 2)
        for k in range(K):
            for o in range(m):
                mean[k][o] = [
                    a + gain * (v - a) for a, v in zip(mean[k][o], theta[k][o], strict=True)
                ]
                mean_bias[k][o] += gain * (bias[k][o] - mean_bias[k][o])
    return predictions, theta, bias, mean, mean_bias


# --- second page: least squares -----------------------------------------------------------------


def squares(Z, Y, weight, rho, lam, bound=math.inf):
    """Recursive least squares as loops over numbers: f (n, m), theta (m, D), P, noise (m,)."""
    D, m = len(Z[0]), len(Y[0])
    P = [[1.0 / rho if i == j else 0.0 for j in range(D)] for i in range(D)]
    theta = [[0.0] * D for _ in range(m)]
    num, den, told = [0.1] * m, 10.0, []
    for z, y, w in zip(Z, Y, weight, strict=True):
        if w <= 0:
            told.append([math.nan] * m)
            continue
        g = [sum(P[i][j] * z[j] for j in range(D)) for i in range(D)]
        f = [sum(theta[o][i] * z[i] for i in range(D)) for o in range(m)]
        told.append(f)
        e, q = [y[o] - f[o] for o in range(m)], sum(z[i] * g[i] for i in range(D))
        noise = [max(v / den, 1e-12) for v in num]
        size = math.sqrt(sum(e[o] ** 2 / noise[o] for o in range(m)) / m / (1 / w + q))
        short = bound / size if size > bound else 1.0
        plain = 1 / w + q
        s = plain / short
        for o in range(m):
            num[o] = lam * num[o] + (short * e[o]) ** 2 / plain
            for i in range(D):
                theta[o][i] = math.sqrt(lam) * (theta[o][i] + e[o] * g[i] / s)
        den = lam * den + w
        for i in range(D):
            for j in range(D):
                P[i][j] = lam * (P[i][j] - g[i] * g[j] / s) + ((1 - lam) / rho if i == j else 0.0)
    return told, theta, P, [v / den for v in num]
