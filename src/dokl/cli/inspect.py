"""dokl inspect"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dokl.cli.common import echo_json, examples, figure


@click.command(epilog=examples("dokl inspect temp.dokl", "dokl inspect temp.dokl --json"))
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def inspect(path: Path, as_json: bool) -> None:
    """Tell what is in a MODEL file.

    Its settings, its columns, how much was learned, and how well.
    """
    from dokl.jobs.describe import describe
    from dokl.report import facts

    found = describe(path)
    if as_json:
        echo_json(found)
    else:
        facts(str(path), _for_people(found))


def _for_people(found: dict[str, Any]) -> dict[str, Any]:
    from dokl.errors import listed

    shown: dict[str, Any] = {}
    for key, value in found.items():
        if key == "prequential":
            shown |= {f"prequential {name}": figure(name, v) for name, v in value.items()}
        else:
            name = "|theta|" if key == "theta_norm" else key.replace("_", " ")
            shown[name] = listed(value) if isinstance(value, list) else value
    shown["file size"] = f"{found['file_size']:,} bytes"
    return shown
