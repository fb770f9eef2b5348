"""dokl plan"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dokl.base.errors import BadInput
from dokl.base.progress import Bar, progress
from dokl.cli.common import echo_json, examples, output_switches, remark
from dokl.cli.meter import loading
from dokl.cli.pictures import check_places, picture_options
from dokl.cli.source import make_source, reading_options

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
@click.option("--rows", default=20_000, show_default=True, help="Rows of DATA to look at.")
@click.option("--n-features", type=int, help="Features of a LIBSVM file.")
@click.option("--task", default="auto", show_default=True, help="auto, regression, classification.")
@click.option("--kernel", default="gaussian", show_default=True, help="Name of the kernel.")
@click.option("--components", type=int, help="D, instead of letting the budget decide.")
@click.option("--graph", help="Topology of the network; one node otherwise.")
@click.option("--nodes", default=20, show_default=True, help="Nodes of the network.")
@click.option(
    "--set", "told", multiple=True, metavar="SECTION.KEY=VALUE",
    help="With --graph: what goes out and how it is mixed, as [sending] and [mixing] of dokl run.",
)  # fmt: skip
@click.option("--rate", default=1.0, show_default=True, help="Samples a second and node.")
@click.option("--bytes", "bytes_per_second", type=float, help="Bytes a node may send a second.")
@click.option("--microseconds", type=float, help="Time a sample may take.")
@click.option("--memory", type=float, help="Bytes a node's model may take.")
@click.option("--accuracy", type=float, help="Error wanted: mean square, or rate.")
@click.option("--inputs", type=int, help="Without DATA: number of inputs, each N(0, 1).")
@click.option("--noise", type=float, help="Without DATA: standard deviation of the noise.")
@click.option("--sigma", type=float, help="Without DATA: width of the kernel.")
@click.option("--step", type=float, help="Without DATA: constant step; half the limit otherwise.")
@click.option("--seed", default=0, show_default=True, help="Seed of features and graph.")
@click.option("--verbose", "-v", is_flag=True, help="Also settings, theory, and Python.")
@picture_options
@reading_options
@output_switches
def plan(
    data: str | None, plot: Path | None, html: Path | None, verbose: bool, as_json: bool,
    quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Say what to expect of a model of DATA, before it is trained.

    Learns a sample and answers: how many rows do I need, what will more rows buy, which columns
    matter, would lags help, what would sharing buy. Every answer says what it rests on. With
    --verbose it also shows width, size, step and exchange for the gradient method, and what theory
    predicts of them; without DATA, from a stated law of the inputs, it shows only these.
    """
    check_places(plot, html)
    with loading(quiet or as_json):
        from dokl.tables.jobs import planning
        from dokl.tables.jobs.plan_questions import replies
        from dokl.tables.plan import Budget
        from dokl.tables.report import table

    limits = ("rate", "bytes_per_second", "microseconds", "memory", "accuracy")
    budget = Budget(**{name: given.pop(name) for name in limits})
    graph, nodes, told_rules = given.pop("graph"), given.pop("nodes"), given.pop("told")
    rules = planning.rules_of(told_rules)
    if told_rules and (graph is None or data is None):
        raise BadInput("--set says how the nodes of a network share: it needs DATA and --graph")
    weights = planning.weights_of(graph, nodes, given["seed"])
    found, rows, told_first = None, None, list[Any]()
    if data is None:
        made, lines = _from_law(weights, budget, given), {}
    else:
        say = None if quiet or as_json else click.echo
        said = dict(given)
        told = _told(said)
        shown = False if quiet or as_json else None
        with progress(100, "planning", shown, unit=None) as bar:
            theory = bool(verbose or as_json or plot or html or weights is not None)
            made, rows = _from_data(data, weights, budget, given | {"theory": theory}, say, bar)
            if weights is not None:
                bar.advance(0, "trying ways to share")
                bar.flush()
                found = planning.sharing(made, rows, weights, budget, given["seed"], rules)
            bar.advance(10, "which columns matter, lags, groups")
            bar.flush()
            told_first = replies(made, rows, given["target"], budget.accuracy, found)
        lines = planning.train_lines(made, data, told)
        wanted = _told(said | {"task": "auto"})
        line = planning.network_line(made, data, wanted, graph, nodes, given["seed"])
        lines["as a live network"] = line if not rows.unfit else f"(none: {rows.unfit})"
    _draw(made, data, rows, found, lines, told_first, plot, html)
    if as_json:
        ways = {} if found is None else {"ways": [way.to_dict() for way in found.ways]}
        asked = {each.question: {"answer": each.words, **each.figures} for each in told_first}
        echo_json(made.to_dict() | {"commands": lines, "questions": asked} | ways)
        return
    for each in told_first:
        click.echo(f"{each.question}\n  {each.words}")
        if each.rests_on:
            click.echo(f"  ({each.rests_on})")
    if verbose or data is None:
        table(f"a plan for {made.task}", ["", "value", "rests on"], planning.rows(made))
    for what, line in lines.items():
        click.echo(f"{what}:\n  {line}")
    if found is not None:
        python = planning.sharing_lines(found, graph, nodes, given["seed"])
        _show_ways(found, python if verbose else [])
    if data is not None and not verbose:
        remark("--verbose shows settings of the gradient method and what theory predicts", quiet)
    for path, what in ((plot, "picture"), (html, "page")):
        remark(f"{what} in {path}", quiet or path is None)


def _draw(
    made: Any, data: str | None, sample: Any, found: Any, lines: dict[str, str],
    told_first: list[Any], plot: Path | None, html: Path | None,
) -> None:  # fmt: skip
    """The picture and the page that were asked for."""
    if plot is None and html is None:
        return
    from dokl.tables.jobs import plan_pictures, planning

    title = f"a plan for {made.task}" + ("" if data is None else f" from {data}")
    if plot is not None:
        plan_pictures.save(made, plot, title, sample, found)
    if html is not None:
        from dokl.tables.jobs.page import write

        tables: list[Any] = [("the plan", ["", "value", "rests on"], planning.rows(made))]
        if told_first:
            asked = [[each.question, each.words, each.rests_on] for each in told_first]
            tables.insert(0, ("what to expect", ["", "", "rests on"], asked))
        if found is not None and found.ways:
            tables.append(("ways to share", WAYS, found.table()))
        commands = [f"{what}: {line}" for what, line in lines.items()]
        lists = {"commands": commands, "what was guessed": sample.guesses if sample else ()}
        write(html, title, plan_pictures.draw(made, title, sample, found), tables, lists)


def _show_ways(found: Any, python: list[str]) -> None:
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


def _told(given: dict[str, Any]) -> list[str]:
    """Of what was said, that which `dokl train` must hear, too."""
    names = "target", "task", "n_features", "format", "delimiter", "decimal", "dates", "missing"
    usual = {"task": "auto"}
    said = {name: given[name] for name in names if given[name] not in (None, usual.get(name))}
    words = [word for name in said for word in (f"--{name.replace('_', '-')}", str(said[name]))]
    return words + [f"--{name.replace('_', '-')}" for name in FLAGS if given[name]]


def _from_data(
    data: str, weights: Any, budget: Any, given: dict[str, Any], say: Any, bar: Bar
) -> tuple[Any, Any]:
    """The plan, and the sample that it was made from."""
    from dokl.tables.jobs import planning
    from dokl.tables.plan import plan as advise

    rows = planning.read_sample(make_source(data, given), given["target"], given["rows"], say)
    bar.advance(5, f"trying settings on {len(rows.y):,} rows")
    bar.flush()
    made = advise(
        rows.X, rows.y, task=given["task"], weights=weights, budget=budget, D=given["components"],
        kernel=given["kernel"], seed=given["seed"], predict=given["theory"],
        bar=bar,
    )  # fmt: skip
    return made, rows


def _from_law(weights: Any, budget: Any, given: dict[str, Any]) -> Any:
    from dokl.tables.plan import plan_law

    missing = [name for name in ("inputs", "noise", "sigma", "components") if given[name] is None]
    if missing:
        raise BadInput(
            f"name a DATA file, or state the law: --{', --'.join(missing)} still missing"
        )
    d = given["inputs"]
    return plan_law(
        [0.0] * d, 1.0, noise=given["noise"], sigma=given["sigma"], D=given["components"],
        mu=given["step"], weights=weights, budget=budget, kernel=given["kernel"],
        seed=given["seed"],
    )  # fmt: skip
