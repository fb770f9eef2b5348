"""`dokl run`: a simulated network described by one TOML file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from dokl import __version__
from dokl.base import config
from dokl.base.errors import BadInput, UnknownName
from dokl.base.files import atomic_write
from dokl.learning import losses, schedules
from dokl.learning.features import Features
from dokl.learning.kernels import resolve as resolve_kernel
from dokl.learning.metrics import decibels
from dokl.network.exchange import Attack, Exchange
from dokl.network.exchange.attacks import ATTACKS
from dokl.network.exchange.exchange import ALL
from dokl.network.exchange.rules import MEAN
from dokl.paper.jobs.samples import network_and_stream
from dokl.paper.jobs.settings import AttacksSection, LearnSection, Simulation
from dokl.simulation.diffusion import Problem, Trace
from dokl.simulation.engines import run
from dokl.simulation.engines.mpi_checkpoints import Checkpoint
from dokl.simulation.methods import gradient, squares
from dokl.tables import report

# What has one number a step, and can be drawn as a curve.
DRAWN = ("mse", "mistakes", "loss", "disagreement", "bytes")


def load(path: Path, changes: Sequence[str] = ()) -> Simulation:
    """Read and check a configuration file; changes: "section.key=value" that takes its place."""
    try:
        return config.parse(Simulation, config.changed(config.read_toml(path), changes))
    except BadInput as error:
        message = str(error)
        raise BadInput(message if str(path) in message else f"{path}: {message}") from None


def overridden(sim: Simulation, **given: Any) -> Simulation:
    """The configuration with what the command line says instead (None: nothing) in [run]."""
    changes = {key: value for key, value in given.items() if value is not None}
    return replace(sim, run=replace(sim.run, **changes))


def report_once(
    path: Path, engine: str | None, quiet: bool, changes: Sequence[str] = ()
) -> AbstractContextManager[bool]:
    """For a run that may have many ranks: says whether to print and write, errors come once."""
    from dokl.simulation.engines.mpi_ranks import report_once as voice

    with suppress(BadInput):  # `load` says what is wrong
        section = config.changed(config.read_toml(path), changes).get("run")
        engine = engine or (section.get("engine") if isinstance(section, dict) else None)
    return voice(engine == "mpi", quiet)


def simulate(
    sim: Simulation,
    folder: Path,
    show_progress: bool | None = None,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Trace]:
    """Run a configuration; "together" and, if asked for, "alone". Paths are below `folder`."""
    weights, stream, d = network_and_stream(sim, folder)
    part = sim.features
    kernel = resolve_kernel(part.kernel, part.sigma, **part.parameters)
    problem = Problem(Features(kernel, d, part.D, part.variant), method_of(sim.learn))
    net = sim.network
    common = net.order, net.every, net.intercept, net.average
    exchange = Exchange(weights, *common, sim.sending, sim.mixing, *attack_of(sim.attacks))
    settings: dict[str, Any] = {
        "engine": sim.run.engine,
        "runs": sim.run.runs,
        "seed": sim.run.seed,
        "dtype": sim.run.dtype,
        "record": sim.output.record,
        "snapshot": sim.output.snapshot,
        "show_progress": show_progress,
        "ranks": sim.run.ranks,
    }
    exchanges = {"together": exchange}
    if net.alone:
        plain: dict[str, Any] = {"sending": ALL, "mixing": MEAN}
        exchanges["alone"] = replace(exchange, weights=None, **plain)
    traces = {}
    for label, each in exchanges.items():
        place = None if checkpoint is None else checkpoint.below(label)
        traces[label] = run(problem, each, stream, checkpoint=place, **settings)
    return traces


METHODS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "gradient": (gradient, ()),
    "squares": (squares, ("ridge", "memory", "bound", "share", "fewest", "robust")),
}


def method_of(learn: LearnSection) -> Any:
    """The method that a configuration names."""
    if learn.method not in METHODS:
        raise UnknownName("method", learn.method, METHODS)
    make, takes = METHODS[learn.method]
    given = {name: getattr(learn, name) for name in METHODS["squares"][1]}
    given = {name: value for name, value in given.items() if value is not None}
    other = sorted(set(given) - set(takes))
    if other:
        raise BadInput(f"[learn] {other[0]} is not for method {learn.method!r}: leave it out")
    if learn.method == "gradient":
        parameter = {} if learn.loss_parameter is None else {"p": learn.loss_parameter}
        loss = losses.resolve(learn.loss, **parameter)
        return gradient(loss, schedules.from_settings(learn, "[learn]"), learn.lam)
    if learn.loss != "squared":
        raise BadInput(f"[learn] method {learn.method!r} is least squares: loss must be 'squared'")
    return make(**given)


def attack_of(section: AttacksSection) -> tuple[Attack | None, tuple[int, ...]]:
    """The attack and the faulty nodes that a configuration names."""
    given = {name: getattr(section, name) for name in ("p", "since")}
    given = {name: value for name, value in given.items() if value is not None}
    if section.attack is None:
        if given:
            raise BadInput(
                f"[attacks] {min(given)} needs an attack, and none is named: attack = ..."
            )
        return None, section.faulty
    if section.attack not in ATTACKS:
        raise UnknownName("attack", section.attack, ATTACKS)
    make = ATTACKS[section.attack]
    for name in given:
        if name not in signature(make).parameters:
            raise BadInput(f"[attacks] {name} is not for attack {section.attack!r}: leave it out")
    return make(**given), section.faulty


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


def check_outputs(sim: Simulation, folder: Path) -> None:
    """Make the folder, and refuse before the run what could not be written after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder} cannot be made a folder ({error.strerror})") from None
    if sim.output.plot:
        report.check_picture(folder / sim.output.plot)
        if not set(sim.output.record) & set(DRAWN):
            raise BadInput(f"[output] plot: nothing to draw is recorded, like {', '.join(DRAWN)}")


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
    names = [name for name in record if name in DRAWN]
    plt = report.pyplot()
    size = (7.5, 3.8 * len(names))
    figure, axes = plt.subplots(len(names), 1, figsize=size, layout="constrained", squeeze=False)
    for axis, name in zip(axes[:, 0], names, strict=True):
        report.draw_curves(axis, traces, name, window=max(1, traces["together"].steps // 100))
    return report.save_picture(figure, path)


def shown(value: float, name: str) -> str:
    """A figure as people read it: squared errors in dB."""
    return f"{decibels(value):.2f} dB" if name == "mse" else f"{value:.4g}"
