"""dokl plan"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dokl.base.errors import BadInput
from dokl.base.progress import Bar, progress
from dokl.cli.options import (
    echo_json,
    examples,
    keep_inputs,
    make_source,
    output_switches,
    reading_options,
    remark,
)
from dokl.cli.results import check_places, loading, picture_options

if TYPE_CHECKING:
    from dokl.tables.jobs.planning import Sharing
    from dokl.tables.plan.advice import Budget, Plan
    from dokl.tables.plan.ways import VectorRules

FLAGS = ("no_header", "zero_based")
WAYS = ["", "every", "error", "bytes a row", "us a row", ""]


@click.command(
    epilog=examples(
        "dokl plan readings.csv --target temp",
        "dokl plan readings.csv --target temp --verbose",
        "dokl plan readings.csv --target temp --graph ring --nodes 12 --rate 5 --bytes 20000",
        "dokl plan readings.csv --target temp --graph ring --set sending.bits=2",
        "dokl plan a9a.gz --n-features 123 --components 800 --json",
        "dokl plan --inputs 5 --noise 0.1 --sigma 5 --components 2500 --graph random --plot c.png",
    )
)
@click.argument("data", required=False)
@click.option("--target", help="Column to predict.")
@click.option("--rows", default=20_000, show_default=True, help="Rows of DATA to use.")
@click.option("--n-features", type=int, help="Features of a LIBSVM file.")
@click.option("--task", default="auto", show_default=True, help="auto, regression, classification.")
@click.option("--kernel", default="gaussian", show_default=True, help="Name of the kernel.")
@click.option("--components", type=int, help="D. Default: by the budget.")
@click.option("--graph", help="Topology of the network. Default: one node.")
@click.option("--nodes", default=20, show_default=True, help="Nodes of the network.")
@click.option(
    "--set", "changes", multiple=True, metavar="SECTION.KEY=VALUE",
    help="With --graph: a key of [sending] or [mixing], as in dokl run.",
)  # fmt: skip
@click.option("--rate", default=1.0, show_default=True, help="Samples per second at each node.")
@click.option("--bytes", "bytes_per_second", type=float, help="Bytes a node may send per second.")
@click.option("--microseconds", type=float, help="Time a sample may take.")
@click.option("--memory", type=float, help="Bytes a node's model may take.")
@click.option("--accuracy", type=float, help="Error to reach: mean square, or error rate.")
@click.option("--inputs", type=int, help="Without DATA: number of inputs, each N(0, 1).")
@click.option("--noise", type=float, help="Without DATA: standard deviation of the noise.")
@click.option("--sigma", type=float, help="Without DATA: width of the kernel.")
@click.option("--step", type=float, help="Without DATA: constant step. Default: half the limit.")
@click.option("--seed", default=0, show_default=True, help="Seed of features and graph.")
@click.option("--verbose", "-v", is_flag=True, help="Also settings, theory, and Python.")
@picture_options
@reading_options
@output_switches
def plan(
    data: str | None, plot: Path | None, html: Path | None, verbose: bool, as_json: bool,
    quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Estimate how well a model of DATA will do, before training.

    The command learns a sample and answers: how many rows do I need, how much do more rows help,
    which columns matter, do lags help, does sharing help. Each answer names its evidence. --verbose
    adds width, size, step and exchange for the gradient method, and the predictions of theory.
    Without DATA only these are shown, for inputs of a given distribution.
    """
    check_places(plot, html)
    keep_inputs([data], [plot, html])
    with loading(quiet or as_json):
        from dokl.tables.jobs import planning
        from dokl.tables.plan import Budget

    limits = ("rate", "bytes_per_second", "microseconds", "memory", "accuracy")
    budget = Budget(**{name: given.pop(name) for name in limits})
    graph, nodes, changed_rules = given.pop("graph"), given.pop("nodes"), given.pop("changes")
    rules = planning.rules_of(changed_rules)
    if changed_rules and (graph is None or data is None):
        raise BadInput("--set needs DATA and --graph")
    weights = planning.weights_of(graph, nodes, given["seed"])
    if data is None:
        found = _Found(_from_law(weights, budget, given))
    else:
        given["theory"] = bool(verbose or as_json or plot or html or weights is not None)
        found = _from_data(data, weights, budget, given, rules, quiet or as_json)
        found.lines.update(_commands(data, found, given, graph, nodes))
    _draw(found, data, plot, html)
    if as_json:
        echo_json(found.to_dict())
        return
    _show(found, verbose or data is None)
    if found.sharing is not None:
        python = planning.sharing_lines(found.sharing, graph, nodes, given["seed"])
        _show_ways(found.sharing, python if verbose else [])
    if data is not None and not verbose:
        remark("--verbose shows settings of the gradient method and what theory predicts", quiet)
    for path, what in ((plot, "picture"), (html, "page")):
        remark(f"{what} in {path}", quiet or path is None)


@dataclass
class _Found:
    """A plan, the sample it was made from, ways to share, answers, and commands: {what: line}."""

    plan: Plan
    sample: Any = None
    sharing: Sharing | None = None
    answers: list[Any] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        asked = {each.question: {"answer": each.words, **each.figures} for each in self.answers}
        found: dict[str, Any] = self.plan.to_dict() | {"commands": self.lines, "questions": asked}
        if self.sharing is not None:
            found["ways"] = [way.to_dict() for way in self.sharing.ways]
        return found


def _from_data(
    data: str,
    weights: Any,
    budget: Budget,
    given: dict[str, Any],
    rules: VectorRules | None,
    silent: bool,
) -> _Found:
    """The plan by a sample of the rows, ways to share, and the first questions answered."""
    from dokl.tables.jobs import planning
    from dokl.tables.plan import plan as advise

    source, say = make_source(data, dict(given)), None if silent else click.echo
    with progress(100, "planning", False if silent else None, unit=None) as bar:
        rows = planning.read_sample(source, given["target"], given["rows"], say)
        _step(bar, 5, f"trying settings on {len(rows.y):,} rows")
        made = advise(
            rows.X, rows.y, task=given["task"], weights=weights, budget=budget,
            D=given["components"], kernel=given["kernel"], seed=given["seed"],
            predict=given["theory"], bar=bar,
        )  # fmt: skip
        found = _Found(made, rows)
        if weights is not None:
            _step(bar, 0, "trying ways to share")
            found.sharing = planning.sharing(made, rows, weights, budget, given["seed"], rules)
        _step(bar, 10, "which columns matter, lags, groups")
        asked = made, rows, given["target"], budget.accuracy, found.sharing
        found.answers = planning.replies(*asked)
    return found


def _step(bar: Bar, share: int, doing: str) -> None:
    bar.advance(share, doing)
    bar.flush()


def _commands(
    data: str, found: _Found, given: dict[str, Any], graph: str | None, nodes: Any
) -> dict[str, str]:
    """How to train by this plan, here and as a live network."""
    from dokl.tables.jobs import planning

    lines: dict[str, str] = planning.train_lines(found.plan, data, _train_options(given))
    wanted = _train_options(given | {"task": "auto"})
    line = planning.network_line(found.plan, data, wanted, graph, nodes, given["seed"])
    unfit = found.sample.unfit
    return {**lines, "as a live network": f"(none: {unfit})" if unfit else line}


def _show(found: _Found, settings: bool) -> None:
    """Answers and commands, and between them the settings, if they are wanted."""
    from dokl.tables.jobs import planning
    from dokl.tables.report import table

    for each in found.answers:
        click.echo(f"{each.question}\n  {each.words}")
        if each.rests_on:
            click.echo(f"  ({each.rests_on})")
    if settings:
        head = f"a plan for {found.plan.task}"
        table(head, ["", "value", "rests on"], planning.rows(found.plan))
    for what, line in found.lines.items():
        click.echo(f"{what}:\n  {line}")


def _draw(found: _Found, data: str | None, plot: Path | None, html: Path | None) -> None:
    """The picture and the page that were asked for."""
    if plot is None and html is None:
        return
    from dokl.tables.jobs import plan_pictures, planning

    made, sample, ways = found.plan, found.sample, found.sharing
    title = f"a plan for {made.task}" + ("" if data is None else f" from {data}")
    if plot is not None:
        plan_pictures.save(made, plot, title, sample, ways)
    if html is not None:
        from dokl.tables.report import write

        tables: list[Any] = [("the plan", ["", "value", "rests on"], planning.rows(made))]
        if found.answers:
            asked = [[each.question, each.words, each.rests_on] for each in found.answers]
            tables.insert(0, ("what to expect", ["", "", "rests on"], asked))
        if ways is not None and ways.ways:
            tables.append(("ways to share", WAYS, ways.table()))
        commands = [f"{what}: {line}" for what, line in found.lines.items()]
        lists = {"commands": commands, "what was guessed": sample.guesses if sample else ()}
        write(html, title, plan_pictures.draw(made, title, sample, ways), tables, lists)


def _show_ways(found: Sharing, python: list[str]) -> None:
    """The table of ways to share, and how to have them."""
    from dokl.tables.report import table

    if found.why:
        click.echo(f"ways to share were not compared: {found.why}")
        return
    table("ways to share, tried on the sample: rows of a node, what it sends", WAYS, found.table())
    if python:
        click.echo("in Python, of a stream of your rows:")
    for line in python:
        click.echo(f"  {line}")


def _train_options(given: dict[str, Any]) -> list[str]:
    """The given options that `dokl train` needs, too."""
    names = "target", "task", "n_features", "format", "delimiter", "decimal", "dates", "missing"
    usual = {"task": "auto"}
    chosen = {name: given[name] for name in names if given[name] not in (None, usual.get(name))}
    words = [word for name in chosen for word in (f"--{name.replace('_', '-')}", str(chosen[name]))]
    return words + [f"--{name.replace('_', '-')}" for name in FLAGS if given[name]]


def _from_law(weights: Any, budget: Budget, given: dict[str, Any]) -> Any:
    from dokl.tables.plan import plan_law

    missing = [name for name in ("inputs", "noise", "sigma", "components") if given[name] is None]
    if missing:
        raise BadInput(
            f"name a DATA file, or give the distribution: --{', --'.join(missing)} still missing"
        )
    d = given["inputs"]
    return plan_law(
        [0.0] * d, 1.0, noise=given["noise"], sigma=given["sigma"], D=given["components"],
        mu=given["step"], weights=weights, budget=budget, kernel=given["kernel"],
        seed=given["seed"],
    )  # fmt: skip
