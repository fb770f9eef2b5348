"""What a training came to, for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dokl.cli.common import echo_json, figure, remark
from dokl.cli.pictures import node_rows

FOLLOWS_BETTER = 1.5  # times the error of a model that goes on learning, to say that it follows


def tell(
    learned: Any, held: Any, scores: Any, path: Path, seconds: float, as_json: bool, quiet: bool
) -> list[str]:
    """Print it; what was said in words comes back. held: how the model did on rows that were held
    out, None without any; scores: see `training_scores`.
    """
    rate, words = learned.score.n / seconds, [*_held_words(held), *_words(learned)]
    if as_json:
        tested = {"test": None if held is None else evaluation_figures(held)}
        results = _results(learned, path, seconds) | {"words": words, "rows_per_second": rate}
        echo_json(tested | results)
        return words
    from dokl.tables.report import table

    table(*scores)
    for title, nodes in nodes_of(learned, held).items():
        table(title, *node_rows(nodes))
    for line in words:
        click.echo(line)
    remark(f"{rate:,.0f} rows/s; model in {path}", quiet)
    if learned.skipped:
        lacking = "a target" if learned.model.node is None else "a target or a node"
        remark(f"{learned.skipped:,} rows without {lacking} were skipped", quiet)
    for notice in learned.notices:
        remark(notice, quiet)
    return words


def training_scores(
    learned: Any, held: Any, which: Any, passes: int
) -> tuple[str, list[str], list[list[str]]]:
    """A table: the error on held-out rows (which these are), the prequential one of this run, of
    all runs where this one went on, and a snapshot's.
    """
    title = "prequential: every row predicted before it was learned"
    title += "" if passes == 1 else f" ({passes} passes: most of them had been learned before)"
    ever, frozen = learned.model.tally, learned.frozen
    columns = {"": learned.score}
    if ever is not None and ever is not learned.score:
        columns = {"this run": learned.score, "since the start": ever}
    if frozen is not None:
        columns = {name or "all rows": score for name, score in columns.items()}
        columns |= {f"after row {frozen.at:,}": frozen.tracking, "frozen there": frozen.score}
    if held is not None:
        title = f"held out: {which.words}, not learned; {title}"
        first = {"held out": held.score}
        names = {"": "prequential", "all rows": "prequential"}
        columns = first | {names.get(name, name): score for name, score in columns.items()}
    return score_table(title, columns)


def score_table(title: str, columns: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """Title, header and rows of a table of scores side by side."""
    found = [score.figures() for score in columns.values()]
    names = dict.fromkeys(name for figures in found for name in figures)
    rows = [[name, *(_cell(name, each) for each in found)] for name in names]
    return title, ["", *columns], rows


def nodes_of(learned: Any, held: Any) -> dict[str, Any]:
    """Scores of nodes, {title: scores}: of held-out rows where there are some."""
    course = learned.course if held is None else held.course
    title = "nodes" if held is None else "nodes, held-out rows"
    return {title: course.nodes} if course.nodes else {}


def evaluation_figures(found: Any) -> dict[str, Any]:
    """How a model did on rows that it did not learn, for programs."""
    coverage, nodes, earlier = found.coverage, found.course.nodes, found.persistence.figures()
    more = {} if coverage is None else {"intervals": coverage.figures()}
    more |= {"nodes": {n: each.figures() for n, each in sorted(nodes.items())}} if nodes else {}
    more |= {} if earlier is None else {"persistence": earlier}
    return {**found.score.figures(), **more}


def evaluation_words(found: Any) -> list[str]:
    """The same in words, as far as it is no score."""
    from dokl.tables.jobs.persistence import persistence_words

    covered = [] if found.coverage is None else [found.coverage.line()]
    return covered + persistence_words(found.persistence)


def _held_words(held: Any) -> list[str]:
    return [] if held is None else [f"held out: {line}" for line in evaluation_words(held)]


def _cell(name: str, figures: dict[str, Any]) -> str:
    """A figure; a class that did not come has none."""
    return figure(name, figures[name]) if name in figures else "-"


def _words(learned: Any) -> list[str]:
    """What stood still, how often intervals held the target, what repeating earlier values would
    have done, how far back it remembers, and what sharing is worth.
    """
    from dokl.tables.jobs.describe import sharing_worth
    from dokl.tables.jobs.persistence import persistence_words

    frozen, found = learned.frozen, list[str]()
    if frozen is not None:
        after = f"the model as it was after row {frozen.at:,}, which learned no more"
        found.append(f"frozen there: {after}, on the same rows")
        held = frozen.coverage
        found += [] if held is None or not held.n else [f"frozen there: {held.line()}"]
        found += _order(learned, frozen)
    found += [] if learned.coverage is None else [learned.coverage.line()]
    found += persistence_words(learned.persistence)
    if hasattr(learned.model.estimator, "remembers_"):
        found.append(f"the model {learned.model.estimator.remembers_}")
    worth = sharing_worth(learned.model)
    if worth is not None:
        each = float(learned.model.estimator.sent_bytes_.mean())
        found.append(f"{worth.text}; a node has sent {each / 1e3:,.1f} kB on average")
    return found


def _order(learned: Any, frozen: Any) -> list[str]:
    """What it means that a model that follows is better than the frozen one; of few labels, only
    where chance does not explain it.
    """
    name = "error" if learned.course.classifying else "rmse"
    still, follows = (score.figures().get(name) for score in (frozen.score, frozen.tracking))
    if still is None or follows is None or still < FOLLOWS_BETTER * follows:
        return []
    both = f"{figure(name, follows)} against {figure(name, still)}"
    if learned.course.sorted_by_target(learned.score):
        what = "label" if learned.course.classifying else "target"
        return [
            f"the rows are sorted by their {what}: a model that follows has only to repeat what "
            f"came last ({both}, frozen). In use there is nothing to repeat, and the frozen error "
            "is nearer the truth; shuffle the rows before training"
        ]
    n = frozen.score.n
    if still == follows:
        return []
    if learned.course.classifying and n * (still - follows) < 2 * math.sqrt(n * (still + follows)):
        return []
    return [
        f"the rows change along the file, or there were too few to learn from by row "
        f"{frozen.at:,}: {name} {both}, frozen. A model that learns no more in use will do as the "
        "frozen one; if the order of rows means nothing, shuffle them before training"
    ]


def _results(learned: Any, path: Path, seconds: float) -> dict[str, Any]:
    from dokl.tables.jobs.describe import settings

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
        "persistence": learned.persistence.figures(),
        "remembers": getattr(model.estimator, "remembers_", None),
        "guesses": learned.guesses,
        "nodes": {name: score.figures() for name, score in learned.course.nodes.items()} or None,
        "notices": learned.notices,
        "interrupted": learned.halt is not None,
        "fault": None if learned.fault is None else str(learned.fault),
        "settings": settings(model),
    }
