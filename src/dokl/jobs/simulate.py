"""`dokl run`: a simulated network described by one TOML file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dokl import __version__, config, losses, report, schedules
from dokl.diffusion import Exchange, Problem, Trace
from dokl.engines import run
from dokl.errors import BadInput, UnknownName
from dokl.features import Features
from dokl.files import atomic_write
from dokl.graphs import GraphRecipe
from dokl.kernels import resolve as resolve_kernel
from dokl.metrics import decibels
from dokl.streams import AbruptDrift, Missing, Shards, SlowDrift, example

EXAMPLE = """\
# A simulated network. Run it with: dokl run my.toml
# Every key is optional; the values here are the paper's Example 2, made shorter.

[data]
example = "example2"     # example1 ... example4; or file = "readings.csv" with target = "y"
nodes = 20
steps = 3000             # per node
missing = 0.0            # share of samples that never arrive
drift = "none"           # "abrupt" (new targets at drift_at) or "slow"; example1 and example2
drift_at = [0.5]

[features]
kernel = "gaussian"      # laplacian, matern, cauchy, rational_quadratic
sigma = 5.0
D = 300                  # numbers in a node's vector, and in a message
variant = "cos"          # the paper's; paired, orthogonal, sobol, structured

[learn]
loss = "squared"         # hinge, squared_hinge, logistic, huber, absolute, quantile, ...
# loss_parameter = 1.0   # of huber, epsilon_insensitive, quantile
schedule = "constant"    # sqrt, pegasos, inverse_power, normalised
mu = 1.0                 # pegasos takes lam (and n0) instead
lam = 0.0                # L2 regularization

[network]
graph = "random"         # ring, grid, star, complete, small_world, geometric, exponential
rule = "metropolis"      # laplacian, uniform
order = "cta"            # combine-then-adapt (the paper's) or "atc"
every = 1                # combine at every so many steps
average = "none"         # uniform, weighted
intercept = 0.0          # size of a private constant feature
alone = true             # also run the same nodes without any exchange
# parameters = { p = 0.2 }

[run]
engine = "auto"          # numba, reference
runs = 10
seed = 1

[output]
record = ["mse"]         # mistakes, loss, node_mse, disagreement, bytes
# snapshot = 100         # every how many steps to take disagreement
plot = "curves.png"
json = "curves.json"
"""


@dataclass(frozen=True)
class DataSection:
    """Where samples come from."""

    example: str | None = None
    file: str | None = None
    target: str | None = None
    nodes: int = 20
    steps: int | None = None
    passes: int = 1
    missing: float = 0.0
    drift: str = "none"
    drift_at: tuple[float, ...] = (0.5,)
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FeatureSection:
    """The feature map."""

    kernel: str = "gaussian"
    sigma: float = 5.0
    D: int = 300
    variant: str = "cos"
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LearnSection:
    """Loss, schedule, regularization."""

    loss: str = "squared"
    loss_parameter: float | None = None
    schedule: str = "constant"
    mu: float | None = None
    lam: float = 0.0
    n0: float | None = None
    power: float | None = None
    eps: float | None = None


@dataclass(frozen=True)
class NetworkSection:
    """Who talks to whom, and how."""

    graph: str = "random"
    rule: str = "metropolis"
    order: str = "cta"
    every: int = 1
    average: str = "none"
    intercept: float = 0.0
    alone: bool = True
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSection:
    """How it is computed."""

    engine: str = "auto"
    runs: int = 10
    seed: int = 1
    dtype: str | None = None


@dataclass(frozen=True)
class OutputSection:
    """What is recorded and where it goes."""

    record: tuple[str, ...] = ("mse",)
    snapshot: int | None = None
    plot: str | None = None
    json: str | None = None


@dataclass(frozen=True)
class Simulation:
    """A whole configuration file."""

    data: DataSection
    features: FeatureSection
    learn: LearnSection
    network: NetworkSection
    run: RunSection
    output: OutputSection


def load(path: Path) -> Simulation:
    """Read and check a configuration file."""
    try:
        return config.parse(Simulation, config.read_toml(path))
    except BadInput as error:
        message = str(error)
        raise BadInput(message if str(path) in message else f"{path}: {message}") from None


def overridden(
    sim: Simulation, engine: str | None, runs: int | None, seed: int | None
) -> Simulation:
    """The configuration with what the command line says instead."""
    given = {"engine": engine, "runs": runs, "seed": seed}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return replace(sim, run=replace(sim.run, **changes))


def schedule_of(learn: LearnSection) -> schedules.Schedule:
    """The schedule of a [learn] section, from the numbers it takes."""
    given = {"mu": learn.mu, "n0": learn.n0, "power": learn.power, "eps": learn.eps}
    numbers = {key: value for key, value in given.items() if value is not None}
    if learn.schedule == "pegasos":
        numbers["lam"] = learn.lam
    elif learn.schedule in ("constant", "sqrt", "inverse_power"):
        numbers.setdefault("mu", 1.0)
    return schedules.resolve(learn.schedule, **numbers)


def stream_of(data: DataSection, folder: Path) -> tuple[Any, int]:
    """The stream's recipe and its number of inputs."""
    if data.file is not None:
        stream, d = _file_stream(data, folder)
    else:
        size = {} if data.steps is None else {"n": data.steps}
        stream = example(data.example or "example2", K=data.nodes, **size, **data.parameters)
        d = stream.draw(0).d if not hasattr(stream, "d") else stream.d
    if data.drift == "abrupt":
        stream = AbruptDrift(stream, data.drift_at)
    elif data.drift == "slow":
        stream = SlowDrift(stream)
    elif data.drift != "none":
        raise UnknownName("drift", data.drift, ("none", "abrupt", "slow"))
    return (Missing(stream, data.missing) if data.missing else stream), d


def _file_stream(data: DataSection, folder: Path) -> tuple[Any, int]:
    """Rows of a file dealt over the nodes."""
    from dokl.jobs.tables import whole_table

    X, y = whole_table(folder / str(data.file), data.target)
    return Shards(X, y, data.nodes, passes=data.passes), int(X.shape[1])


def simulate(sim: Simulation, folder: Path, show_progress: bool | None = None) -> dict[str, Trace]:
    """Run a configuration; "together" and, if asked for, "alone". Paths are below `folder`."""
    stream, d = stream_of(sim.data, folder)
    part = sim.features
    kernel = resolve_kernel(part.kernel, part.sigma, **part.parameters)
    parameter = sim.learn.loss_parameter
    loss = losses.resolve(sim.learn.loss, **({} if parameter is None else {"p": parameter}))
    features = Features(kernel, d, part.D, part.variant)
    problem = Problem(features, loss, schedule_of(sim.learn), sim.learn.lam)
    net = sim.network
    recipe = GraphRecipe(net.graph, sim.data.nodes, net.rule, net.parameters)
    exchange = Exchange(recipe, net.order, net.every, net.intercept, net.average)
    settings: dict[str, Any] = {
        "engine": sim.run.engine,
        "runs": sim.run.runs,
        "seed": sim.run.seed,
        "dtype": sim.run.dtype,
        "record": sim.output.record,
        "snapshot": sim.output.snapshot,
        "show_progress": show_progress,
    }
    traces = {"together": run(problem, exchange, stream, **settings)}
    if net.alone:
        traces["alone"] = run(problem, replace(exchange, weights=None), stream, **settings)
    return traces


def summary(traces: dict[str, Trace]) -> list[dict[str, Any]]:
    """The last tenth of every recorded curve: mean over runs and its standard error."""
    rows = []
    for label, trace in traces.items():
        for name, curves in trace.curves.items():
            if curves.ndim == 2:
                tail = trace.tail(name)
                error = float(tail.std(ddof=1) / np.sqrt(trace.runs)) if trace.runs > 1 else None
                row = {"who": label, "what": name, "mean": float(tail.mean()), "error": error}
                rows.append({**row, "runs": trace.runs, "engine": trace.engine})
    return rows


def results(sim: Simulation, traces: dict[str, Trace]) -> dict[str, Any]:
    """Everything worth keeping, as JSON: settings, provenance, summary and mean curves."""
    curves = {
        label: {
            name: {"at": trace.at[name].tolist(), "mean": trace[name].tolist()}
            for name, values in trace.curves.items()
            if values.ndim == 2
        }
        for label, trace in traces.items()
    }
    first = next(iter(traces.values()))
    made = {"dokl": __version__, "engine": first.engine, "seed": first.seed, "runs": first.runs}
    made["seconds"] = round(sum(trace.seconds for trace in traces.values()), 3)
    return {"config": asdict(sim), "made": made, "summary": summary(traces), "curves": curves}


def write_outputs(sim: Simulation, traces: dict[str, Trace], folder: Path) -> list[Path]:
    """The files the configuration asks for; returns their paths."""
    written = []
    if sim.output.json:
        path = folder / sim.output.json
        with atomic_write(path) as file:
            file.write(json.dumps(results(sim, traces)).encode())
        written.append(path)
    if sim.output.plot:
        written.append(_plot(traces, folder / sim.output.plot, sim.output.record))
    return written


def _plot(traces: dict[str, Trace], path: Path, record: Sequence[str]) -> Path:
    names = [n for n in record if n in next(iter(traces.values())).curves]
    names = [n for n in names if next(iter(traces.values())).curves[n].ndim == 2]
    if not names:
        raise BadInput("nothing recorded can be drawn: record mse, mistakes, loss or disagreement")
    plt = report.pyplot()
    size = (7.5, 3.8 * len(names))
    figure, axes = plt.subplots(len(names), 1, figsize=size, layout="constrained", squeeze=False)
    for axis, name in zip(axes[:, 0], names, strict=True):
        report.draw_curves(axis, traces, name, window=max(1, traces["together"].steps // 100))
    return report.save_picture(figure, path)


def shown(value: float, name: str) -> str:
    """A figure as people read it: squared errors in dB."""
    return f"{decibels(value):.2f} dB" if name == "mse" else f"{value:.4g}"
