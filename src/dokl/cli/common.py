"""What the commands share: examples, output switches, results as JSON, KEY=VALUE."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click


def examples(*lines: str) -> str:
    """An epilog of examples, each on a line of its own."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def with_options(
    command: Callable[..., Any], options: Sequence[Callable[[Any], Any]]
) -> Callable[..., Any]:
    """A command with these options, in this order in its help."""
    for option in reversed(options):
        command = option(command)
    return command


LOG_LEVEL = click.option(
    "--log-level", type=click.Choice(("info", "warning", "error")), default="info",
    show_default=True, help="The least of the log lines that are written.",
)  # fmt: skip


def output_switches(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json and --quiet, as every command that prints results has them."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print results as JSON.")
    quiet = click.option("--quiet", "-q", is_flag=True, help="No progress, no remarks.")
    return as_json(quiet(command))


def echo_json(value: Any) -> None:
    """Results for programs: one JSON document on stdout; what is not a number is null."""
    click.echo(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def key_values(pairs: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE options as a dictionary; numbers become numbers, true and false truth values."""
    out: dict[str, Any] = {}
    for key, text in split_pairs(pairs):
        try:
            out[key] = json.loads(text)
        except json.JSONDecodeError:
            out[key] = {"True": True, "False": False, "None": None}.get(text, text)
    return out


def split_pairs(pairs: Iterable[str], shape: str = "KEY=VALUE") -> Iterable[tuple[str, str]]:
    """KEY and VALUE of each option, as text."""
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not {shape}")
        yield key, text


def figure(name: str, value: Any) -> str:
    """A score as people read it."""
    if value is None:
        return "undefined"
    if name == "rows":
        return f"{int(value):,}"
    percent = name in ("accuracy", "error") or name.startswith("recall")
    return f"{100 * value:.2f}%" if percent else f"{value:.5g}"


def percent(share: float, digits: int = 0) -> str:
    """A share of one, as people read it."""
    return f"{100 * share:.{digits}f} %"


def steps_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """How far beyond training DATA begins."""
    return click.option(
        "--steps-ahead", type=click.IntRange(1), default=1, show_default=True, metavar="N",
        help="Intervals: the first row of DATA is the Nth after the last learned one.",
    )(command)  # fmt: skip


def share_of(interval: float) -> float:
    """A share of one; below 1 % nobody wants, but may have written 0.9."""
    if interval < 1:
        raise click.BadParameter(f"{interval:g} is in percent: --interval {100 * interval:g}")
    return interval / 100


def remark(text: str, quiet: bool) -> None:
    """Something to know besides the results, on stderr."""
    if not quiet:
        click.echo(text, err=True)
