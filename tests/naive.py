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


def squares_row(P, theta, num, den, z, y, w, rho, lam, bound):
    """One row: f (m,), the weight as it was bounded, and the new P, theta, num, den."""
    D, m = len(z), len(y)
    g = [sum(P[i][j] * z[j] for j in range(D)) for i in range(D)]
    f = [sum(theta[o][i] * z[i] for i in range(D)) for o in range(m)]
    e, q = [y[o] - f[o] for o in range(m)], sum(z[i] * g[i] for i in range(D))
    noise = [max(v / den, 1e-12) for v in num]
    size = math.sqrt(sum(e[o] ** 2 / noise[o] for o in range(m)) / m / (1 / w + q))
    short = bound / size if size > bound * math.sqrt(max(w, 1.0)) else 1.0
    most = min(bound, 3.0 if bound < math.inf else bound) * math.sqrt(max(w, 1.0))
    calm = most / size if size > most else 1.0
    plain = 1 / w + q
    s = plain / short
    num = [lam * num[o] + (calm * e[o]) ** 2 / plain for o in range(m)]
    theta = [[math.sqrt(lam) * (theta[o][i] + e[o] * g[i] / s) for i in range(D)] for o in range(m)]
    prior = (1 - lam) / rho
    P = [
        [lam * (P[i][j] - g[i] * g[j] / s) + (prior if i == j else 0.0) for j in range(D)]
        for i in range(D)
    ]
    return f, 1 / (s - q), (P, theta, num, lam * den + w)


def squares_start(D, m, rho):
    P = [[1.0 / rho if i == j else 0.0 for j in range(D)] for i in range(D)]
    return P, [[0.0] * D for _ in range(m)], [0.1] * m, 10.0


def squares(Z, Y, weight, rho, lam, bound=math.inf):
    """Recursive least squares as loops over numbers: f (n, m), theta (m, D), P, noise (m,)."""
    known, told = squares_start(len(Z[0]), len(Y[0]), rho), []
    for z, y, w in zip(Z, Y, weight, strict=True):
        if w <= 0:
            told.append([math.nan] * len(y))
            continue
        f, _, known = squares_row(*known, z, y, w, rho, lam, bound)
        told.append(f)
    P, theta, num, den = known
    return told, theta, P, [v / den for v in num]


# --- third page: least squares over a network whose nodes exchange sums -------------------------


def inverse(A):
    """By Gauss and Jordan, with the largest pivot of each column."""
    n = len(A)
    rows = [list(A[i]) + [1.0 if i == j else 0.0 for j in range(n)] for i in range(n)]
    for i in range(n):
        best = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[best] = rows[best], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for r in range(n):
            if r != i:
                rows[r] = [a - rows[r][i] * b for a, b in zip(rows[r], rows[i], strict=True)]
    return [row[n:] for row in rows]


def row_sums(z, y, w):
    """(rows, weight, zz row by row, zy, yy) of one row as one list of numbers."""
    zz = [w * a * b for a in z for b in z]
    zy = [w * v * a for v in y for a in z]
    return [1.0, w, *zz, *zy, *[w * v * v for v in y]]


def squares_of_sums(X, D, m, rho):
    """What one who saw rows with these sums would know: P, theta, num, den."""
    zz = [[X[2 + i * D + j] + (rho if i == j else 0.0) for j in range(D)] for i in range(D)]
    at = 2 + D * D
    zy = [X[at + o * D : at + (o + 1) * D] for o in range(m)]
    yy, P = X[at + m * D :], inverse(zz)
    theta = [[sum(P[i][j] * zy[o][j] for j in range(D)) for i in range(D)] for o in range(m)]
    left = [yy[o] - sum(theta[o][i] * zy[o][i] for i in range(D)) for o in range(m)]
    return P, theta, [0.1 + max(v, 0.0) for v in left], 10.0 + X[1]


def squares_forgotten(X, D, m, rho, gone):
    """Sums of what is known once P has gone back to the prior by a factor."""
    P, theta, num, _ = squares_of_sums(X, D, m, rho)
    P = [
        [gone * P[i][j] + ((1 - gone) / rho if i == j else 0.0) for j in range(D)] for i in range(D)
    ]
    A, theta = inverse(P), [[math.sqrt(gone) * v for v in row] for row in theta]
    zy = [[sum(A[i][j] * theta[o][j] for j in range(D)) for i in range(D)] for o in range(m)]
    yy = [gone * (num[o] - 0.1) + sum(theta[o][i] * zy[o][i] for i in range(D)) for o in range(m)]
    zz = [A[i][j] - (rho if i == j else 0.0) for i in range(D) for j in range(D)]
    return [X[0], gone * X[1], *zz, *[v for row in zy for v in row], *yy]


def shared_squares(Z, Y, weight, A, order, every, rho, lam, bound, fewest=1):
    """Z[t][k], Y[t][k], weight[t][k] -> f[t][k], theta[k], P[k], and each node's sums, with those
    it holds back. A: (K, K) weights; where columns do not sum to one by push-sum.
    """
    n, K, D, m = len(Z), len(A), len(Z[0][0]), len(Y[0][0])
    column = [sum(A[k][j] for k in range(K)) for j in range(K)]
    B = [[A[k][j] / column[j] for j in range(K)] for k in range(K)]
    none = [0.0] * (2 + D * D + m * D + m)
    known = [squares_start(D, m, rho) for _ in range(K)]
    sums, held, share, seen = [none] * K, [none] * K, [1.0] * K, [0.0] * K
    told = []

    def plus(a, b, times=1.0):
        return [x + times * y for x, y in zip(a, b, strict=True)]

    def exchange():
        for k in range(K):
            if held[k][0] >= fewest:
                sums[k], held[k] = plus(sums[k], held[k]), none
        before, shares = list(sums), list(share)
        for k in range(K):
            sums[k], share[k] = none, 0.0
            for j in range(K):
                sums[k] = plus(sums[k], before[j], B[k][j])
                share[k] += B[k][j] * shares[j]
            times = K / share[k]
            whole = [times * v for v in sums[k]]
            known[k] = squares_of_sums(plus(whole, held[k]), D, m, rho)
            if lam < 1:
                gone = lam ** max(0.0, whole[0] - seen[k])
                seen[k] = whole[0]
                sums[k] = [v / times for v in squares_forgotten(whole, D, m, rho, gone)]

    for t in range(n):
        if order == "cta" and t % every == 0:
            exchange()
        row = []
        for k in range(K):
            z, y, w = Z[t][k], Y[t][k], weight[t][k]
            if w <= 0:
                row.append([math.nan] * m)
                continue
            f, w, known[k] = squares_row(*known[k], z, y, w, rho, lam, bound)
            held[k] = plus(held[k], row_sums(z, y, w))
            row.append(f)
        told.append(row)
        if order == "atc" and (t + 1) % every == 0:
            exchange()
    sums = [plus(sums[k], held[k]) for k in range(K)]
    return told, [each[1] for each in known], [each[0] for each in known], sums


def origin_squares(Z, Y, weight, A, order, every, rho, lam, bound, fewest=1):
    """The same with sums per origin: what node k knows of node j is how many of its rows."""
    n, K, D, m = len(Z), len(A), len(Z[0][0]), len(Y[0][0])
    none = [0.0] * (2 + D * D + m * D + m)
    known = [squares_start(D, m, rho) for _ in range(K)]
    rows, heard = [[] for _ in range(K)], [[0] * K for _ in range(K)]
    kept, before, told = [none] * K, [none] * K, []

    def exchange():
        for k in range(K):
            if len(rows[k]) >= heard[k][k] + fewest:
                heard[k][k] = len(rows[k])
        old = [list(each) for each in heard]
        for k in range(K):
            for other in range(K):
                if A[k][other]:
                    heard[k] = [max(a, b) for a, b in zip(heard[k], old[other], strict=True)]
        for k in range(K):
            total = none
            for j in range(K):
                for row in rows[j] if j == k else rows[j][: heard[k][j]]:
                    total = [a + b for a, b in zip(total, row, strict=True)]
            came = [a - b for a, b in zip(total, before[k], strict=True)]
            left = squares_forgotten(kept[k], D, m, rho, lam ** came[0])
            kept[k], before[k] = [a + b for a, b in zip(left, came, strict=True)], total
            known[k] = squares_of_sums(kept[k] if lam < 1 else total, D, m, rho)

    for t in range(n):
        if order == "cta" and t % every == 0:
            exchange()
        told.append([[math.nan] * m for _ in range(K)])
        for k in range(K):
            if weight[t][k] > 0:
                given = Z[t][k], Y[t][k], weight[t][k], rho, lam, bound
                told[t][k], w, known[k] = squares_row(*known[k], *given)
                rows[k].append(row_sums(Z[t][k], Y[t][k], w))
        if order == "atc" and (t + 1) % every == 0:
            exchange()
    return told, [each[1] for each in known], [each[0] for each in known]
