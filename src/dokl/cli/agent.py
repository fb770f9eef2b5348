"""dokl agent"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dokl.cli.options import (
    LOG_LEVEL,
    echo_json,
    examples,
    output_switches,
    remark,
    with_options,
)

DESCRIPTION = click.argument("description", type=click.Path(path_type=Path))
STATE = click.option(
    "--state", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Folder of the journal. [default: lab.state beside lab.toml]",
)  # fmt: skip


def _with_a_file(argument: str, overwrite: str) -> Callable[[Any], Any]:
    """A command on the journal of one node, and a file; overwrite: what that replaces."""
    options = [
        DESCRIPTION,
        click.argument(argument, type=click.Path(path_type=Path)),
        click.option("--name", required=True, help="Which node."),
        STATE,
        click.option("--overwrite", is_flag=True, help=overwrite),
        output_switches,
    ]
    return lambda command: with_options(command, options)


class WithDefault(click.Group):
    """A group whose command `run` needs not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`dokl agent lab.toml ...` is `dokl agent run lab.toml ...`."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            if not args[0].startswith("-") and "." not in args[0] and not Path(args[0]).exists():
                ctx.fail(
                    f"there is no command {args[0]!r}, and no such file. Commands: "
                    f"{', '.join(self.list_commands(ctx))}; 'dokl watch DESCRIPTION --once' shows "
                    "how nodes are"
                )
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=WithDefault,
    epilog=examples(
        "dokl agent lab.toml --name a                        samples arrive over HTTP",
        "dokl agent lab.toml --name a --data a.csv --follow  and from a growing file",
        "dokl agent reload lab.toml --name a                 apply a changed description",
        "dokl agent export lab.toml --name a a.safetensors   its model as a file",
        "dokl agent rollback lab.toml --to 2h                all nodes as they were then",
        "dokl agent backup lab.toml --name a a.backup        its journal as one file",
    ),
)
def agent() -> None:
    """Run or manage one node of a live network.

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
@click.option("--name", help="Node of the description to run.")
@click.option(
    "--data",
    metavar="FILE",
    help="CSV or JSON lines to learn from, instead of the description's broker; - is stdin.",
)
@click.option("--follow", is_flag=True, help="Continue as the file grows, also after rotation.")
@STATE
@click.option(
    "--http", metavar="HOST:PORT", help="Address instead of the description's; off: none."
)
@click.option("--model", "warm", type=click.Path(path_type=Path), metavar="FILE",
              help="Start from this model file; only at the first start.")  # fmt: skip
@click.option("--once", is_flag=True, help="Stop at the end of the data.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="ROWS",
              help="Maximum rows of --data per second.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1), default=50, show_default=True, metavar="ROWS",
              help="Rows of --data that are stored and learned together.")  # fmt: skip
@click.option("--log", type=click.Path(path_type=Path), help="File for log lines, not stderr.")
@LOG_LEVEL
def run(
    description: Path, name: str | None, data: str | None, follow: bool, state: Path | None,
    http: str | None, warm: Path | None, once: bool, rate: float | None, batch: int,
    log: Path | None, log_level: str,
) -> None:  # fmt: skip
    """Run node NAME of the network that DESCRIPTION (lab.toml) describes.

    The node learns from its own samples, exchanges with its neighbours and predicts over HTTP. Each
    event is a JSON line on stderr. SIGTERM or Ctrl-C stop it cleanly; SIGHUP makes it read
    DESCRIPTION again. After any stop, also kill -9, the same command without --model continues.
    """
    if follow and (once or data in (None, "-")):
        raise click.UsageError("--follow is for a file that grows: name it with --data, no --once")
    if once and data is None:
        raise click.UsageError("--once ends with the data: name a file with --data")
    from dokl.live.jobs.agents import Settings, run_agent

    if name is None:
        from dokl.live.description import read

        known = ", ".join(read(description).names)
        raise click.UsageError(f"--name NODE is needed; {description} has {known}")
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

    They reopen their connections with the new neighbours, access table and certificates; no sample
    is lost. Kernel, features and scaling do not change while an agent runs.
    """
    from dokl.live.jobs.signals import reload as job

    done = job(description, names, state)
    if as_json:
        echo_json(done)
    else:
        for name, pid in done.items():
            remark(f"{name} (process {pid}) is asked to read {description} again", quiet)
        remark("their logs and /status show what they refused", quiet)


@agent.command(epilog=examples("dokl agent accept-loss lab.toml --name a"))
@DESCRIPTION
@click.option("--name", required=True, help="Which node.")
@STATE
@output_switches
def accept_loss(
    description: Path, name: str, state: Path | None, as_json: bool, quiet: bool
) -> None:
    """Let a node continue after its journal lost acknowledged rows.

    An agent refuses to start with such a journal, and reports what is missing. This command reports
    it again and repairs the journal; damaged rows are dropped. The agent must not run. Senders that
    still have the missing rows can send them again.
    """
    from dataclasses import asdict

    from dokl.live.jobs.agents import accept_loss as job

    loss = job(description, name, state)
    if as_json:
        echo_json(asdict(loss))
        return
    remark(f"{name} continues with {loss.left:,} rows; {loss.rows:,} rows are lost", quiet)
    for table, n in loss.dropped.items():
        remark(f"damaged and dropped: {n:,} of its {table}", quiet)


@agent.command(epilog=examples("dokl agent backup lab.toml --name a a.backup"))
@_with_a_file("file", overwrite="Replace an earlier file.")
def backup(
    description: Path, file: Path, name: str, state: Path | None, overwrite: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Copy the journal of a node, running or not, to FILE.

    FILE contains the model of the node, its rows, its idempotency keys and the inputs that wait for
    labels. It is as confidential as the journal. Certificates and DESCRIPTION are not in it.
    """
    from dataclasses import asdict

    from dokl.live.jobs.backup import backup as job

    found = job(description, name, file, state, overwrite)
    if as_json:
        echo_json(asdict(found))
    else:
        remark(f"{file}: {name} with {found.rows:,} rows, {found.bytes:,} bytes", quiet)


@agent.command(epilog=examples("dokl agent restore lab.toml --name a a.backup"))
@_with_a_file("file", overwrite="Move an existing journal aside.")
def restore(
    description: Path, file: Path, name: str, state: Path | None, overwrite: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Restore the journal of a node from a FILE of `dokl agent backup`.

    The agent must not run. Rows acknowledged since the backup are lost; they are counted if the old
    journal or its mark still exists, and senders can send them again. The node gets a later
    incarnation, so neighbours accept it as the newer one.
    """
    from dataclasses import asdict

    from dokl.live.jobs.backup import restore as job

    found = job(description, name, file, state, overwrite)
    if as_json:
        echo_json(asdict(found))
        return
    lost = f", and without {found.lost:,} that it had" if found.lost else ""
    remark(f"{name} continues with {found.rows:,} rows{lost}", quiet)
    if found.replaced:
        remark(f"the earlier journal was moved to {name}.db.replaced", quiet)


@agent.command(
    epilog=examples(
        "dokl agent rollback lab.toml --list",
        "dokl agent rollback lab.toml --to 2h                         all nodes of this machine",
        "dokl agent rollback lab.toml --to 2026-11-15T08:30 --name a  one of them",
    )
)
@DESCRIPTION
@click.option("--to", metavar="TIME", help="The time: 2026-11-15T08:30, or 45m, 2h, 3d ago.")
@click.option("--name", "names", multiple=True, help="Which node; repeat it. [default: all here]")
@click.option("--list", "listing", is_flag=True, help="List the snapshots.")
@STATE
@output_switches
def rollback(
    description: Path, to: str | None, names: tuple[str, ...], listing: bool, state: Path | None,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Return nodes to an earlier time, for example from before a poisoning.

    Agents take a snapshot every `keep_minutes` (10). Rollback returns to the last one before TIME.
    No agent of the network may run meanwhile, on any machine: an agent that was not rolled back
    would send what the others have removed. Later rows stay counted and are printed, and are not
    learned again; senders can send them again with new idempotency keys.
    """
    if listing == (to is not None):
        raise click.UsageError("give --to TIME, or --list to list the times")
    import time
    from dataclasses import asdict

    from dokl.live.jobs import rollback as live

    if to is None:
        found = live.snapshots_of(description, names, state)
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
@_with_a_file("model", overwrite="Replace an earlier file.")
def export(
    description: Path, model: Path, name: str, state: Path | None, overwrite: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Write the model of a node, running or not, to a MODEL file.

    `dokl predict`, `dokl evaluate`, `dokl inspect` and `dokl.load` read it.
    """
    from dokl.live.jobs.export import export as job

    found = job(description, name, model, state, overwrite)
    if as_json:
        echo_json(found)
    else:
        remark(f"{model}: what {name} has learned from {found['learned']:,} samples", quiet)
