"""dokl train"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dokl.base.errors import BadInput, counted
from dokl.cli.options import (
    AUTO,
    BY,
    DROP,
    FILES_HELP,
    HORIZON,
    NUMERIC,
    PARAMETER,
    ROWS_HELP,
    SERIES_HELP,
    TASK,
    TEXT,
    TIME,
    Data,
    comma_list,
    earlier_options,
    examples,
    held_out,
    keep_inputs,
    key_values,
    label_options,
    lag_request,
    make_source,
    on_error_options,
    output_switches,
    reading_options,
    remark,
    split_pairs,
    test_option,
    with_options,
)
from dokl.cli.results import (
    Meter,
    check_places,
    draw,
    loading,
    picture_options,
    print_training,
    summarise,
    training_scores,
)

KERNELS = (
    "gaussian", "rbf", "laplacian", "matern", "matern12", "matern32", "matern52", "cauchy",
    "rational_quadratic",
)  # fmt: skip
FEATURES = ("auto", "cos", "paired", "orthogonal", "sobol", "structured")
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
Methods: bank, the default, needs no settings. It mixes experts of least squares by
their errors. The experts learn length scales from the rows, and remember a few rows
to all of them. It learns a few hundred rows a second. -p experts=lasting leaves out
experts that forget (the default with lags), for models that do not learn in use;
-p experts=one uses a single expert.
gradient takes one step for each row: a million rows a second. The options from
--kernel to --alpha are its settings; they need --method gradient.
"""
NETWORK_HELP = """\b
Networks: with --nodes this column names the node of each row. Each node learns from
its own rows, and neighbours in --graph exchange what they learned. Rows should be in
the order of time, all nodes mixed: the first rows settle the scaling, once for all
nodes. With --method bank each node mixes its own bank, a bank that the network
shares, and the corrected mean of both: some hundred rows a second. With --method
gradient nodes average vectors (diffusion): a million rows a second.

\b
What leaves a node with --method bank: --share sums sends sums over at least 50 rows,
and, for each new feature map, the sample of rows from which it is made. Other rows
stay at their node. --share rows sends every row: smaller messages if there are few
inputs, and often a smaller error.
"""


def learning_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What to learn, and how."""
    options = [
        click.option("--target", metavar="COLUMN", help="Column to predict (not for LIBSVM)."),
        click.option("--method", type=click.Choice(METHODS),
                     help="bank (the default): no settings; gradient: those from --kernel on."),
        TASK, *label_options("the first rows"),
        click.option("--group", metavar="COLUMN",
                     help="Names the station, customer, ... of each row; text or whole numbers. "
                     "Default: a text column with more than 50 levels, if there is one."),
        DROP, TEXT, NUMERIC,
        click.option("--n-features", type=click.IntRange(1), metavar="N",
                     help="Features of a LIBSVM file; needed from stdin."),
        click.option("--standardise", type=click.Choice(STANDARDISE),
                     help="By the rows so far, by the first rows, or not. Defaults: bank off, "
                     "gradient running, networks fixed."),
        *earlier_options(), AUTO, HORIZON, BY, TIME,
        click.option("--nodes", metavar="COLUMN", help="Learn over a network: each row's node."),
        click.option("--graph", metavar="NAME|FILE", default="random", show_default=True,
                     help="The network: a topology of 'dokl graph', or a file of edges."),
        click.option("--share", type=click.Choice(SHARE),
                     help="What leaves a node: sums over rows (the default), or rows."),
        click.option("--components", type=click.IntRange(1), metavar="D",
                     help="Size of the model: centres of the widest experts, 1000; gradient: "
                     "length of its vector, 500."),
        click.option("--kernel", type=click.Choice(KERNELS), help="gaussian if not given."),
        click.option("--sigma", help="Kernel width: a number (or one for each input, with "
                     "commas), scale or median."),
        click.option("--features", type=click.Choice(FEATURES), help="How features are drawn."),
        click.option("--loss", help="squared, huber:1, quantile:0.9, ...; hinge, logistic, ..."),
        click.option("--step", help="A number, auto, or pegasos."),
        click.option("--alpha", type=float, help="L2 regularization."),
        click.option("--seed", "random_state", type=int, default=0, show_default=True,
                     help="Seed of features, of the replay buffer, and of a random graph."),
        PARAMETER,
    ]  # fmt: skip
    return with_options(command, options)


@click.command(
    epilog="\n".join([METHODS_HELP, FILES_HELP, ROWS_HELP, SERIES_HELP, NETWORK_HELP, EXAMPLES])
)
@click.argument("data", type=Data)
@click.option(
    "--model", "path", required=True, type=click.Path(path_type=Path), help="Model file to write."
)
@click.option("--continue", "go_on", is_flag=True, help="Continue with the existing model file.")
@click.option("--overwrite", is_flag=True, help="Replace an existing model file.")
@click.option(
    "--skip", type=click.IntRange(0), default=0, metavar="N", help="Skip the first N rows."
)
@click.option("--passes", type=click.IntRange(1), default=1, metavar="N",
              show_default=True, help="Number of passes over the file.")  # fmt: skip
@click.option(
    "--shuffle/--no-shuffle",
    default=None,
    help="Learn the rows in random order, or in file order. Default: random if they are "
    "sorted by their target, or held out by --test random.",
)
@test_option("Hold these rows out: they are scored, and not learned.")
@learning_options
@reading_options
@on_error_options
@picture_options
@output_switches
@click.pass_context
def train(
    context: click.Context, /, data: str, path: Path, skip: int, passes: int,
    test: str | None, shuffle: bool | None, plot: Path | None, html: Path | None, as_json: bool,
    quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Learn from DATA row by row and write a model file.

    Memory does not grow with DATA, except for up to 200,000 shuffled lines. The command
    prints the error on the rows that --test holds out;
    the prequential error, where each row is predicted before it is learned; and, for a bank, the
    score of a frozen model, the coverage of its 90 % intervals, and how far back it remembers.
    Ctrl-C saves what was learned so far, and prints the command that continues.
    """
    _check_new(context, path, options)
    check_places(plot, html)
    keep_inputs([data], [path, plot, html])
    _check_method(context, options)
    with loading(quiet):
        from dokl.tables.jobs import train as job

        model = _existing(path, options)
    source = make_source(data, options, f"{path}.refused.csv")
    training = replace(_training(options, source, model), shuffle=shuffle)
    in_order = training.lags if model is None else model.series is not None
    source, rest, which = held_out(test, source, bool(in_order), quiet)
    drawn = which is not None and not which.in_order
    if shuffle is None and drawn and training.node is None and source.on_error.mode != "stop":
        training = replace(training, shuffle=True)  # rows drawn at random have no order
    with Meter("training", quiet, passes) as meter:
        learned = job.train(
            source, training, path, model, passes, skip,
            lambda reader, score, *now: meter.show(reader, score.n, score.line(), *now),
            None if quiet or as_json else click.echo,
        )  # fmt: skip
    held, untested = _score(learned, rest, which, quiet)
    scores = training_scores(learned, held, which, passes)
    words = print_training(learned, held, scores, path, meter.seconds, as_json, quiet)
    remark(f"the model has not learned the {_rows(held)} held out", quiet or held is None)
    remark(source.on_error.words, quiet or not source.on_error.count)
    if plot is not None or html is not None:
        pictures = summarise(f"{path} from {data}", learned, learned.model, True, held)
        lists = {"what was guessed": learned.guesses, "to know": [*words, *learned.notices]}
        draw(pictures, scores, plot, html, lists, quiet or as_json)
    _end(context, learned, path)
    if isinstance(untested, int):
        again = shlex.join(["dokl", "evaluate", str(path), data, "--test", str(test)])
        message = (
            f"interrupted; {path} is written, and the rows held out were not scored. Score them"
        )
        click.echo(f"{message} with:\n  {again}", err=True)
        sys.exit(128 + untested)
    if untested is not None:
        message = f"{path} is written, but the rows held out cannot be scored: {untested}"
        raise BadInput(message, options=untested.options)


def _score(learned: Any, rest: Any, which: Any, quiet: bool) -> tuple[Any, BadInput | int | None]:
    """How the model does on the rows that were held out, if it has learned the others; or why that
    cannot be found out, or the signal that stopped it.
    """
    if rest is None or learned.halt is not None or learned.fault is not None:
        return None, None
    from dokl.base.progress import Stopped
    from dokl.tables.jobs.predict import score_held_out

    try:
        with Meter("testing", quiet) as meter:
            held = score_held_out(learned.model, rest, which, meter.show)
    except BadInput as error:
        return None, error
    except Stopped as stop:
        return None, stop.signum
    held.persistence.proposed = learned.persistence.proposed
    return held, held.fault


def _rows(held: Any) -> str:
    return "" if held is None else counted(held.score.n, "row")


def _end(context: click.Context, learned: Any, path: Path) -> None:
    """Print how to continue a training that was stopped."""
    if learned.fault is not None:
        go_on = _resume(context, learned.rest, learned.shuffled)
        raise BadInput(
            f"{learned.fault}. What was learned from {learned.model.rows_read:,} rows is in "
            f"{path}; once the row is corrected, continue with:  {go_on}",
            options=learned.fault.options,
        )
    if learned.halt is not None:
        click.echo(
            f"interrupted; what was learned from {learned.model.rows_read:,} rows is in {path}. "
            f"Go on with:\n  {_resume(context, learned.halt, learned.shuffled)}",
            err=True,
        )
        sys.exit(128 + learned.halt.signum)


def _check_new(context: click.Context, path: Path, options: dict[str, Any]) -> None:
    """Refuse at once what cannot be; a model that goes on needs nothing but its file."""
    go_on, overwrite = options["go_on"], options.pop("overwrite")
    if go_on and overwrite:
        raise click.UsageError("--continue or --overwrite, not both")
    fixed = _given_options(context, START_ONLY) if go_on else []
    if fixed:
        raise click.UsageError(
            f"--continue keeps the settings of the model: leave out {', '.join(fixed)}"
        )
    if go_on:
        return
    from dokl.base.files import check_new

    check_new(path, overwrite, "--continue continues it, --overwrite starts over")
    if options["classes"] and options["task"] == "regression":
        raise click.UsageError("--classes needs a classification")
    given = _given_options(context, ("graph", "share"))
    if given and options["nodes"] is None:
        raise click.UsageError(f"{given[0]} needs --nodes, the column that names each row's node")


def _check_method(context: click.Context, options: dict[str, Any]) -> None:
    """Refuse settings that the method does not have; no setting chooses a method."""
    if options["method"] == "gradient":
        return
    given = _given_options(context, GRADIENT_ONLY)
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


def _given_options(context: click.Context, names: tuple[str, ...]) -> list[str]:
    """Which of these options are on the command line."""
    source = click.core.ParameterSource.COMMANDLINE
    spelled = {p.name: p.opts[0] for p in context.command.params}
    return [spelled[name] for name in names if context.get_parameter_source(name) == source]


def _with_target(model: Any, target: str | None) -> Any:
    """The model; one that was saved in Python needs its target."""
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
        from dokl.tables.jobs.topology import graph_words, named_graph

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


def _resume(context: click.Context, halt: Any, shuffled: bool) -> str:
    """The command that goes on where this one was stopped."""
    given = context.params
    words = ["dokl", "train", given["data"], "--model", str(given["path"]), "--continue"]
    words += ["--skip", str(halt.rows)] if halt.rows else []
    words += ["--passes", str(halt.passes)] if halt.passes > 1 else []
    words += ["--test", given["test"]] if given["test"] is not None else []
    words += ["--shuffle" if shuffled else "--no-shuffle"]
    if given["on_error"] != "fail":
        words += ["--on-error", given["on_error"]]
    for name in ("format", "delimiter", "decimal", "dates", "missing", "chunk"):
        value = given[name]
        words += [f"--{name}", str(value)] if value is not None else []
    words += ["--no-header"] if given["no_header"] else []
    words += ["--zero-based"] if given["zero_based"] else []
    return shlex.join(words)
