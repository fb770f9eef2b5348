"""dokl up"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dokl.cli.agent import DESCRIPTION, STATE
from dokl.cli.options import LOG_LEVEL, examples, remark


@click.command(
    epilog=examples(
        "dokl up lab.toml                              samples arrive over HTTP",
        "dokl up lab.toml --data stations --rate 100   stations/NAME.csv, 100 rows a second",
    )
)
@DESCRIPTION
@click.option("--data", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Folder with a file for each node: NAME.csv, .csv.gz, .jsonl.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Continue as the files grow.")
@click.option("--once", is_flag=True, help="Stop at the end of all files.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="ROWS",
              help="Maximum rows per second of each file.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1), default=50, show_default=True, metavar="ROWS",
              help="Rows that are stored and learned together.")  # fmt: skip
@STATE
@LOG_LEVEL
@click.option("--quiet", "-q", is_flag=True, help="No remarks.")
def up(
    description: Path, data: Path | None, follow: bool, once: bool, rate: float | None,
    batch: int, state: Path | None, log_level: str, quiet: bool,
) -> None:  # fmt: skip
    """Run all nodes of DESCRIPTION as processes on this machine, until Ctrl-C.

    For a trial: each node is a `dokl agent` on loopback, with its log file beside its journal.
    """
    if follow and (once or data is None):
        raise click.UsageError("--follow is for files that grow: name their folder with --data")
    if once and data is None:
        raise click.UsageError("--once ends with the data: name its folder with --data")
    from dokl.live.description import is_loopback, read
    from dokl.live.jobs.agents import Settings
    from dokl.live.jobs.up import gaps, prepare, settings_of
    from dokl.live.jobs.up import up as job

    common = Settings(
        description, "", follow=follow, once=once, rate=rate, batch=batch, state=state,
        log_level=log_level,
    )  # fmt: skip
    network = read(description)
    every = settings_of(network, common, data)
    for text in gaps(every, data):
        remark(text, quiet)
    prepare(network, lambda text: remark(text, quiet))
    remark(f"{len(network.names)} agents; logs and journals in {common.folder}", quiet)
    width = max(map(len, network.names))
    for name in network.names:
        face = network.node(name).http
        scheme = "http" if face is None or is_loopback(face) else "https"
        remark(
            f"  {name:{width}}  " + (f"{scheme}://{face}" if face else "no HTTP interface"), quiet
        )
    remark(f"dokl watch {description} shows them. Ctrl-C ends them.", quiet)
    failed = job(every, lambda text: remark(text, quiet))
    if failed:
        sys.exit(1)
