"""dokl reproduce"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dokl.base.errors import BadInput
from dokl.cli.options import echo_json, examples, output_switches

if TYPE_CHECKING:
    from dokl.paper.reproduce.results import PartResult


@click.command(
    epilog="""\b
list             names of parts, and results already in OUT
fig1 fig2 fig3   learning curves (PNG and SVG)
table2 table3    Pegasos with 5 and 20 nodes; table5: training times
beside           other choices on the same data
beyond           least squares over the same networks, and published rivals
all              all of these, except the longest (see --long)
report           write pictures, tables and report again from the stored results

"""
    + examples(
        "dokl reproduce all --quick --data-dir data      a few minutes",
        "dokl reproduce fig1 --only a --runs 20",
        "dokl reproduce table2 --only banana --json",
        "dokl reproduce table2 --only mnist              one run, 20 minutes on a CPU",
        "dokl reproduce table2 --only mnist --engine jax    ten runs on a GPU",
        "dokl reproduce report --md REPRODUCTION.md",
    )
)
@click.argument("what")
@click.option("--only", multiple=True, metavar="PART", help="Panels (a-d) or data sets; repeat it.")
@click.option("--runs", type=click.IntRange(min=1), help="Realizations. [default: the paper's]")
@click.option("--engine", default="auto", show_default=True, help="numba, reference, jax.")
@click.option("--seed", default=1, show_default=True, help="Seed of everything random.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Folder of the data files; or DOKL_DATA."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("reproduction"), show_default=True,
    help="Folder of results; finished realizations are reused.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Few realizations: minutes for everything.")
@click.option("--long", is_flag=True, help="Include the longest: MNIST, SVC on Adult.")
@click.option(
    "--md", "--write-md", "md", type=click.Path(path_type=Path),
    help="Write this Markdown, and its pictures to docs/reproduction beside it.",
)  # fmt: skip
@output_switches
def reproduce(
    what: str, only: tuple[str, ...], runs: int | None, engine: str, seed: int,
    data_dir: Path | None, out: Path, quick: bool, long: bool, md: Path | None, as_json: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Run the paper's figures and tables again and compare.

    WHAT is list, fig1, fig2, fig3, table2, table3, table5, beside, beyond, all or report.
    You can interrupt it: the same command continues.
    """
    from dokl.paper.reproduce import runner
    from dokl.paper.reproduce.parts import choose_parts
    from dokl.paper.reproduce.settings import ReproduceOptions

    if what == "list":
        _list(out, as_json)
        return
    if what == "report":
        _written(runner.write(out), md, out, quiet)
        return
    options = ReproduceOptions(
        out, seed, runs, engine, data_dir, quick, long, False if quiet or as_json else None
    )
    parts, found = choose_parts(what, only, long), []
    runner.folder_for(out)
    for i, part in enumerate(parts, 1):
        if not quiet and len(parts) > 1:
            click.echo(f"{i}/{len(parts)} {part.name}", err=True)
        if not quiet and runner.remark(part, options):
            click.echo(runner.remark(part, options), err=True)
        result = runner.reproduce(part, options)
        found.append(result)
        if not as_json:
            _show(result)
    written = runner.write(out, [part.name for part in parts])
    if as_json:
        from dokl.paper.reproduce.show import record

        echo_json([record(result) for result in found])
    _written(written, md, out, quiet)


def _show(result: PartResult) -> None:
    from dokl.paper.reproduce.show import print_result

    print_result(result)


def _list(out: Path, as_json: bool) -> None:
    from dokl.paper.reproduce.parts import COMMANDS, PARTS
    from dokl.paper.reproduce.runner import read_results
    from dokl.tables.report import table

    there = read_results(out)
    rows = [
        {"part": p.name, "command": p.command, "only": p.only, "what": COMMANDS[p.command],
         "long": p.long, "stored": p.name in there}
        for p in PARTS.values()
    ]  # fmt: skip
    if as_json:
        echo_json(rows)
        return
    words = {True: "yes", False: ""}
    cells = [
        [f"dokl reproduce {r['command']} --only {r['only']}", str(r["what"]),
         words[bool(r["long"])], words[bool(r["stored"])]]
        for r in rows
    ]  # fmt: skip
    table("", ["command", "what", "long", "stored"], cells)


def _written(written: list[Path], md: Path | None, out: Path, quiet: bool) -> None:
    from dokl.paper.reproduce import markdown, runner

    if md is not None:
        results = runner.read_results(out)
        if not results:
            raise BadInput(f"{out} holds no results yet: run dokl reproduce all first")
        written = [*written, *markdown.write(results, md)]
    if not quiet:
        report = [path for path in written if path.suffix in (".html", ".md")]
        for path in report:
            click.echo(f"wrote {path}", err=True)
