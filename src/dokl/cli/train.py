"""dokl train"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dokl.base.errors import BadInput
from dokl.cli.common import examples, key_values, output_switches, remark, split_pairs, with_options
from dokl.cli.lags import (
    AUTO,
    BY,
    HORIZON,
    SERIES_HELP,
    TIME,
    comma_list,
    earlier_options,
    lag_request,
)
from dokl.cli.meter import Meter, loading
from dokl.cli.pictures import check_places, draw, picture_options, story
from dokl.cli.results import tell, training_scores
from dokl.cli.source import (
    FILES_HELP,
    ROWS_HELP,
    Data,
    held_out,
    make_source,
    on_error_options,
    reading_options,
    test_option,
)

KERNELS = (
    "gaussian", "rbf", "laplacian", "matern", "matern12", "matern32", "matern52", "cauchy",
    "rational_quadratic",
)  # fmt: skip
FEATURES = ("auto", "cos", "paired", "orthogonal", "sobol", "structured")
TASKS = ("auto", "regression", "classification")
STANDARDISE = ("running", "fixed", "off")
METHODS = ("bank", "gradient")
SHARE = ("sums", "rows")
PARAMETERS = {"components": "n_components"} | {
    name: name
    for name in ("share", "kernel", "sigma", "loss", "features", "step", "alpha", "random_state")
}
# What only --method gradient has; parameters given by -p are checked when the model starts.
GRADIENT_ONLY = ("kernel", "sigma", "features", "loss", "step", "alpha")
# A model that goes on keeps what it was started with.
START_ONLY = (
    "method", "task", "classes", "levels", "group", "drop", "text", "numeric", "standardise",
    "nodes", "lag", "rolling", "difference", "auto_lags", "horizon", "by", "time",
    "graph", "share", "kernel", "sigma", "components", "features", "loss", "step", "alpha",
    "random_state", "parameters",
)  # fmt: skip
EXAMPLES = examples(
    "dokl train readings.csv --target temp --model temp.dokl",
    "dokl train readings.csv --target temp --model temp.dokl --test last:20% --html report.html",
    "dokl train more.csv --model temp.dokl --continue",
    "dokl train big.csv --target y --model m.dokl --method gradient --components 800",
    "zcat log.jsonl.gz | dokl train - --format jsonl --target y --model m.dokl",
    "dokl train spam.csv --target label --classes ham,spam --model spam.dokl",
    "dokl train x.csv --target y --model m.dokl --drop id --levels colour=red,green,blue",
    "dokl train x.csv --target y --model m.dokl --method gradient --sigma 2 -p average=weighted",
    "dokl train air.csv --target temp --lag temp=1,24 --horizon 6 --by station --model a.dokl",
    "dokl train air.csv --target temp --lags auto --horizon 6h --by station --model a.dokl",
    "dokl train air.csv --target PM10 --nodes station --graph links.csv --model air.dokl",
)
METHODS_HELP = """\b
Methods: bank, the default, needs no settings. Experts of least squares, with
length scales learned from the rows so far and memories from a few rows to all of
them, are mixed by how they do; a thousand rows a second, or more. -p experts=lasting
leaves out those that forget, as with lags; -p experts=one is a single one.
gradient takes one step for each row, a million rows a second; the options from
--kernel to --alpha are its settings, and an error without --method gradient.
"""
NETWORK_HELP = """\b
Networks: with --nodes each row belongs to the node that this column names, each
node learns from its own rows, and neighbours in --graph exchange what they know.
Rows should be in the order of time, all nodes mixed: numbers are standardised
by the first rows, once for all nodes. By --method bank each node has a bank of
its own, a bank that the whole network shares, and corrections of that one, and
mixes them by how they do; some hundred rows a second. By --method gradient nodes
average vectors (diffusion), a million rows a second.

\b
What leaves a node, by --method bank: --share sums sends sums over at least 50
rows, and for each new map of features the sample of rows that it is made from;
other rows stay at their node. --share rows sends every row: smaller messages
where inputs are few, and often a smaller error.
"""


def learning_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What to learn, and how."""
    column = {"multiple": True, "metavar": "COLUMN"}
    options = [
        click.option("--target", metavar="COLUMN", help="Column to predict (not for LIBSVM)."),
        click.option("--method", type=click.Choice(METHODS),
                     help="bank if not given: no settings; gradient: those from --kernel on."),
        click.option("--task", type=click.Choice(TASKS), default="auto", show_default=True,
                     help="auto: text, and whole numbers of up to 10 kinds, are classes."),
        click.option("--classes", help="All labels, comma separated; else those of first rows."),
        click.option("--levels", multiple=True, metavar="COLUMN=A,B,...",
                     help="All levels of a text column; else those of the first rows."),
        click.option("--group", metavar="COLUMN",
                     help="Says of what a row is (a station, a customer), texts or whole numbers; "
                     "each gets a place of its own. Else a text column of over 50 levels is one."),
        click.option("--drop", help="Do not use this column.", **column),  # type: ignore[arg-type]
        click.option("--text", help="Take this column as text.", **column),  # type: ignore[arg-type]
        click.option("--numeric", help="Take it as numbers.", **column),  # type: ignore[arg-type]
        click.option("--n-features", type=click.IntRange(1), metavar="N",
                     help="Features of a LIBSVM file; needed from stdin."),
        click.option("--standardise", type=click.Choice(STANDARDISE),
                     help="By the rows so far, by the first rows, or not. bank: off; gradient: "
                     "running; networks: fixed."),
        *earlier_options(), AUTO, HORIZON, BY, TIME,
        click.option("--nodes", metavar="COLUMN", help="Learn over a network: each row's node."),
        click.option("--graph", metavar="NAME|FILE", default="random", show_default=True,
                     help="The network: a topology of 'dokl graph', or a file of edges."),
        click.option("--share", type=click.Choice(SHARE),
                     help="What leaves a node: sums over rows if not given, or the rows."),
        click.option("--components", type=click.IntRange(1), metavar="D",
                     help="Size of the model: centres of the widest experts, 1000; gradient: "
                     "length of its vector, 500."),
        click.option("--kernel", type=click.Choice(KERNELS), help="gaussian if not given."),
        click.option("--sigma", help="Kernel width: a number (or one for each input, with "
                     "commas), scale or median."),
        click.option("--features", type=click.Choice(FEATURES), help="How they are drawn."),
        click.option("--loss", help="squared, huber:1, quantile:0.9, ...; hinge, logistic, ..."),
        click.option("--step", help="A number, auto, or pegasos."),
        click.option("--alpha", type=float, help="L2 regularization."),
        click.option("--seed", "random_state", type=int, default=0, show_default=True,
                     help="Of features, of the rows that are kept, of a random graph."),
        click.option("--parameter", "-p", "parameters", multiple=True, metavar="KEY=VALUE",
                     help="Any other parameter of the estimator."),
    ]  # fmt: skip
    return with_options(command, options)


@click.command(
    epilog="\n".join([METHODS_HELP, FILES_HELP, ROWS_HELP, SERIES_HELP, NETWORK_HELP, EXAMPLES])
)
@click.argument("data", type=Data)
@click.option(
    "--model", "path", required=True, type=click.Path(path_type=Path), help="Model file to write."
)
@click.option("--continue", "go_on", is_flag=True, help="Go on with the model file that is there.")
@click.option("--overwrite", is_flag=True, help="Replace a model file that is there.")
@click.option(
    "--skip", type=click.IntRange(0), default=0, metavar="N", help="Rows to pass over first."
)
@click.option("--passes", type=click.IntRange(1), default=1, metavar="N",
              show_default=True, help="How often to read the file.")  # fmt: skip
@test_option("Hold these rows out: they are not learned, and the first score is theirs.")
@learning_options
@reading_options
@on_error_options
@picture_options
@output_switches
@click.pass_context
def train(
    context: click.Context, /, data: str, path: Path, skip: int, passes: int,
    test: str | None, plot: Path | None, html: Path | None, as_json: bool, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Learn from DATA row by row and write a model file.

    Memory stays the same however long DATA is. Prints the error on rows that were held out, with
    --test; the prequential error: each row is predicted before it is learned; and, for experts, how
    a frozen model scores, how often 90 % intervals hold the target, and how far back it remembers.
    Ctrl-C saves what was learned so far,
    and prints the command that goes on.
    """
    _check_new(context, path, options)
    check_places(plot, html)
    _check_method(context, options)
    with loading(quiet):
        from dokl.tables.jobs import train as job

        model = _existing(path, options)
    source = make_source(data, options, f"{path}.refused.csv")
    training = _training(options, source, model)
    in_order = training.lags if model is None else model.series is not None
    source, rest, which = held_out(test, source, bool(in_order), quiet)
    with Meter("training", quiet, passes) as meter:
        learned = job.train(
            source, training, path, model, passes, skip,
            lambda reader, score, *now: meter.show(reader, score.n, score.line(), *now),
            None if quiet or as_json else click.echo,
        )  # fmt: skip
    held, untested = _score(learned, rest, which, quiet)
    scores = training_scores(learned, held, which, passes)
    words = tell(learned, held, scores, path, meter.seconds, as_json, quiet)
    remark(f"the model has not learned the {_rows(held)} held out", quiet or held is None)
    remark(source.on_error.words, quiet or not source.on_error.count)
    if plot is not None or html is not None:
        told = story(f"{path} from {data}", learned, learned.model, True, held)
        lists = {"what was guessed": learned.guesses, "to know": [*words, *learned.notices]}
        draw(told, scores, plot, html, lists, quiet or as_json)
    _end(context, learned, path)
    if isinstance(untested, int):
        again = shlex.join(["dokl", "evaluate", str(path), data, "--test", str(test)])
        said = f"interrupted; {path} is written, and the rows held out were not scored. Score them"
        click.echo(f"{said} with:\n  {again}", err=True)
        sys.exit(128 + untested)
    if untested is not None:
        said = f"{path} is written, but the rows held out cannot be scored: {untested}"
        raise BadInput(said, options=untested.options)


def _score(learned: Any, rest: Any, which: Any, quiet: bool) -> tuple[Any, BadInput | int | None]:
    """How the model does on the rows that were held out, if it has learned the others; or why that
    cannot be found out, or the signal that stopped it.
    """
    if rest is None or learned.halt is not None or learned.fault is not None:
        return None, None
    from dokl.tables.jobs.hold_out import score_held_out
    from dokl.tables.jobs.stopping import Stopped

    try:
        with Meter("testing", quiet) as meter:
            held = score_held_out(learned.model, rest, which, meter.show)
    except BadInput as error:
        return None, error
    except Stopped as stop:
        return None, stop.signum
    return held, held.fault


def _rows(held: Any) -> str:
    return "" if held is None else f"{held.score.n:,} rows"


def _end(context: click.Context, learned: Any, path: Path) -> None:
    """Say how to go on with a training that did not come to its end."""
    if learned.fault is not None:
        go_on = _resume(context, learned.rest)
        raise BadInput(
            f"{learned.fault}. What was learned from {learned.model.rows_read:,} rows is in "
            f"{path}; once the row is corrected, go on with: {go_on}",
            options=learned.fault.options,
        )
    if learned.halt is not None:
        click.echo(
            f"interrupted; what was learned from {learned.model.rows_read:,} rows is in {path}. "
            f"Go on with:\n  {_resume(context, learned.halt)}",
            err=True,
        )
        sys.exit(128 + learned.halt.signum)


def _check_new(context: click.Context, path: Path, options: dict[str, Any]) -> None:
    """Refuse at once what cannot be; a model that goes on needs nothing but its file."""
    go_on, overwrite = options["go_on"], options.pop("overwrite")
    if go_on and overwrite:
        raise click.UsageError("--continue or --overwrite, not both")
    told = _told(context, START_ONLY) if go_on else []
    if told:
        raise click.UsageError(
            f"--continue keeps what the model was started with: leave out {', '.join(told)}"
        )
    if go_on:
        return
    from dokl.base.files import check_new

    check_new(path, overwrite, "--continue goes on with it, --overwrite starts over")
    if options["classes"] and options["task"] == "regression":
        raise click.UsageError("--classes are for a classification")
    given = _told(context, ("graph", "share"))
    if given and options["nodes"] is None:
        raise click.UsageError(f"{given[0]} needs --nodes, the column that names each row's node")


def _check_method(context: click.Context, options: dict[str, Any]) -> None:
    """Refuse settings that the method does not have; no setting chooses a method."""
    if options["method"] == "gradient":
        return
    given = _told(context, GRADIENT_ONLY)
    if options["standardise"] == "running" and options["nodes"] is None:
        given.append("--standardise running")
    if given:
        them = "it" if len(given) == 1 else "them"
        raise click.UsageError(
            f"{', '.join(given)}: only --method gradient has that. Add --method gradient, or leave "
            f"{them} out"
        )


def _existing(path: Path, options: dict[str, Any]) -> Any:
    """The model to go on with, None for a new one."""
    if not options.pop("go_on"):
        return None
    from dokl.tables.models import TableModel

    return _with_target(TableModel.load(path), options["target"])


def _told(context: click.Context, names: tuple[str, ...]) -> list[str]:
    """Which of these options are on the command line."""
    source = click.core.ParameterSource.COMMANDLINE
    spelled = {p.name: p.opts[0] for p in context.command.params}
    return [spelled[name] for name in names if context.get_parameter_source(name) == source]


def _with_target(model: Any, target: str | None) -> Any:
    """The model; one that was saved in Python has to be told its target."""
    if target is not None and target != model.target:
        if model.target is not None:
            raise click.UsageError(f"the model's target is {model.target!r}, and not {target!r}")
        model.target = target
    return model


def _training(options: dict[str, Any], source: Any, model: Any) -> Any:
    from dokl.tables.jobs.start import Training

    if model is not None:
        return Training(node=model.node)
    given = {PARAMETERS[key]: options.pop(key) for key in PARAMETERS}
    extra = key_values(options.pop("parameters"))
    parameters = {key: _number(value) for key, value in given.items() if value is not None} | extra
    levels = split_pairs(options.pop("levels"), "COLUMN=A,B,...")
    node, name, graph = options.pop("nodes"), options.pop("graph"), None
    if node is not None:
        from dokl.tables.jobs.network import graph_words, named_graph

        graph = named_graph(name, source, node, parameters["random_state"])
    return Training(
        target=options["target"],
        task=options["task"],
        classes=comma_list(options["classes"]),
        levels={name: comma_list(text) for name, text in levels},
        standardise=options["standardise"],
        node=node,
        graph=graph,
        parameters=parameters,
        method=options["method"],
        lags=lag_request(options),
        group=options["group"],
        links="" if graph is None else graph_words(name, parameters["random_state"]),
    )


def _number(value: Any) -> Any:
    try:
        if isinstance(value, str) and "," in value:
            return tuple(float(each) for each in value.split(","))
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _resume(context: click.Context, halt: Any) -> str:
    """The command that goes on where this one was stopped."""
    given = context.params
    words = ["dokl", "train", given["data"], "--model", str(given["path"]), "--continue"]
    words += ["--skip", str(halt.rows)] if halt.rows else []
    words += ["--passes", str(halt.passes)] if halt.passes > 1 else []
    words += ["--test", given["test"]] if given["test"] is not None else []
    if given["on_error"] != "fail":
        words += ["--on-error", given["on_error"]]
    for name in ("format", "delimiter", "decimal", "dates", "missing", "chunk"):
        value = given[name]
        words += [f"--{name}", str(value)] if value is not None else []
    words += ["--no-header"] if given["no_header"] else []
    words += ["--zero-based"] if given["zero_based"] else []
    return shlex.join(words)
