"""dokl network"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dokl.cli.network_new import Days, Description, new, show_network
from dokl.cli.options import echo_json, examples, output_switches, remark, split_pairs


@click.group(
    epilog=examples(
        "dokl network new lab.toml --graph ring --nodes 5 --sample readings.csv --target temp",
        "dokl network check lab.toml",
        "dokl network add-node lab.toml f --link a --link c",
        "dokl network renew lab.toml --days 90",
    )
)
def network() -> None:
    """Describe a live network: make its file and certificates, check and change them.

    The file is read by 'dokl agent', 'dokl up' and 'dokl watch'.
    """


network.add_command(new)


@network.command(
    epilog=examples("dokl network check lab.toml", "dokl network check lab.toml --json")
)
@Description
@click.option("--name", metavar="NODE", help="Check only this node's certificate.")
@output_switches
def check(path: Path, name: str | None, as_json: bool, quiet: bool) -> None:
    """List all problems of a network description.

    The exit code is 1 if there is a problem. Use --name on a node's own machine, which has no
    certificates of other nodes.
    """
    from dokl.live.jobs import networks as live

    found = live.check(path, name)
    if as_json:
        echo_json(found)
    elif not found["problems"]:
        if not quiet:
            show_network(found)
        click.echo(f"{path}: fine{_soon(found)}", err=True)  # quiet hides the table, not this
    for text in [] if as_json else found["remarks"]:
        remark(text, quiet)
    for problem in [] if as_json else found["problems"]:
        click.echo(f"{path}: {problem}", err=True)
    click.get_current_context().exit(1 if found["problems"] else 0)


def _soon(found: dict[str, Any]) -> str:
    """Whose certificates run out within two weeks."""
    from datetime import UTC, datetime, timedelta

    limit = (datetime.now(UTC) + timedelta(days=14)).isoformat()
    ends = {name: node["certificate_expires"] for name, node in found["nodes"].items()}
    names = [name for name, end in ends.items() if end and end < limit]
    return f", but certificates of {', '.join(names)} run out soon: renew them" if names else ""


@network.command(epilog=examples("dokl network show lab.toml --json"))
@Description
@output_switches
def show(path: Path, as_json: bool, quiet: bool) -> None:
    """Print a description with all defaults."""
    from dokl.live.jobs import networks as live

    found = live.show(path)
    if as_json:
        echo_json(found)
        return
    from dokl.tables.report import table

    for section in ("network", "model", "inputs", "exchange", "durability", "limits", "nodes"):
        rows = [[key, _short(value)] for key, value in found[section].items()]
        table(f"[{section}]", ["", ""], rows)


def _short(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


@network.command(
    epilog=examples(
        "dokl network columns lab.toml --add humidity --drop wind",
        "dokl network columns lab.toml --add when:time",
        "dokl network columns lab.toml --add place --levels place=roof,yard",
    )
)
@Description
@click.option("--add", multiple=True, metavar="NAME[:time]",
              help="Add a column of numbers or times; for text add --levels.")  # fmt: skip
@click.option(
    "--drop", multiple=True, metavar="NAME", help="Remove a column; rows may still have it."
)
@click.option(
    "--levels", multiple=True, metavar="NAME=A,B,...", help="Levels of an added text column."
)
@output_switches
def columns(
    path: Path, add: tuple[str, ...], drop: tuple[str, ...], levels: tuple[str, ...],
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Change the inputs of a network that shares rows. Copy the file to all nodes and restart them.

    Earlier rows are kept: each node learns them again, by name, without dropped columns, and with
    missing values in added ones. The section [[earlier]] of the file lists the earlier columns.
    """
    from dokl.live.jobs import networks as live

    if not add and not drop:
        raise click.UsageError("which columns? Give --add NAME, or --drop NAME")
    pairs = split_pairs(levels, "NAME=A,B,...")
    known = {name: tuple(part.strip() for part in text.split(",")) for name, text in pairs}
    made = live.change_columns(path, add, drop, known)
    done = f"{path}: the inputs are {', '.join(made.inputs.columns)}"
    if as_json:
        echo_json({"file": path, "done": done, "restart": made.names})
        return
    click.echo(done)
    remark("all nodes must have the new file and be restarted, in any order", quiet)


@network.command(
    "add-node",
    epilog=examples(
        "dokl network add-node lab.toml f --link a --link c",
        "dokl network add-node lab.toml roof --link a --address 10.0.0.9:7447",
    ),
)
@Description
@click.argument("name")
@click.option("--link", "links", multiple=True, required=True, metavar="NODE",
              help="A node to be linked with.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT",
              help="Its address. Default: the next free port on loopback.")  # fmt: skip
@click.option("--http", metavar="HOST:PORT", help="Address of its HTTP interface.")
@Days
@output_switches
def add_node(
    path: Path, name: str, links: tuple[str, ...], address: str | None, http: str | None,
    days: int, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Add node NAME to a network, and make its certificate. Comments in the file stay."""
    from dokl.live.jobs import networks as live

    made, reload = live.add_node(path, name, links, address, http, days)
    _report(path, f"{name} is in {path}, at {made.nodes[name].address}", reload, as_json, quiet)


@network.command("remove-node", epilog=examples("dokl network remove-node lab.toml f"))
@Description
@click.argument("name")
@output_switches
def remove_node(path: Path, name: str, as_json: bool, quiet: bool) -> None:
    """Remove node NAME, its links and its certificate from a network."""
    from dokl.live.jobs import networks as live

    _, reload = live.remove_node(path, name)
    _report(path, f"{name} is no longer in {path}", reload, as_json, quiet)


@network.command(epilog=examples("dokl network revoke lab.toml f"))
@Description
@click.argument("name")
@output_switches
def revoke(path: Path, name: str, as_json: bool, quiet: bool) -> None:
    """Revoke node NAME: remove it for ever; its name cannot be used again.

    Neighbours reject the node once they have reloaded the file, which no longer lists its name.
    The signature of its certificate stays valid.
    """
    from dokl.live.jobs import networks as live

    _, reload = live.remove_node(path, name, revoke=True)
    _report(path, f"{name} is revoked in {path}", reload, as_json, quiet)


@network.command(
    epilog=examples("dokl network renew lab.toml", "dokl network renew lab.toml --name a --days 90")
)
@Description
@click.option("--name", "names", multiple=True, metavar="NODE", help="This node only.")
@click.option("--authority", is_flag=False, flag_value="dates", metavar="[dates|key|last]",
              type=click.Choice(["dates", "key", "last"]),
              help="The authority's certificate: same key (dates), or a new one.")  # fmt: skip
@Days
@output_switches
def renew(
    path: Path, names: tuple[str, ...], authority: str | None, days: int, as_json: bool, quiet: bool
) -> None:
    """Make new keys and certificates, by the same authority, for the addresses in the file.

    Tokens do not change. --authority renews ca.pem for ten years: with the same key (dates), so
    that all certificates stay valid, or with a new key, in three steps: --authority key (both keys
    are accepted), renew (all nodes), --authority last (only the new key is accepted). After each
    step copy the new files to all nodes and reload them.
    """
    from dokl.live.jobs import networks as live

    if authority is not None:
        if names:
            raise click.UsageError("--authority is for the whole network: no --name")
        made = live.renew_authority(path, authority)
        done = "ca.pem is renewed; every node, and every client of its HTTP interface, needs it"
        _report(path, done, made.names, as_json, quiet)
        return
    _, reload = live.renew(path, names, days)
    _report(path, f"renewed for {days} days: {', '.join(reload)}", reload, as_json, quiet)


def _report(path: Path, done: str, reload: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """What was done, who must reload, and what is wrong with the network now."""
    from dokl.live.jobs import networks as live

    wrong = live.check(path)["problems"]
    if as_json:
        echo_json({"file": path, "done": done, "reload": reload, "problems": wrong})
        return
    click.echo(done)
    if reload:
        remark("these must have the new files and reload:", quiet)
        for name in reload:
            remark(f"  dokl agent reload {path} --name {name}", quiet)
    for problem in wrong:
        remark(f"now wrong: {problem}", quiet)
