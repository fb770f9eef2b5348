"""One node, one sample after another: against NumPy, scikit-learn, and the machine's own limit."""

from __future__ import annotations

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDRegressor
from threadpoolctl import threadpool_limits

from benchmarks import limit
from benchmarks.common import Section, in_turns, last_tenth, micro, ratio
from dokl import Exchange, KernelRegressor, Problem, gradient
from dokl.simulation.diffusion import init
from dokl.simulation.engines import numba_engine
from dokl.simulation.streams import Example2

N, d, D, SIGMA, STEP = 20_000, 5, 2500, 5.0, 1.0
ROUNDS, TAIL = 18, N // 10
PART = (N - TAIL) // ROUNDS  # rows per round of the slow ones, which so make one pass, too


def model() -> KernelRegressor:
    return KernelRegressor(
        sigma=SIGMA, n_components=D, features="cos", step=STEP, dtype="float32", random_state=0
    )


class NumpyLoop:
    """The same algorithm with the same features, as one writes it in NumPy."""

    def __init__(self, features, X, y, dtype):
        self.omega, self.phases = features.omega.astype(dtype), features.phases.astype(dtype)
        self.scale, self.X, self.y = dtype(features.scale), X.astype(dtype), y.astype(dtype)
        self.theta, self.errors = np.zeros(D, dtype), np.empty(N, dtype)

    def feed(self, start: int, stop: int) -> int:
        theta = self.theta
        for i in range(start, stop):
            z = self.scale * np.cos(self.X[i] @ self.omega + self.phases)
            error = self.y[i] - theta @ z
            theta += STEP * error * z
            self.errors[i] = error
        return stop - start


class ScikitLearn:
    """RBFSampler and SGDRegressor.partial_fit, row by row."""

    def __init__(self, X, y):
        self.sampler = RBFSampler(gamma=1 / (2 * SIGMA**2), n_components=D, random_state=0).fit(X)
        self.sgd = SGDRegressor(
            penalty=None, learning_rate="constant", eta0=STEP, fit_intercept=False
        )
        self.X, self.y = X, y
        self.sgd.partial_fit(self.sampler.transform(X[:1]), y[:1])

    def feed(self, start: int, stop: int) -> int:
        for i in range(max(start, 1), stop):
            self.sgd.partial_fit(self.sampler.transform(self.X[i : i + 1]), self.y[i : i + 1])
        return stop - start

    def tail_error(self) -> float:
        """Learn the last tenth, predicting each row before."""
        errors = []
        for i in range(N - TAIL, N):
            z = self.sampler.transform(self.X[i : i + 1])
            errors.append(self.y[i] - self.sgd.predict(z)[0])
            self.sgd.partial_fit(z, self.y[i : i + 1])
        return float(np.mean(np.square(errors)))


def tail_errors(X, y) -> np.ndarray:
    """Ours through the public API: one call for nine tenths, then predict and learn row by row."""
    ours, errors = model().partial_fit(X[:-TAIL], y[:-TAIL]), []
    for i in range(N - TAIL, N):
        errors.append(y[i] - ours.predict(X[i : i + 1])[0])
        ours.partial_fit(X[i : i + 1], y[i : i + 1])
    return np.array(errors)


def measure() -> Section:
    how = (
        f"d = {d}, D = {D}, squared loss, cos features, {N:,} rows in order, one core. A new model "
        "each time, the drawing of its\nfeatures included; medians of rounds in turns. Accuracy: "
        "mean squared a-priori error of the last tenth."
    )
    section = Section("single: one node, one sample after another", how)
    stream = Example2(K=1, n=N, d=d).draw(0)
    X, y = stream.X[:, 0], stream.y[:, 0]
    with threadpool_limits(1):
        _many_rows(section, X, y)
        _one_row(section, X, y)
        _one_step(section, X, y)
    return section


def _many_rows(section: Section, X, y) -> None:
    features = model().partial_fit(X, y).feature_map_  # compiles, too
    slow, single, peer = (
        NumpyLoop(features, X, y, np.float64),
        NumpyLoop(features, X, y, np.float32),
        ScikitLearn(X, y),
    )
    limit.multiply_adds()
    jobs = {
        "dokl": lambda r: len(model().partial_fit(X, y).state_.count) * N,
        "fma": lambda r: limit.multiply_adds(),
        "numpy": lambda r: slow.feed(r * PART, (r + 1) * PART),
        "numpy32": lambda r: single.feed(r * PART, (r + 1) * PART),
        "sklearn": lambda r: peer.feed(r * PART, (r + 1) * PART),
    }
    times = in_turns(jobs, ROUNDS)
    for loop in (slow, single):
        loop.feed(N - TAIL, N)
    errors, same = tail_errors(X, y), slow.errors[-TAIL:]
    # Row by row: two mean squares may agree by chance.
    gap = float(np.sqrt(np.mean((errors - same) ** 2) / np.mean(same**2)))
    mse, ours = f"MSE {np.mean(errors**2):.6f}", times["dokl"]
    section.add("dokl, one partial_fit of all rows", micro(ours), accuracy=mse)
    peers = (
        ("against a NumPy float64 loop", "numpy", 40, f"MSE {last_tenth(slow.errors):.6f}"),
        ("against RBFSampler + SGDRegressor", "sklearn", 100,
         f"MSE {peer.tail_error():.6f} (other frequencies)"),
    )  # fmt: skip
    for what, name, least, accuracy in peers:
        section.at_least(what, micro(times[name]), ratio(times[name], ours), least, accuracy)
    section.add(
        "against a NumPy float32 loop", micro(times["numpy32"]), ratio(times["numpy32"], ours),
        accuracy=f"MSE {last_tenth(single.errors):.6f}",
    )  # fmt: skip
    what = "errors of the last tenth, row by row, against the float64 loop"
    section.add(what, f"{gap:.1e} apart", None, "<= 1e-3", gap <= 1e-3)
    _limit(section, ours, times["fma"], mse)


def _limit(section: Section, ours: np.ndarray, multiply_add: np.ndarray, mse: str) -> None:
    needed, width = limit.instructions(d), limit.lanes()
    bound, rate = needed * D * multiply_add, 1e-9 / float(np.median(multiply_add))
    what = "over the machine's own limit"
    section.at_most(what, micro(bound), ratio(ours, bound), 2, mse)
    parts = ", ".join(f"{what} {n}" for what, n in limit.NEEDED.items())
    low, high = ours.min() * 1e6, ours.max() * 1e6
    section.notes.append(
        f"dokl took {low:.3g} to {high:.3g} us/sample, depending on where its arrays lay in memory"
    )
    section.notes.append(
        f"limit: {needed} vector instructions (projection {d}, {parts}) on {width} float32 each, "
        f"{needed * D / width:,.0f} a sample;\n  {rate:.1f} GFMA/s measured in the same rounds, "
        f"{rate / width:.2f} billion vector instructions a second. Loads and stores are not counted"
    )


def _one_row(section: Section, X, y) -> None:
    ours, peer, rows = model().partial_fit(X[:1], y[:1]), ScikitLearn(X, y), 100
    Z = peer.sampler.transform(X[: 30 * rows])

    def dokl(number: int) -> int:
        for i in range(number * rows, (number + 1) * rows):
            ours.partial_fit(X[i : i + 1], y[i : i + 1])
        return rows

    def sklearn(number: int) -> int:
        for i in range(number * rows, (number + 1) * rows):
            peer.sgd.partial_fit(Z[i : i + 1], y[i : i + 1])
        return rows

    times = in_turns({"dokl": dokl, "sklearn": sklearn}, 30)
    figure = f"{micro(times['dokl'], 'row')} against {micro(times['sklearn'], 'row')}"
    section.at_least(
        "partial_fit of one row, against SGDRegressor on the mapped row", figure,
        ratio(times["sklearn"], times["dokl"]), 1, "as above",
    )  # fmt: skip


def _one_step(section: Section, X, y) -> None:
    fitted = model().partial_fit(X[:1], y[:1])
    problem = Problem(fitted.feature_map_, gradient(fitted.loss_, fitted.schedule_))
    plan = numba_engine.plan(problem, Exchange(), np.float32)
    X, Y, steps = X.astype(np.float32), y.astype(np.float32)[:, None], 500
    rows = [(X[i : i + 1], Y[i : i + 1]) for i in range(N)]
    state, f = init(problem, Exchange(), 1, 1, np.float32), np.empty(N)

    def job(number: int) -> int:
        nonlocal state
        for i in range(number * steps, (number + 1) * steps):
            state, prediction = numba_engine.step(plan, state, *rows[i])
            f[i] = prediction[0, 0]
        return steps

    times = in_turns({"step": job}, N // steps)["step"] * 1e6
    taken, error = float(np.median(times)), f"MSE {last_tenth(y - f):.6f}"
    section.add("numba_engine.step alone", f"{taken:.3g} us", None, "<= 15 us", taken <= 15, error)
