"""What the commands share: output switches, results as JSON, parameters as KEY=VALUE."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from dokl.errors import BadInput


def examples(*lines: str) -> str:
    """An epilog of examples, each on a line of its own."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def output_switches(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json and --quiet, as every command that prints results has them."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print results as JSON.")
    quiet = click.option("--quiet", "-q", is_flag=True, help="No progress, no remarks.")
    return as_json(quiet(command))


def echo_json(value: Any) -> None:
    """Results for programs: one JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def key_values(pairs: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE options as a dictionary; numbers become numbers."""
    out: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise BadInput(f"{pair!r} is not KEY=VALUE")
        try:
            out[key] = json.loads(text)
        except json.JSONDecodeError:
            out[key] = text
    return out
