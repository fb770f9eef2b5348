"""Beyond the paper: what its network reaches with least squares, and beside published rivals.

Examples 1 to 4 on the same data, networks and maps: the paper's vectors, nodes alone, sums that
travel, `NetworkRegressor` without settings, and the rivals on random features (`dokl.baselines`),
all after the same few rows, each with the bytes that a node sent. The data sets of Tables II and
III in one pass: by least squares on the paper's kernel, whose sums travel, and the smaller ones by
`NetworkClassifier` without settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block
from dokl.base.random_numbers import spawn
from dokl.estimators import NetworkClassifier, NetworkRegressor
from dokl.learning import losses, schedules
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.learning.metrics import decibels
from dokl.network.exchange import Exchange, Sending
from dokl.paper import baselines
from dokl.paper.reproduce.cache import Work
from dokl.paper.reproduce.results import PartResult, Row
from dokl.paper.reproduce.settings import ReproduceOptions, classification, expected, figure
from dokl.paper.reproduce.tables import Dealt, graph
from dokl.simulation import theory
from dokl.simulation.diffusion import Problem
from dokl.simulation.engines import run
from dokl.simulation.methods import gradient, squares
from dokl.simulation.streams import example

K, EVERY = 20, 10
NETWORK_RUNS = 2  # own learners at twenty nodes take their time
KILO = 1000.0


@dataclass(frozen=True)
class BeyondSetting:
    """An example's map for least squares (tail: what modes leave out; None: no modes), and rows."""

    panel: str
    n: int
    sigma: float
    D: int
    ridge: float
    tail: float | None = None
    runs: int = 20


SETTINGS = {
    "example1": BeyondSetting("fig1a", 300, 5.0, 2500, 1e-4, 1e-4),
    "example2": BeyondSetting("fig1b", 400, 5.0, 300, 1e-4, 1e-6),
    "example3": BeyondSetting("fig1c", 500, 0.15, 60, 1e-3),
    "example4": BeyondSetting("fig1d", 1000, 0.15, 60, 1e-3),
}


@dataclass(frozen=True)
class SumsSetting:
    """Least squares on a data set: features, rows of a node between rounds, ridge (by hand, on
    another draw). auto: runs of `NetworkClassifier`, which takes long where there are many inputs
    or rows, and is left out there.
    """

    D: int
    every: int
    ridge: float
    runs: int
    auto: int = 0


DATA = {
    "banana": SumsSetting(200, 20, 1.0, 10, 2),
    "waveform": SumsSetting(300, 20, 10.0, 10, 3),
    "adult": SumsSetting(300, 100, 1.0, 5),
    "mnist": SumsSetting(500, 500, 0.1, 1),
}
WORDS = {
    "vectors": "the paper's vectors, combined with every row",
    "alone": "nodes alone, least squares",
    "sums": f"sums that travel, a round every {EVERY} rows",
    "network": "NetworkRegressor without settings: lone learners that share sums",
    "rls": "diffusion RLS, vectors with every row",
    "dkla": f"DKLA, an iteration every {EVERY} rows",
    "coke": f"COKE, an iteration every {EVERY} rows, censored",
    "apsm": "APSM, vectors with every row",
    "gp": "consensus on increments, 10 rounds with every row",
}
RIVALS = (
    "The rivals are our own programs after their papers (`dokl.baselines`), on the same data, "
    "graphs and maps, their parameters by hand: DKLA and COKE with rho = 1e-3 and lam = 1e-6 "
    "(threshold 0.5, decay 0.97), APSM with mu = 0.5 and 8 hyperslabs, consensus with the noise's "
    "own variance."
)


def _map(setting: BeyondSetting, d: int) -> Any:
    recipe = Features(Gaussian(setting.sigma), d, setting.D, "cos" if setting.tail else "paired")
    if setting.tail is None:
        return recipe
    return theory.ModalFeatures(recipe, theory.gaussian_inputs(np.zeros(d), 1.0), tail=setting.tail)


def _jobs(name: str, setting: BeyondSetting) -> dict[str, Callable[[int, int], Any]]:
    """A trace with mse and bytes for each method: (seed, runs) -> Trace."""
    stream, panel = example(name, K=K, n=setting.n), figure(setting.panel)
    d, net = stream.draw(0).X.shape[-1], graph(K)
    own = _map(setting, d)
    record: dict[str, Any] = {"record": ("mse", "bytes"), "show_progress": False}
    paper = Features(Gaussian(panel.sigma), d, panel.D, "cos")
    step = gradient(losses.squared(), schedules.constant(panel.mu))

    def ours(features: Any, method: Any, exchange: Exchange) -> Callable[[int, int], Any]:
        problem = Problem(features, method)
        return lambda seed, runs: run(problem, exchange, stream, runs=runs, seed=seed, **record)

    def theirs(method: Any) -> Callable[[int, int], Any]:
        return lambda seed, runs: baselines.run(
            method, stream, runs=runs, seed=seed, dtype=np.float64, **record
        )

    rounds = Exchange(net, every=EVERY)
    admm: dict[str, Any] = {"lam": 1e-6, "rho": 1e-3, "every": EVERY}
    return {
        "vectors": ours(paper, step, Exchange(net, "cta")),
        "alone": ours(own, squares(setting.ridge), Exchange(None)),
        "sums": ours(own, squares(setting.ridge, share="sums"), rounds),
        "rls": theirs(baselines.DiffusionRLS(own, setting.ridge, weights=net)),
        "dkla": theirs(baselines.FeatureADMM(own, **admm, weights=net)),
        "coke": theirs(baselines.FeatureADMM(own, **admm, threshold=0.5, decay=0.97, weights=net)),
        "apsm": theirs(baselines.APSM(own, 0.5, 2 * stream.noise, 8, net)),
        "gp": theirs(baselines.ConsensusGP(own, max(stream.noise**2, 1e-4), 10, net)),
    }


def examples(name: str, options: ReproduceOptions) -> PartResult:
    """One example, all methods after the same rows."""
    setting, works = SETTINGS[name], {}
    runs = options.runs or (2 if options.quick else setting.runs)
    many = dict.fromkeys(WORDS, runs) | {"network": min(runs, NETWORK_RUNS)}
    for key, job in _jobs(name, setting).items():

        def compute(seed: int, runs: int, job: Any = job) -> dict[str, Array]:
            trace = job(seed, runs)
            return {"mse": trace.tail(), "bytes": trace.curves["bytes"][:, -1] / K}

        about = {"beyond": key, "example": name, "n": setting.n, "sigma": setting.sigma,
                 "D": setting.D, "ridge": setting.ridge, "tail": setting.tail, "every": EVERY,
                 "seed": options.seed}  # fmt: skip
        works[key] = Work(f"beyond-{name}-{key}", about, runs, 5, compute)
    works["network"] = _network_work(name, setting, many["network"], options.seed)
    found = options.gather(f"beyond {name}", {key: works[key] for key in WORDS})
    group, sent, rows = f"after {setting.n} rows of each node", "sent by a node", []
    for key, each in found.items():
        mse = each.arrays["mse"]
        spread = None
        if many[key] > 1:
            spread = 4.343 * float(mse.std(ddof=1) / math.sqrt(many[key]) / mse.mean())
        rows.append(Row(group, WORDS[key], "dB", float(decibels(mse.mean())), spread, many[key]))
    for key, each in found.items():
        if key != "alone":
            kilobytes = float(each.arrays["bytes"].mean()) / KILO
            rows.append(Row(sent, WORDS[key], "kB", kilobytes, None, many[key]))
    panel, steady = figure(setting.panel), expected()["steady"][setting.panel]
    end = (
        f"The paper's scheme after {panel.n} rows of each node, as the prototypes found it: "
        f"{steady['together']} dB together, {steady['alone']} alone."
    )
    made = options.made([*found.values()], runs)
    title = f"{panel.title.split(':')[0]}, 20 nodes"
    return PartResult(f"beyond-{name}", title, rows, [], {}, [end, RIVALS], made)


def _network_work(name: str, setting: BeyondSetting, runs: int, seed: int) -> Work:
    """The own learners of a network, whose rows are those of the example."""
    stream = example(name, K=K, n=setting.n)

    def compute(seed: int, runs: int) -> dict[str, Array]:
        each = [_regressed(stream, own) for own in spawn(seed, runs)]
        return {"mse": np.array(each)[:, 0], "bytes": np.array(each)[:, 1]}

    about = {"beyond": "network", "example": name, "n": setting.n, "seed": seed}
    return Work(f"beyond-{name}-network", about, runs, 1, compute)


def _regressed(stream: Any, seed: int) -> tuple[float, float]:
    """Mean squared error at the end, as of the other methods, and bytes that a node sent."""
    _, graph_seed, data_seed = spawn(seed, 3)
    block, weights = stream.draw(data_seed).block(), graph(K).draw(graph_seed)
    steps, order = len(block.index), block.index.ravel()
    y = block.Y[order, 0]
    model = NetworkRegressor(weights, random_state=seed % 2**31)
    predicted = model.prequential(block.X[order], y, nodes=_nodes(steps))
    squared = ((predicted - y) ** 2).reshape(steps, K).mean(axis=1)
    last = max(1, round(0.1 * steps))  # as `Trace.tail`
    return float(squared[-last:].mean()), float(model.sent_bytes_.mean())


def _classified(dealt: Dealt, seed: int) -> tuple[float, float]:
    """Test error in % after one pass, mean over nodes; and bytes that a node sent."""
    _, graph_seed, data_seed = spawn(seed, 3)
    rows, weights = dealt.split(data_seed), graph(K).draw(graph_seed)
    stream = dealt.draw(data_seed)
    steps = len(rows.y_train) // K
    first = stream.block().index[:steps]
    X, y = rows.X_train, rows.y_train
    order = first.ravel()
    model = NetworkClassifier(weights, random_state=seed % 2**31)
    model.partial_fit(_dense(X[order]), y[order], classes=np.unique(y), nodes=_nodes(steps))
    test = _dense(rows.X_test)
    wrong = [np.mean(model.predict(test, nodes=k) != rows.y_test) for k in range(K)]
    return 100 * float(np.mean(wrong)), float(model.sent_bytes_.mean())


@dataclass(frozen=True)
class OnePass:
    """The first pass of a stream."""

    given: Block

    @property
    def n(self) -> int:
        """Number of steps."""
        return self.given.n

    @property
    def K(self) -> int:
        """Number of nodes."""
        return int(self.given.index.shape[1])

    def block(self) -> Block:
        """The samples as engines take them."""
        return self.given


def _summed(dealt: Dealt, kernel: Any, setting: SumsSetting, seed: int) -> tuple[float, float]:
    """The same by least squares whose sums travel."""
    feature_seed, graph_seed, data_seed = spawn(seed, 3)
    rows, weights = dealt.split(data_seed), graph(K).draw(graph_seed)
    features = Features(kernel, rows.X_train.shape[1], setting.D, "orthogonal").draw(feature_seed)
    first = OnePass(dealt.draw(data_seed).block().steps(0, len(rows.y_train) // K))
    exchange = Exchange(weights, every=setting.every, sending=Sending("float32"))
    problem = Problem(features, squares(setting.ridge, bound=math.inf, share="sums"))
    trace = run(problem, exchange, first, record=("bytes", "state"), show_progress=False)
    theta = trace.states[0].theta[:, 0]
    wrong = 0.0
    for start in range(0, rows.X_test.shape[0], 2000):
        part = slice(start, start + 2000)
        predicted = np.where(features.transform(rows.X_test[part]) @ theta.T >= 0, 1, -1)
        wrong += float((predicted != rows.y_test[part][:, None]).sum()) / K
    return 100 * wrong / rows.X_test.shape[0], float(trace["bytes"][-1]) / K


def _dense(X: object) -> Array:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64)


def _nodes(steps: int) -> Array:
    return np.tile(np.arange(K), steps)


def data(name: str, options: ReproduceOptions) -> PartResult:
    """A data set of Tables II and III, one pass."""
    setting, dataset, ours = classification(name), options.dataset(name), DATA[name]
    runs = {"sums": ours.runs} | ({"auto": ours.auto} if ours.auto else {})
    runs = {way: options.runs or (1 if options.quick else many) for way, many in runs.items()}
    works = {
        (way, size): _work(name, way, Dealt(dataset, size, K), setting, many, options.seed)
        for size in setting.sizes
        for way, many in runs.items()
    }
    by_name = options.gather(f"beyond {name}", {work.name: work for work in works.values()})
    found = {key: by_name[work.name].arrays for key, work in works.items()}
    words = {
        "sums": f"sums that travel, D = {ours.D}, a round every {ours.every} rows, one pass",
        "auto": "NetworkClassifier without settings, one pass",
    }
    rows, them = [], "the paper's scheme, 5 passes, by the prototype"
    for size in setting.sizes:
        reference = expected()["tables"][f"{name}-{size}" if size else name]["20-together"]
        group, steps = f"N = {size}" if size else "all rows", (size or len(dataset.y)) // K
        each = {way: arrays for (way, own), arrays in found.items() if own == size}
        for way, arrays in each.items():
            error = arrays["error"]
            many = runs[way]
            spread = float(error.std(ddof=1) / math.sqrt(many)) if many > 1 else None
            figures = float(error.mean()), spread, many, reference["paper"][0]
            rows.append(Row(group, words[way], "%", *figures, judged=False))
        rows.append(Row(group, them, "%", reference["prototype"][2], None, 1, reference["paper"][2],
                        judged=False))  # fmt: skip
        sent = f"{group}, sent by a node"
        for way, arrays in each.items():
            kilobytes = float(arrays["bytes"].mean()) / KILO
            rows.append(Row(sent, words[way], "kB", kilobytes, None, runs[way]))
        vectors = 5 * steps * 0.2 * (K - 1) * setting.D * 4 / KILO
        rows.append(Row(sent, them, "kB", vectors))
    notes = [
        "The paper's column is its Table III: after one pass beside ours, after five below. "
        "Features, rounds and ridge of the sums were set by hand, by the test rows of another draw."
    ]
    made = options.made([*by_name.values()], max(runs.values()))
    return PartResult(f"beyond-{name}", f"{setting.title}, 20 nodes", rows, [], {}, notes, made)


def _work(name: str, way: str, dealt: Dealt, setting: Any, runs: int, seed: int) -> Work:
    """Errors and bytes of one way with a data set."""
    ours, size = DATA[name], dealt.size

    def compute(seed: int, runs: int) -> dict[str, Array]:
        each = [
            _classified(dealt, own) if way == "auto" else _summed(dealt, setting.kernel, ours, own)
            for own in spawn(seed, runs)
        ]
        return {"error": np.array(each)[:, 0], "bytes": np.array(each)[:, 1]}

    about: dict[str, Any] = {"beyond": "classifier", "data": name, "size": size, "seed": seed}
    about["counted"] = "all that nodes send"
    if way == "sums":
        about = {"beyond": "sums", "data": name, "size": size, "seed": seed}
        about |= {"D": ours.D, "every": ours.every, "ridge": ours.ridge}
    label = f"beyond-{name}-{size}" if way == "auto" else f"beyond-{name}-{size}-sums"
    return Work(label, about, runs, 1, compute)


def reproduce(name: str, options: ReproduceOptions) -> PartResult:
    """An example, or a data set."""
    return examples(name, options) if name in SETTINGS else data(name, options)
