"""dokl inspect"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dokl.cli.options import echo_json, examples, figure, percent
from dokl.cli.results import loading

MOST = 12


@click.command(epilog=examples("dokl inspect temp.dokl", "dokl inspect temp.dokl --json"))
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def inspect(path: Path, as_json: bool) -> None:
    """Show what is in a MODEL file.

    Its settings, its columns, its rows and its errors; for a bank also which inputs matter, how
    far back it remembers, and its experts.
    """
    with loading(as_json):
        from dokl.tables.jobs.describe import describe
        from dokl.tables.report import facts, table

    found = describe(path)
    if as_json:
        echo_json(found)
        return
    experts = found.pop("experts", [])
    facts(str(path), _for_people(found))
    if experts:
        table("", ["expert", "weight", "error / variance"], _experts(experts))


def _for_people(found: dict[str, Any]) -> dict[str, Any]:
    from dokl.base.errors import listed

    shown: dict[str, Any] = {}
    for key, value in found.items():
        if key == "prequential":
            shown |= {f"prequential {name}": figure(name, v) for name, v in value.items()}
        elif key == "relevance":
            shown[key] = listed([f"{name} {percent(share)}" for name, share in value.items()], MOST)
        elif key == "intervals":
            shown |= _intervals(value)
        elif key == "remembers":
            shown[key] = value.removeprefix("remembers ")
        else:
            name = "|theta|" if key == "theta_norm" else key.replace("_", " ")
            shown[name] = listed(value) if isinstance(value, list) else value
    shown["file size"] = f"{found['file_size']:,} bytes"
    return shown


def _intervals(value: dict[str, Any]) -> dict[str, str]:
    """How often they held the target while the model learned."""
    level = f"{percent(value['level'])} intervals"
    return {level: f"held {percent(value['coverage'], 1)} of the targets"} if value["rows"] else {}


def _experts(experts: list[dict[str, Any]]) -> list[list[str]]:
    """Those that count; they come with the heaviest first."""
    heavy = [row for row in experts if row["weight"] >= 0.005]
    rows = [[row["expert"], percent(row["weight"]), figure("", row["error"])] for row in heavy]
    more = len(experts) - len(heavy)
    return rows + ([[f"and {more} more", "", ""]] if more else [])
