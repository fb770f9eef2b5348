"""dokl network new"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dokl.cli.graph import Topology
from dokl.cli.options import (
    AUTO,
    DROP,
    HORIZON,
    NUMERIC,
    TASK,
    TEXT,
    TIME,
    earlier_options,
    echo_json,
    examples,
    key_values,
    label_options,
    lag_request,
    make_source,
    output_switches,
    reading_options,
    remark,
    split_pairs,
    with_options,
)
from dokl.cli.train import FEATURES, KERNELS

SCHEDULES = ("normalised", "constant", "sqrt", "inverse_power", "pegasos")
MODES = ("push", "pull", "lockstep", "off")
DTYPES = ("float32", "float16")
STANDARDISE = ("fixed", "off")
METHODS = ("gradient", "squares")
SHARES = ("sums", "rows")
MAPS = ("auto", "learned", "drawn")
BETTER = (
    "nodes learn by gradient steps; --method squares predicts better, has intervals for numbers, "
    "and shares sums per origin; it takes more time per row"
)
LEAVES = {
    "vectors": "what leaves a node: its vector, to its neighbours; no rows",
    "sums": "what leaves a node: sums over at least 50 new rows, to all nodes; a learned map "
    "contains rows of the sample. --share rows sends rows; it needs no sample",
    "rows": "what leaves a node: each of its rows, sealed, to all nodes, which keep the last "
    "{kept:,} of each. Copies cannot be recalled. --share sums sends only sums",
}
Description = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
Days = click.option("--days", type=click.IntRange(1), metavar="N", default=365, show_default=True,
                    help="How long certificates of nodes are valid.")  # fmt: skip

NEW_HELP = """\b
Inputs: --sample, up to 100,000 typical rows, fixes the scaling, the levels of text
columns and the class labels, once for all nodes. It also fixes how nodes read
decimal commas, thousands, currencies, percent signs and times. --inputs N needs no
sample: columns x1 ... xN as they are, and the target y. --format to --chunk apply to
the sample. Lags (--method squares, --share rows): each node makes lags from
its own rows; a crash loses none. Rows of a node must arrive in the
order of their times.
\b
Security: by default neighbours show certificates, signed by this network's own
authority. They are in the folder FILE.certs, which only you can read. Copy ca.pem and
the node's .pem, .key and tokens to each node's machine; keep ca.key. With
--insecure-loopback there are no certificates: on one machine, for a trial.
\b
Addresses: without --base-port dokl picks free ports of this machine. On several
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
                     "the sample's spread: auto), median, or learned from the sample."),
        click.option("--components", "D", type=click.IntRange(1), metavar="D", default=500,
                     show_default=True, help="Numbers in theta, and in a message."),
        click.option("--D", "old_D", type=click.IntRange(1), hidden=True,
                     help="The earlier name of --components."),
        click.option("--variant", type=click.Choice(FEATURES), default="auto", show_default=True,
                     help="How features are drawn."),
        click.option("--seed", type=click.IntRange(0), default=1, show_default=True,
                     help="Seed of the features and of a random graph."),
        click.option("--loss", help="squared, huber:1, ...; logistic where there are classes."),
        click.option("--schedule", type=click.Choice(SCHEDULES), default="normalised",
                     show_default=True, help="Step over time."),
        click.option("--mu", type=float, help="The step, or the first one: 0.5 if normalised."),
        click.option("--lam", type=float, default=0.0, show_default=True,
                     help="L2 regularization."),
        click.option("--method", type=click.Choice(METHODS), default="gradient", show_default=True,
                     help="squares: each node has its own bank, and shares sums of its rows."),
        click.option("--share", type=click.Choice(SHARES), default="sums", show_default=True,
                     help="squares: what leaves a node. rows: all its rows, to all nodes; only "
                     "the columns are agreed."),
        click.option("--map", "map_", type=click.Choice(MAPS), default="auto", show_default=True,
                     help="squares: learned from the sample (auto, if there is one), or "
                     "drawn by --kernel and --sigma, if no row may leave its node."),
        click.option("--intercept", type=float, default=0.0, show_default=True,
                     help="Size of a private constant feature; 0 is none."),
        click.option("--parameter", "-p", "parameters", multiple=True, metavar="KEY=VALUE",
                     help="Other keys of [model]: n0, power, eps; nu, alpha of a kernel."),
    ]  # fmt: skip
    return with_options(command, options)


def _input_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What the inputs are."""
    options = [
        click.option("--sample", type=click.Path(),
                     help="Typical rows; they fix scaling and labels."),
        click.option("--node-column", metavar="COLUMN",
                     help="The node of each row of the sample; with --method squares the map "
                     "then has a place for each node."),
        click.option("--inputs", "d", type=click.IntRange(1), metavar="N",
                     help="Without a sample: N columns x1 ... xN."),
        click.option("--columns", "inputs", metavar="NAME,...",
                     help="--share rows without a sample: names of the inputs. NAME:time for "
                     "times; add --levels for text."),
        click.option("--target", metavar="COLUMN", help="Column to predict."),
        TASK, *label_options("the sample"),
        DROP, TEXT, NUMERIC,
        click.option("--standardise", type=click.Choice(STANDARDISE), default="fixed",
                     show_default=True, help="Scale numbers by the sample, or not at all."),
    ]  # fmt: skip
    return with_options(command, [*options, *earlier_options(), AUTO, HORIZON, TIME])


def _exchange_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How theta travels."""
    options = [
        click.option("--exchange", "mode", type=click.Choice(MODES), default="push",
                     show_default=True, help="pull is for slow links; off: no exchange."),
        click.option("--every-seconds", type=click.FloatRange(0), metavar="T",
                     help="Exchange every T seconds: 0.1, or 0 with --every-samples."),
        click.option("--every-samples", type=click.IntRange(0), default=0, metavar="N",
                     help="Exchange every N samples."),
        click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True,
                     help="Precision of theta in messages."),
        click.option("--clip", type=Clip(), metavar="auto|TAU", default="auto", show_default=True,
                     help="Limit of one neighbour's influence; 0: none. auto: by the node's own "
                     "rows, where no neighbour can be left out."),
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
                     help="A node and its address."),
        click.option("--graph-parameter", "graph_parameters", multiple=True, metavar="KEY=VALUE",
                     help="A parameter of the topology, e.g. p=0.5 (random)."),
        click.option("--host", default="127.0.0.1", show_default=True,
                     help="Host of nodes without an address."),
        click.option("--base-port", type=port, help="Port of the first node."),
        click.option("--http-host", default="127.0.0.1", show_default=True,
                     help="Host of HTTP servers."),
        click.option("--http-base-port", type=port, help="Port of the first HTTP server."),
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
@click.option("--name", help="Name of the network. Default: that of the file.")
@click.option("--overwrite", is_flag=True, help="Replace an existing network, with its keys.")
@output_switches
@click.pass_context
def new(
    context: click.Context, /, path: Path, secure: bool, days: int, name: str | None,
    overwrite: bool, as_json: bool, quiet: bool, **options: object,
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
                f"--{shown}: with --share rows each node learns by least squares, on its own map: "
                "leave it out"
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
                f"--{given[0]} needs a drawn map, and with a sample the map is learned: leave "
                f"--{given[0]} out, or add --map drawn"
            )
        return None
    if options["method"] != "squares":
        raise click.UsageError("--map needs --method squares")
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
        remark("--D is the earlier name of --components", quiet)

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
            "?" if node["faulty_tolerated"] is None else str(node["faulty_tolerated"]),
        ]
        for name, node in found["nodes"].items()
    ]
    table("", ["node", "address", "HTTP", "neighbours", "tolerates"], places)


def _few(names: list[str]) -> str:
    """As many names as fit on a line with the rest, and the number of the others."""
    shown = ""
    for i, name in enumerate(names):
        longer = f"{shown}, {name}" if shown else name
        if i and len(longer) > 20:
            return f"{shown} + {len(names) - i}"
        shown = longer
    return shown
