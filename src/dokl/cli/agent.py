"""dokl agent"""

from __future__ import annotations

from pathlib import Path

import click

from dokl.cli.common import LOG_LEVEL, echo_json, examples, output_switches, remark

DESCRIPTION = click.argument("description", type=click.Path(path_type=Path))
STATE = click.option(
    "--state", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Folder of the journal. [default: lab.state beside lab.toml]",
)  # fmt: skip


class WithDefault(click.Group):
    """A group whose command `run` needs not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`dokl agent lab.toml ...` is `dokl agent run lab.toml ...`."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=WithDefault,
    epilog=examples(
        "dokl agent lab.toml --name a                        samples come by HTTP",
        "dokl agent lab.toml --name a --data a.csv --follow  and from a growing file",
        "dokl agent reload lab.toml --name a                 take a changed description",
        "dokl agent export lab.toml --name a a.safetensors   its model as a file",
        "dokl agent rollback lab.toml --to 2h                all nodes as they were then",
        "dokl agent backup lab.toml --name a a.backup        its journal as one file",
    ),
)
def agent() -> None:
    """Be one node of a live network, or talk to one.

    `dokl agent lab.toml --name NAME` runs the node NAME; see `dokl agent run --help`.
    """


@agent.command(
    epilog=examples(
        "dokl agent lab.toml --name a",
        "dokl agent lab.toml --name a --data readings.csv",
        "dokl agent lab.toml --name a --data readings.csv --follow",
        "sensor | dokl agent lab.toml --name a --data -",
        "dokl agent lab.toml --name a --model trained.safetensors",
    )
)
@DESCRIPTION
@click.option("--name", help="Which node of the description to be.")
@click.option(
    "--data",
    metavar="FILE",
    help="CSV or JSON lines to learn from, instead of the description's broker; - is stdin.",
)
@click.option("--follow", is_flag=True, help="Go on as the file grows, also when it is rotated.")
@STATE
@click.option("--http", metavar="HOST:PORT", help="Instead of the description's; off for none.")
@click.option("--model", "warm", type=click.Path(path_type=Path), metavar="FILE",
              help="Begin with what this model file has learned; the first time only.")  # fmt: skip
@click.option("--once", is_flag=True, help="End when the data is at its end.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="ROWS",
              help="Rows of --data a second, at most.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1), default=50, show_default=True, metavar="ROWS",
              help="Rows of --data that are stored and learned at once.")  # fmt: skip
@click.option("--log", type=click.Path(path_type=Path), help="File for log lines, not stderr.")
@LOG_LEVEL
def run(
    description: Path, name: str | None, data: str | None, follow: bool, state: Path | None,
    http: str | None, warm: Path | None, once: bool, rate: float | None, batch: int,
    log: Path | None, log_level: str,
) -> None:  # fmt: skip
    """Run node NAME of the network that DESCRIPTION (lab.toml) describes.

    It learns from its own samples, averages with its neighbours, answers predictions over HTTP, and
    writes one JSON log line per event to stderr. SIGTERM or Ctrl-C end it in order, SIGHUP makes it
    read DESCRIPTION again. After any end, also kill -9, the same command, without --model, goes on
    where it was.
    """
    if follow and (once or data in (None, "-")):
        raise click.UsageError("--follow is for a file that grows: name it with --data, no --once")
    if once and data is None:
        raise click.UsageError("--once ends with the data: name a file with --data")
    from dokl.live.jobs.agents import Settings, run_agent

    if name is None:
        from dokl.live.description import read

        known = ", ".join(read(description).names)
        raise click.UsageError(f"--name says which node to be; {description} has {known}")
    given = description, name, data, follow, state, http, warm, once, rate, batch, log, log_level
    run_agent(Settings(*given))


@agent.command(
    epilog=examples(
        "dokl agent reload lab.toml --name a",
        "dokl agent reload lab.toml            all agents of this machine",
    )
)
@DESCRIPTION
@click.option("--name", "names", multiple=True, help="Which node; repeat it. [default: all here]")
@STATE
@output_switches
def reload(
    description: Path, names: tuple[str, ...], state: Path | None, as_json: bool, quiet: bool
) -> None:
    """Make running agents of this machine read DESCRIPTION again.

    They take new neighbours, a new access table and new certificates by reopening their
    connections; no sample is lost. Kernel, features and scaling stay as long as an agent runs.
    """
    from dokl.live.jobs.signals import reload as job

    told = job(description, names, state)
    if as_json:
        echo_json(told)
    else:
        for name, pid in told.items():
            remark(f"{name} (process {pid}) is asked to read {description} again", quiet)
        remark("their logs and /status say if they refused something", quiet)


@agent.command(epilog=examples("dokl agent accept-loss lab.toml --name a"))
@DESCRIPTION
@click.option("--name", required=True, help="Which node.")
@STATE
@output_switches
def accept_loss(
    description: Path, name: str, state: Path | None, as_json: bool, quiet: bool
) -> None:
    """Let a node go on whose journal has lost acknowledged rows.

    An agent refuses to start with such a journal, and says what is missing. This command says it
    again and makes the journal whole with what is left: rows that cannot be believed are dropped.
    The agent must not run. Senders that still have the missing rows can send them once more.
    """
    from dataclasses import asdict

    from dokl.live.jobs.agents import accept_loss as job

    loss = job(description, name, state)
    if as_json:
        echo_json(asdict(loss))
        return
    remark(f"{name} goes on with {loss.left:,} rows, and without {loss.rows:,} that it had", quiet)
    for table, n in loss.dropped.items():
        remark(f"damaged and dropped: {n:,} of its {table}", quiet)


@agent.command(epilog=examples("dokl agent backup lab.toml --name a a.backup"))
@DESCRIPTION
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Which node.")
@STATE
@click.option("--overwrite", is_flag=True, help="Replace an earlier file.")
@output_switches
def backup(
    description: Path, file: Path, name: str, state: Path | None, overwrite: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Copy a node's journal to FILE as it is at this moment, running or not.

    FILE has all that the node has learned, its rows, its idempotency keys and the inputs that wait
    for labels. It is as confidential as the journal; certificates and DESCRIPTION are not in it.
    """
    from dataclasses import asdict

    from dokl.live.jobs.backup import backup as job

    found = job(description, name, file, state, overwrite)
    if as_json:
        echo_json(asdict(found))
    else:
        remark(f"{file}: {name} with {found.rows:,} rows, {found.bytes:,} bytes", quiet)


@agent.command(epilog=examples("dokl agent restore lab.toml --name a a.backup"))
@DESCRIPTION
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Which node.")
@STATE
@click.option("--overwrite", is_flag=True, help="Put a journal aside that is there.")
@output_switches
def restore(
    description: Path, file: Path, name: str, state: Path | None, overwrite: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Let a node go on from a FILE that `dokl agent backup` wrote.

    The agent must not run. Rows acknowledged since the copy are gone, and are counted as lost
    where the old journal or its mark is still there; senders that have them can send them once
    more. The node speaks with a later incarnation, so neighbours take it for the newer one.
    """
    from dataclasses import asdict

    from dokl.live.jobs.backup import restore as job

    found = job(description, name, file, state, overwrite)
    if as_json:
        echo_json(asdict(found))
        return
    lost = f", and without {found.lost:,} that it had" if found.lost else ""
    remark(f"{name} goes on with {found.rows:,} rows{lost}", quiet)
    if found.replaced:
        remark(f"the journal that was there is put aside as {name}.db.replaced", quiet)


@agent.command(
    epilog=examples(
        "dokl agent rollback lab.toml --list",
        "dokl agent rollback lab.toml --to 2h                         all nodes of this machine",
        "dokl agent rollback lab.toml --to 2026-11-15T08:30 --name a  one of them",
    )
)
@DESCRIPTION
@click.option("--to", metavar="TIME", help="As it was then: 2026-11-15T08:30, or 45m, 2h, 3d ago.")
@click.option("--name", "names", multiple=True, help="Which node; repeat it. [default: all here]")
@click.option("--list", "listing", is_flag=True, help="Say which snapshots there are.")
@STATE
@output_switches
def rollback(
    description: Path, to: str | None, names: tuple[str, ...], listing: bool, state: Path | None,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Let nodes be as they were at an earlier time: without what poisoned them since.

    Agents put a snapshot aside every `keep_minutes` (10) and go back to the last one before TIME.
    They must not run meanwhile, on any machine of the network: one that was not rolled back would
    bring back what is to be forgotten. Rows learned since stay counted, are told, and are not
    learned again; senders that still have them can send them with new idempotency keys.
    """
    if listing == (to is not None):
        raise click.UsageError("say --to TIME, or --list for the times there are")
    import time
    from dataclasses import asdict

    from dokl.live.jobs import rollback as live

    if to is None:
        found = live.kept(description, names, state)
        if as_json:
            echo_json({name: [asdict(each) for each in found[name]] for name in found})
            return
        for name, snapshots in found.items():
            for each in snapshots:
                click.echo(f"{name}  {live.shown(each.at)}  {each.learned:,} rows")
            if not snapshots:
                click.echo(f"{name}  none")
        return
    done = live.rollback(description, live.moment(to, time.time()), names, state)
    if as_json:
        echo_json({name: asdict(each) for name, each in done.items()})
        return
    for name, went in done.items():
        remark(f"{name} is as of {live.shown(went.at)}, after {went.learned:,} rows; "
               f"{went.undone:,} rows since are undone", quiet)  # fmt: skip


@agent.command(
    epilog=examples(
        "dokl agent export lab.toml --name a a.safetensors",
        "dokl predict a.safetensors new.csv",
    )
)
@DESCRIPTION
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Which node.")
@STATE
@click.option("--overwrite", is_flag=True, help="Replace an earlier file.")
@output_switches
def export(
    description: Path, model: Path, name: str, state: Path | None, overwrite: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Write what a node has learned to an ordinary MODEL file, running or not.

    `dokl predict`, `dokl evaluate`, `dokl inspect` and `dokl.load` read it.
    """
    from dokl.live.jobs.export import export as job

    found = job(description, name, model, state, overwrite)
    if as_json:
        echo_json(found)
    else:
        remark(f"{model}: what {name} has learned from {found['learned']:,} samples", quiet)
