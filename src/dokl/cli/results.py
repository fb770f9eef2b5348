"""What a training came to, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dokl.cli.common import echo_json, figure, remark


def tell(learned: Any, path: Path, seconds: float, passes: int, as_json: bool, quiet: bool) -> None:
    """Print it."""
    rate = learned.score.n / seconds
    if as_json:
        echo_json(_results(learned, path, seconds) | {"rows_per_second": rate})
        return
    _show(learned, passes)
    for line in _words(learned):
        click.echo(line)
    remark(f"{rate:,.0f} rows/s; model in {path}", quiet)
    if learned.skipped:
        lacking = "a target" if learned.model.node is None else "a target or a node"
        remark(f"{learned.skipped:,} rows without {lacking} were skipped", quiet)
    for notice in learned.notices:
        remark(notice, quiet)


def _show(learned: Any, passes: int) -> None:
    """The prequential error of this run, of all runs where this one went on, and a snapshot's."""
    from dokl.report import table

    title = "prequential: every row predicted before it was learned"
    title += "" if passes == 1 else f" ({passes} passes: most of them had been learned before)"
    ever, frozen = learned.model.tally, learned.frozen
    columns = {"": learned.score}
    if ever is not None and ever is not learned.score:
        columns = {"this run": learned.score, "since the start": ever}
    if frozen is not None:
        columns = {name or "all rows": score for name, score in columns.items()}
        columns |= {f"after row {frozen.at:,}": frozen.tracking, "frozen there": frozen.score}
    names = list(learned.score.figures())
    found = [score.figures() for score in columns.values()]
    rows = [[name, *(_cell(name, each) for each in found)] for name in names]
    table(title, ["", *columns], rows)


def _cell(name: str, figures: dict[str, Any]) -> str:
    """A figure; a class that did not come has none."""
    return figure(name, figures[name]) if name in figures else "-"


def _words(learned: Any) -> list[str]:
    """What stood still, how often intervals held the target, and how far back it remembers."""
    frozen, found = learned.frozen, list[str]()
    if frozen is not None:
        after = f"the model as it was after row {frozen.at:,}, which learned no more"
        found.append(f"frozen there: {after}, on the same rows")
    found += [] if learned.coverage is None else [learned.coverage.line()]
    if hasattr(learned.model.estimator, "remembers_"):
        found.append(f"the model {learned.model.estimator.remembers_}")
    return found


def _results(learned: Any, path: Path, seconds: float) -> dict[str, Any]:
    from dokl.jobs.files.describe import settings

    model, ever = learned.model, learned.model.tally or learned.score
    return {
        "model": path,
        "rows": model.rows_read,
        "skipped": model.rows_skipped,
        "seconds": seconds,
        "prequential": learned.score.figures(),
        "prequential_since_start": ever.figures(),
        "frozen": None if learned.frozen is None else learned.frozen.figures(),
        "intervals": None if learned.coverage is None else learned.coverage.figures(),
        "remembers": getattr(model.estimator, "remembers_", None),
        "notices": learned.notices,
        "interrupted": learned.halt is not None,
        "settings": settings(model),
    }
