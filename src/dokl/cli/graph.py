"""dokl graph"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from dokl.cli.options import echo_json, examples, key_values, output_switches, remark

TOPOLOGIES = (
    "random", "ring", "grid", "star", "complete", "small-world", "geometric", "exponential",
)  # fmt: skip
RULES = ("metropolis", "laplacian", "uniform")


class Topology(click.ParamType):  # type: ignore[type-arg]
    """A name of a topology, or a file of edges; the shell completes both."""

    name = "topology"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin like this, and files."""
        names = [CompletionItem(name) for name in TOPOLOGIES if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


@click.command(
    epilog=examples(
        "dokl graph random --nodes 20              the paper's networks",
        "dokl graph geometric --nodes 50 --plot net.png",
        "dokl graph small-world --nodes 1000 -p k=6 -p p=0.05 --json",
        "dokl graph links.csv --weights weights.csv",
    )
)
@click.argument("topology", type=Topology())
@click.option("--nodes", type=click.IntRange(1), metavar="N", default=20, show_default=True,
              help="Number of nodes.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of random topologies.")
@click.option(
    "--parameter", "-p", "parameters", multiple=True, metavar="KEY=VALUE",
    help="A parameter of the topology, e.g. p=0.3 (random), radius=0.2 (geometric).",
)  # fmt: skip
@click.option("--rule", type=click.Choice(RULES), default="metropolis", show_default=True,
              help="Rule of the weights.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path), help="Draw it: PNG, SVG or PDF.")
@click.option("--weights", type=click.Path(path_type=Path), help="Write the weights as CSV.")
@output_switches
def graph(
    topology: str, nodes: int, seed: int, parameters: tuple[str, ...], rule: str,
    plot: Path | None, weights: Path | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Describe and draw a TOPOLOGY: how fast its nodes agree.

    TOPOLOGY is random, ring, grid, star, complete, small-world, geometric or exponential, or a
    file with one edge per line: two node names, separated by a comma, semicolon, tab or space.
    """
    from dokl.tables.jobs import topology as job

    network = job.topology(topology, nodes, seed, key_values(parameters))
    found = job.facts(network, rule)
    if plot:
        job.draw(network, plot, f"{topology}: {found['K']} nodes, {found['edges']} links")
        found["plot"] = str(plot)
    if weights:
        found["weights"] = str(job.write_weights(network, rule, weights))
    if as_json:
        echo_json(found)
    else:
        _show(topology, found, quiet)


def _show(topology: str, found: dict[str, Any], quiet: bool) -> None:
    from dokl.tables.report import table

    def number(value: object) -> str:
        return "unknown" if value is None else f"{value:.4g}"

    faulty = found["faulty_tolerated"]
    stood = f"{faulty['least']} to {faulty['most']}" if faulty["most"] > faulty["least"] else ""
    never = found["lambda_2"] is not None and found["steps_to_tenth"] is None
    rows = [
        ["nodes", f"{found['K']:,}"],
        ["links", f"{found['edges']:,}"],
        ["mean degree", number(found["mean_degree"])],
        ["algebraic connectivity", number(found["algebraic_connectivity"])],
        [f"lambda_2 of the {found['rule']} weights", number(found["lambda_2"])],
        [
            "steps until disagreement is a tenth",
            "never: it is not connected" if never else number(found["steps_to_tenth"]),
        ],
        ["doubly stochastic", "yes" if found["doubly_stochastic"] else "no: a biased average"],
        ["faulty neighbours that a node tolerates", stood or str(faulty["least"])],
    ]
    if found["diameter"] is not None:
        rows.insert(3, ["diameter", str(found["diameter"])])
    table(topology, ["", ""], rows)
    for kind in ("note", "plot", "weights"):
        if found.get(kind):
            remark(f"{kind}: {found[kind]}", quiet)
