"""Options of series: lags, groups, times and horizons, as `train` and `backtest` have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dokl.cli.common import split_pairs

SERIES_HELP = """\b
Series: --lag, --rolling and --difference make inputs of earlier values, of the
target as well; --lags auto chooses some. Distances are rows (24) or times (24h:
s, min, h, d, w). With --by every group has a past of its own. Rows must be in
the order of their times; repeated and earlier ones are errors. With --horizon
the target of a row is the value that much later, and the row's own value of the
target is an input. The model file remembers the last rows: predict, evaluate
and serve go on from there. Beside the error stands that of persistence.
"""


TIME = click.option("--time", metavar="COLUMN",
                    help="Lags: the order of rows; else the first column of dates.")  # fmt: skip
AUTO = click.option("--lags", "auto_lags", type=click.Choice(["auto"]),
                    help="Lags that the first rows propose.")  # fmt: skip
HORIZON = click.option("--horizon", metavar="N|6h", default="0", show_default=True,
                       help="Predict the target N rows, or hours, later.")  # fmt: skip
BY = click.option("--by", metavar="COLUMN", help="Lags: each group has a past of its own.")


def earlier_options() -> list[Callable[[Any], Any]]:
    """Which earlier values are inputs."""
    return [
        click.option("--lag", multiple=True, metavar="COLUMN=1,24",
                     help="Earlier values as inputs: N rows, or 24h, before."),
        click.option("--rolling", multiple=True, metavar="COLUMN=24", help="Rolling means."),
        click.option("--difference", multiple=True, metavar="COLUMN=1",
                     help="The newest value less an earlier one."),
    ]  # fmt: skip


def lag_request(options: dict[str, Any]) -> Any:
    """What was asked for by these options."""
    from dokl.tables.jobs.lagged import LagRequest

    def pairs(option: str, shape: str) -> tuple[tuple[str, str], ...]:
        found = split_pairs(options[option], shape)
        return tuple((name, back) for name, text in found for back in comma_list(text))

    return LagRequest(
        pairs("lag", "COLUMN=1,24"), pairs("rolling", "COLUMN=24"), pairs("difference", "COLUMN=1"),
        options.get("by"), options["time"], options.get("horizon", 0),
        options["auto_lags"] == "auto",
    )  # fmt: skip


def comma_list(text: str | None) -> tuple[str, ...]:
    """Parts between commas; none of an empty text."""
    return tuple(part.strip() for part in text.split(",")) if text else ()
