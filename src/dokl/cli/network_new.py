"""dokl network new"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dokl.cli.common import (
    echo_json,
    examples,
    key_values,
    output_switches,
    remark,
    split_pairs,
    with_options,
)
from dokl.cli.graph import Topology
from dokl.cli.lags import AUTO, TIME, earlier_options, lag_request
from dokl.cli.source import make_source, reading_options
from dokl.cli.train import FEATURES, KERNELS, TASKS

SCHEDULES = ("normalised", "constant", "sqrt", "inverse_power", "pegasos")
MODES = ("push", "pull", "lockstep", "off")
DTYPES = ("float32", "float16")
STANDARDISE = ("fixed", "off")
METHODS = ("gradient", "squares")
SHARES = ("sums", "rows")
MAPS = ("auto", "learned", "drawn")
BETTER = (
    "nodes learn by gradient steps; --method squares predicts better, of numbers with intervals, "
    "and shares sums per origin, for more time a row"
)
LEAVES = {
    "vectors": "what leaves a node: its vector, to its neighbours; no row does",
    "sums": "what leaves a node: sums of its rows, of 50 new ones or more at a time, to all nodes; "
    "a learned map has rows of the sample in it. --share rows lets rows travel; it needs no sample",
    "rows": "what leaves a node: every row of it, sealed, to all nodes, which keep the last "
    "{kept:,} of each. Others' copies cannot be recalled. --share sums lets only sums travel",
}
Description = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
Days = click.option("--days", type=click.IntRange(1), metavar="N", default=365, show_default=True,
                    help="How long certificates of nodes are valid.")  # fmt: skip

NEW_HELP = """\b
Inputs: scaling, levels of text columns and class labels are settled here, once
for all nodes, by --sample: up to 100,000 rows like those that will come. --inputs
N does without: columns x1 ... xN as they are, and the target y. Decimal commas,
thousands, currencies, percent signs and times that the sample has are agreed, too:
nodes read their sources so. --format to --chunk say how to read the sample.
Lags (--method squares): every node makes earlier values of its own rows, and finds
them again after a crash. Rows of a node must come in the order of their times.
\b
Security: by default neighbours show certificates, made by an authority of this
network's own. They lie in the folder FILE.certs, readable by you only: each
node's machine gets ca.pem and the node's .pem, .key and tokens; ca.key stays
with you. --insecure-loopback does without, on one machine, for play.
\b
Addresses: without --base-port free ports of this machine are picked. On several
machines, name them: --node a=10.0.0.1:7447 --node b=10.0.0.2:7447.
"""


class Clip(click.ParamType):  # type: ignore[type-arg]
    """A longest difference, or auto."""

    name = "clip"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        """The number, or the word."""
        return "auto" if value == "auto" else click.FloatRange(0).convert(value, param, ctx)


def _model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is learned."""
    options = [
        click.option("--kernel", type=click.Choice(KERNELS), default="gaussian", show_default=True,
                     help="The kernel."),
        click.option("--sigma", default="auto", show_default=True,
                     help="Its width: a number, or one for each input, with commas; scale (by "
                     "the sample's spread: auto) or median; learned: one for each, by the sample."),
        click.option("--components", "D", type=click.IntRange(1), metavar="D", default=500,
                     show_default=True, help="Numbers in theta, and in a message."),
        click.option("--D", "old_D", type=click.IntRange(1), hidden=True,
                     help="What --components was called."),
        click.option("--variant", type=click.Choice(FEATURES), default="auto", show_default=True,
                     help="How features are drawn."),
        click.option("--seed", type=click.IntRange(0), default=1, show_default=True,
                     help="Of the features, and of a random graph."),
        click.option("--loss", help="squared, huber:1, ...; logistic where there are classes."),
        click.option("--schedule", type=click.Choice(SCHEDULES), default="normalised",
                     show_default=True, help="How the step goes on."),
        click.option("--mu", type=float, help="The step, or the first one: 0.5 if normalised."),
        click.option("--lam", type=float, default=0.0, show_default=True,
                     help="L2 regularization."),
        click.option("--method", type=click.Choice(METHODS), default="gradient", show_default=True,
                     help="squares: every node is a lone learner, and shares sums of its rows."),
        click.option("--share", type=click.Choice(SHARES), default="sums", show_default=True,
                     help="Of squares: what leaves a node. rows: all of its rows, to every node, "
                     "and nothing else is agreed than columns."),
        click.option("--map", "map_", type=click.Choice(MAPS), default="auto", show_default=True,
                     help="Of squares: learned from the sample (auto, where there is one), or "
                     "drawn by --kernel and --sigma, if no row may leave its node."),
        click.option("--intercept", type=float, default=0.0, show_default=True,
                     help="Size of a private constant feature; 0 is none."),
        click.option("--parameter", "-p", "parameters", multiple=True, metavar="KEY=VALUE",
                     help="Anything else of [model]: n0, power, eps; nu, alpha of a kernel."),
    ]  # fmt: skip
    return with_options(command, options)


def _input_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What the inputs are."""
    options = [
        click.option("--sample", type=click.Path(), help="Rows that settle scaling and labels."),
        click.option("--node-column", metavar="COLUMN",
                     help="Names the node of each row of the sample: with --method squares the "
                     "map then has a place for every node."),
        click.option("--inputs", "d", type=click.IntRange(1), metavar="N",
                     help="Without a sample: N columns x1 ... xN."),
        click.option("--columns", "inputs", metavar="NAME,...",
                     help="With --share rows, without a sample: the inputs by name. NAME:time for "
                     "times; of text, with --levels."),
        click.option("--target", metavar="COLUMN", help="Column to predict."),
        click.option("--task", type=click.Choice(TASKS), default="auto", show_default=True,
                     help="auto: text, and whole numbers of up to 10 kinds, are classes."),
        click.option("--classes", help="All labels, comma separated; else those of the sample."),
        click.option("--levels", multiple=True, metavar="COLUMN=A,B,...",
                     help="All levels of a text column; else those of the sample."),
        click.option("--drop", multiple=True, metavar="COLUMN", help="Do not use this column."),
        click.option("--text", multiple=True, metavar="COLUMN", help="Take this column as text."),
        click.option("--numeric", multiple=True, metavar="COLUMN", help="Take it as numbers."),
        click.option("--standardise", type=click.Choice(STANDARDISE), default="fixed",
                     show_default=True, help="Numbers: by the sample, or as they are."),
    ]  # fmt: skip
    return with_options(command, [*options, *earlier_options(), AUTO, TIME])


def _exchange_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How theta travels."""
    options = [
        click.option("--exchange", "mode", type=click.Choice(MODES), default="push",
                     show_default=True, help="pull suits slow links; off is everyone alone."),
        click.option("--every-seconds", type=click.FloatRange(0), metavar="T",
                     help="Exchange so often: 0.1, or 0 with --every-samples."),
        click.option("--every-samples", type=click.IntRange(0), default=0, metavar="N",
                     help="Exchange after N samples."),
        click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True,
                     help="How theta travels."),
        click.option("--clip", type=Clip(), metavar="auto|TAU", default="auto", show_default=True,
                     help="How far one neighbour may pull; 0 is any. auto: where no neighbour can "
                     "be left out, as far as a node's own rows allow."),
    ]  # fmt: skip
    return with_options(command, options)


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Who there is, and where."""
    port = click.IntRange(1, 65535)
    options = [
        click.option("--graph", type=Topology(), metavar="NAME|FILE", default="ring",
                     show_default=True, help="A topology of 'dokl graph', or a file of edges."),
        click.option("--nodes", type=click.IntRange(1), metavar="N", help="a, b, c, ..."),
        click.option("--node", "named", multiple=True, metavar="NAME[=HOST:PORT]",
                     help="A node, and where it is."),
        click.option("--graph-parameter", "graph_parameters", multiple=True, metavar="KEY=VALUE",
                     help="Of the topology, e.g. p=0.5 of random."),
        click.option("--host", default="127.0.0.1", show_default=True,
                     help="Where nodes listen that have no address of their own."),
        click.option("--base-port", type=port, help="Port of the first node."),
        click.option("--http-host", default="127.0.0.1", show_default=True,
                     help="Where HTTP faces listen."),
        click.option("--http-base-port", type=port, help="Port of the first HTTP face."),
    ]  # fmt: skip
    return with_options(command, options)


@click.command(
    epilog="\n".join([
        NEW_HELP,
        examples(
            "dokl network new lab.toml --graph ring --nodes 5 --sample readings.csv --target temp",
            "dokl network new lab.toml --graph links.csv --sample s.csv --target y "
            "--components 2500",
            "dokl network new lab.toml --graph links.csv --columns temp,wind --target pm25 "
            "--share rows",
            "dokl network new play.toml --nodes 3 --graph complete --inputs 2 --insecure-loopback",
            "dokl network new ab.toml --graph star --inputs 5 "
            "--node a=10.0.0.1:7447 --node b=10.0.0.2:7447",
        ),
    ])
)  # fmt: skip
@Description
@_place_options
@_input_options
@_model_options
@_exchange_options
@reading_options
@click.option("--secure/--insecure-loopback", default=True, help="Certificates, or none.")
@Days
@click.option("--name", help="Of the network; else that of the file.")
@click.option("--overwrite", is_flag=True, help="Replace a network that is there, keys and all.")
@output_switches
@click.pass_context
def new(
    context: click.Context, /, path: Path, secure: bool, days: int, name: str | None,
    overwrite: bool, as_json: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Write the description of a network, and certificates for its nodes."""
    from dokl.live.jobs import networks as live
    from dokl.live.jobs import new as live_plan

    _settle_method(context, options)
    places, sample, model, exchange = _wishes(options, quiet)
    learns_map = _learns_map(context, options)
    live_plan.new(
        path, places, sample, model, exchange,
        name=name, secure=secure, days=days, overwrite=overwrite, learns_map=learns_map,
        say=None if quiet or as_json else click.echo,
    )  # fmt: skip
    found = live.check(path)
    if as_json:
        echo_json(found)
        return
    show_network(found)
    for text in found["remarks"]:
        remark(text, quiet)
    shares = model["share"] if model["method"] == "squares" else "vectors"
    remark(LEAVES[shares].format(kept=exchange.kept_rows), quiet)
    usual = click.core.ParameterSource.DEFAULT
    known = options["sample"] and options["target"]
    if known and context.get_parameter_source("method") == usual:
        remark(BETTER, quiet)
    beside = [path.with_suffix(".map").name] if found["map"] else []
    beside += [f"{path.stem}.certs/"] if secure else []
    remark(" and ".join([f"written: {path}", *beside]), quiet)
    remark(f"next:\n  dokl network check {path}\n{_start(path, found)}", quiet)


def _settle_method(context: click.Context, options: dict[str, Any]) -> None:
    """Rows are shared by method squares, without a map."""
    if options["share"] != "rows":
        return
    usual = click.core.ParameterSource.DEFAULT
    for name in ("method", "kernel", "sigma", "D", "variant", "map_", "loss", "schedule", "mu"):
        if context.get_parameter_source(name) != usual and options[name] != "squares":
            shown = {"D": "components", "map_": "map"}.get(name, name)
            raise click.UsageError(
                f"--{shown}: with --share rows every node learns by least squares, and makes its "
                "own map from the rows that it hears: leave it out"
            )
    for name in ("lag", "rolling", "difference", "auto_lags"):
        if context.get_parameter_source(name) != usual:
            raise click.UsageError(
                f"--{'lags' if name == 'auto_lags' else name}: nodes make earlier values with "
                "--share sums alone: leave it out, or make such columns before rows arrive"
            )
    options["method"] = "squares"


def _learns_map(context: click.Context, options: dict[str, Any]) -> bool | None:
    """Whether the map is learned from the sample; None: where there is one."""
    if options["map_"] == "auto":
        given = [
            name
            for name in ("kernel", "sigma", "variant")
            if context.get_parameter_source(name) != click.core.ParameterSource.DEFAULT
        ]
        if given and options["method"] == "squares" and options["sample"]:
            raise click.UsageError(
                f"--{given[0]} is of a map that is drawn, and with a sample the map is learned: "
                f"leave --{given[0]} out, or say --map drawn"
            )
        return None
    if options["method"] != "squares":
        raise click.UsageError("--map is for --method squares, whose nodes share sums on a map")
    return bool(options["map_"] == "learned")


def _start(path: Path, found: dict[str, Any]) -> str:
    """How to start it: here, or on its hosts."""
    from dokl.live.description import is_loopback

    if all(is_loopback(node["address"]) for node in found["nodes"].values()):
        return f"  dokl up {path} --data DIR"
    return (
        f"  to every host: {path}, {path.stem}.map if there is one, and of {path.stem}.certs/ "
        "ca.pem and its own node's files\n"
        f"  dokl agent {path} --name NODE"
    )


def _wishes(options: dict[str, Any], quiet: bool) -> tuple[Any, Any, dict[str, Any], Any]:
    """Places, sample, model and exchange from the options."""
    from dokl.live.description import ExchangePolicy, Model
    from dokl.live.jobs.inputs import Sample
    from dokl.live.jobs.places import Places

    if (old := options.pop("old_D")) is not None:
        options["D"] = old
        remark("--D is called --components now, as elsewhere; it is taken as that", quiet)

    def taken(*names: str) -> dict[str, Any]:
        return {name: options[name] for name in names}

    extra = key_values(options["parameters"])
    own = {
        key: extra.pop(key)
        for key in ("n0", "power", "eps", "loss_parameter", "own_components")
        if key in extra
    }
    keys = [key for key in Model.__dataclass_fields__ if key in options and key != "parameters"]
    model = taken(*keys) | own | {"parameters": extra}
    seconds = options["every_seconds"]
    if seconds is None:
        seconds = 0.0 if options["every_samples"] else ExchangePolicy.every_seconds
    policy = taken("mode", "every_samples", "dtype", "clip")
    classes = tuple(part.strip() for part in (options["classes"] or "").split(",") if part.strip())
    sample = taken("target", "task", "drop", "standardise", "d", "node_column")
    reading = make_source(options["sample"] or "", options).options
    sample["lags"] = lag_request(options)
    pairs = split_pairs(options["levels"], "COLUMN=A,B,...")
    levels = {name: tuple(part.strip() for part in text.split(",")) for name, text in pairs}
    columns = [part.strip() for part in (options["inputs"] or "").split(",") if part.strip()]
    sample["columns"] = tuple(columns)
    places = taken("graph", "nodes", "seed", "host", "base_port", "http_host", "http_base_port")
    named = dict(_named(options["named"]))
    return (
        Places(named=named, parameters=key_values(options["graph_parameters"]), **places),
        Sample(options["sample"], classes=classes, reading=reading, levels=levels, **sample),
        model,
        ExchangePolicy(every_seconds=seconds, **policy),
    )


def _named(nodes: tuple[str, ...]) -> list[tuple[str, str | None]]:
    pairs = [node.partition("=") for node in nodes]
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise click.BadParameter("the same node twice", param_hint="--node")
    return [(name, address or None) for name, _, address in pairs]


def show_network(found: dict[str, Any]) -> None:
    """The tables of `check`: the network, and its nodes."""
    from dokl.tables.report import table

    agree = found["lambda_2"] if (found["lambda_2"] or 1.0) > 1e-12 else 0.0  # less is rounding
    ends = [node["certificate_expires"] for node in found["nodes"].values()]
    rows = [
        ["nodes", f"{len(found['nodes'])}"],
        ["links", f"{found['links']}"],
        ["fingerprint", found["fingerprint"]],
        ["lambda_2 of the Metropolis weights", "none" if agree is None else f"{agree:.4g}"],
        ["security", found["security"]],
        *([["authority", found["authority"]]] if found["authority"] else []),
        ["certificates run out", min((end[:10] for end in ends if end), default="none")],
    ]
    table(f"network {found['network']}", ["", ""], rows)
    places = [
        [
            name,
            node["address"],
            node["http"] or "none",
            _few(node["neighbours"]),
            "?" if node["liars"] is None else str(node["liars"]),
        ]
        for name, node in found["nodes"].items()
    ]
    table("", ["node", "address", "HTTP", "neighbours", "liars"], places)


def _few(names: list[str]) -> str:
    """As many names as fit on a line with the rest, and the number of the others."""
    shown = ""
    for i, name in enumerate(names):
        longer = f"{shown}, {name}" if shown else name
        if i and len(longer) > 20:
            return f"{shown} + {len(names) - i}"
        shown = longer
    return shown
