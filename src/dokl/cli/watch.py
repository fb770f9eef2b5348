"""dokl watch"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dokl.cli.options import echo_json, examples, remark

if TYPE_CHECKING:
    from dokl.live.dashboard.collect import Collector


@click.command(
    epilog=examples(
        "dokl watch lab.toml                   a table that redraws itself",
        "dokl watch lab.toml --node hill       with predictions of its newest rows",
        "dokl watch lab.toml --once --json     for programs",
        "dokl watch lab.toml --web             a page at http://127.0.0.1:8800/",
        "ssh -L 8800:127.0.0.1:8800 host dokl watch lab.toml --web",
    )
)
@click.argument("path", metavar="NETWORK", type=click.Path(path_type=Path))
@click.option("--every", default=1.0, show_default=True, metavar="SECONDS",
              type=click.FloatRange(0.1, 3600), help="Time between updates.")  # fmt: skip
@click.option("--node", metavar="NAME",
              help="Below the table, the newest rows of this node: measured, predicted, and the "
              "interval.")  # fmt: skip
@click.option("--once", is_flag=True,
              help="Print one table and end, after two readings --every seconds apart. "
              "The default if stdout is no terminal.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one reading as JSON and end.")
@click.option("--web", is_flag=True, help="Serve a page instead of a table.")
@click.option("--port", default=8800, show_default=True, type=click.IntRange(0, 65535),
              help="Port of the page; 0 is any free one.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address of the page. Any but loopback needs a token.")  # fmt: skip
@click.option("--token", envvar="DOKL_WATCH_TOKEN", metavar="TEXT",
              help="Token of the page; better given in the environment variable DOKL_WATCH_TOKEN. "
              "Default: a random one is printed if needed.")  # fmt: skip
def watch(
    path: Path, every: float, node: str | None, once: bool, as_json: bool, web: bool, port: int,
    host: str, token: str | None,
) -> None:  # fmt: skip
    """Watch the agents of a NETWORK description, in a table or with --web on a page.

    The command reads the status of each agent over HTTP; beyond loopback over HTTPS with the
    network's certificates and tokens. It changes nothing. Nodes added to the description appear by
    themselves. Ctrl-C ends it.
    """
    from dokl.base.errors import UnknownName
    from dokl.live.dashboard.collect import Collector

    if web and (once or as_json):
        raise click.UsageError("--web runs until Ctrl-C: leave out --once and --json")
    if web and node is not None:
        raise click.UsageError("nodes are chosen on the page itself: leave out --node")
    with Collector(path) as collector:
        if node is not None and node not in collector.network.nodes:
            raise UnknownName("node", node, collector.network.names)
        if web:
            _serve(collector, host, port, every, token)
        else:
            _print(collector, every, node, once, as_json)


def _print(collector: Collector, every: float, node: str | None, once: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from dokl.live.dashboard import terminal

    if not (once or as_json) and sys.stdout.isatty():
        terminal.show_live(collector, every, node)
        return
    view = terminal.look_twice(collector, every)
    if as_json:
        chosen = {} if node is None else {"newest": asdict(collector.newest(node))}
        echo_json(asdict(view) | {"totals": view.totals} | chosen)
    else:
        terminal.show_once(collector, view, node)


def _serve(collector: Collector, host: str, port: int, every: float, token: str | None) -> None:
    import secrets

    from dokl.live.dashboard import web
    from dokl.live.description import is_loopback

    where = f"[{host}]" if ":" in host else host
    if not token and not is_loopback(f"{where}:1"):  # empty: of a variable that is not set
        token = secrets.token_urlsafe(24)
    with web.listen(host, port) as sock:
        click.echo(f"{web.address(host, sock, token)}   (Ctrl-C ends it)")
        if token:
            remark("plain http: on a network that others can listen to, prefer ssh -L", False)
        web.serve(collector, sock, every, token)
