"""dokl serve"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from dokl.cli.options import LOG_LEVEL, examples, share_of


def _place(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """--port, or --host: what other servers have."""
    if value is not None:
        host = f"[{value}]" if ":" in value else value
        place = f"127.0.0.1:{value}" if option.name == "port" else f"{host}:8080"
        raise click.UsageError(f"{option.opts[0]} {value}: use --http {place}")


def _range(_: click.Context, option: click.Parameter, value: str) -> tuple[float, ...] | None:
    """LOW,HIGH; None for auto, empty for off."""
    if value in ("auto", "off"):
        return None if value == "auto" else ()
    try:
        low, high = (float(part) for part in value.split(","))
    except ValueError:
        low, high = 0.0, 0.0
    if not -math.inf < low < high < math.inf:
        raise click.BadParameter(f"{value!r} is not LOW,HIGH (as -40,60), auto or off")
    return low, high


_elsewhere: Any = {
    "hidden": True,
    "expose_value": False,
    "callback": _place,
    "help": "--http says it.",
}


@click.command(
    epilog=examples(
        "dokl serve temp.dokl",
        "dokl serve temp.dokl --learn --save temp.dokl",
        "curl -H 'Content-Type: application/json' -d '{\"wind\": 3}' \\",
        "     'http://127.0.0.1:8080/predict?intervals=true'",
    )
)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("--http", metavar="HOST:PORT", default="127.0.0.1:8080", show_default=True,
              help="Loopback address to listen on.")  # fmt: skip
@click.option("--port", **_elsewhere)
@click.option("--host", **_elsewhere)
@click.option("--learn", is_flag=True, help="Also learn samples, and keep them in a journal.")
@click.option("--state", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Folder of the journal. [default: temp.state beside temp.dokl]")  # fmt: skip
@click.option("--durability", type=click.Choice(("process", "full")), default="process",
              show_default=True, help="Acknowledged samples survive kill -9 (process) or a power "
              "failure (full).")  # fmt: skip
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the model to FILE at a clean stop.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0, 100, min_open=True, max_open=True),
              default=90.0, show_default=True, metavar="PERCENT",
              help="Coverage of intervals.")  # fmt: skip
@click.option("--target-range", metavar="LOW,HIGH", callback=_range, default="auto",
              help="Range of valid targets; auto: 100 standard deviations around the "
              "training mean; off: any. [default: auto]")  # fmt: skip
@click.option("--outside", type=click.Choice(("refuse", "clip")), default="refuse",
              show_default=True, help="What to do with a target outside the range.")  # fmt: skip
@LOG_LEVEL
def serve(
    path: Path, http: str, learn: bool, state: Path | None, durability: str, save: Path | None,
    interval: float, target_range: tuple[float, ...] | None, outside: str, log_level: str,
) -> None:  # fmt: skip
    """Serve a MODEL file over HTTP on this machine: no network, no certificates.

    POST /predict takes raw rows (JSON, NDJSON or CSV) and returns predictions; add ?intervals=true,
    ?probabilities=true or ?scores=true. With --learn, POST /samples learns rows: acknowledged rows
    are in the journal and survive kill -9, and the same command continues from it; MODEL itself is
    not changed. GET /healthz, /status, /metrics (Prometheus) and /openapi.json describe the server.
    Each event is a JSON line on stderr; SIGTERM or Ctrl-C stop the server cleanly.
    """
    if not learn and (state is not None or save is not None):
        raise click.UsageError("--state and --save need --learn")
    from dokl.live.jobs.serve import Serving, run_server

    where = path, http, learn, state, share_of(interval), save
    run_server(Serving(*where, durability, target_range, outside, log_level))
