"""What a command shows: how far it is, what came of a training or an evaluation, pictures."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dokl.base.errors import counted
from dokl.base.progress import Bar, progress
from dokl.cli.options import echo_json, figure, percent, remark, with_options

if TYPE_CHECKING:
    from dokl.tables.jobs.pictures import RunSummary
    from dokl.tables.jobs.predict import Evaluation, HoldOut
    from dokl.tables.jobs.train import Learned
    from dokl.tables.models.table import TableModel
    from dokl.tables.readers.reader import Reader

# -- how far it is --------------------------------------------------------------------------------
PATIENCE = 1.0


class Meter:
    """Shows on stderr how far the reading of a file is; passes: how often it is read."""

    def __init__(self, label: str, quiet: bool, passes: int = 1) -> None:
        self.label, self.quiet, self.passes = label, quiet, passes
        self.began = time.monotonic()
        self.at = self.before = self.read = 0  # done, begin and end of what was read last
        self.bar: Bar | None = None
        self.stack = ExitStack()

    def __enter__(self) -> Meter:
        return self

    def show(
        self, reader: Reader, rows: int, figure: str = "", doing: str = "", left: float = 0.0
    ) -> None:
        """Report progress. doing: what takes long now, reported at once; left: the share of
        what was read last that is still to be worked on.
        """
        bar = self.bar or self._begin(reader)
        if doing:
            bar.advance(0, f"{rows:,} rows, {doing}")
            bar.flush()
            return
        rate = rows / max(1e-9, self.seconds)
        place = self._place(reader.bytes_read, left)
        gone = place - self.at if place >= self.at else place  # a new pass starts the file again
        self.at = place
        bar.advance(gone, f"{rows:,} rows, {rate:,.0f}/s {figure}")

    def _place(self, read: int, left: float) -> int:
        """The byte up to which all is done."""
        if read != self.read:
            self.before, self.read = self.read if read > self.read else 0, read
        return read - round(left * (read - self.before))

    def _begin(self, reader: Reader) -> Bar:
        total = reader.bytes_total and reader.bytes_total * self.passes
        shown = progress(total, self.label, False if self.quiet else None, unit=None)
        self.bar = self.stack.enter_context(shown)
        return self.bar

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    def __exit__(self, *error: object) -> None:
        self.stack.close()


@contextmanager
def loading(quiet: bool) -> Iterator[None]:
    """For the imports of a command: say on a terminal that libraries are being loaded, where that
    takes more than a second. Nothing is garbage until they are there.
    """
    text = "loading libraries, which is slow the first time"
    seen = not quiet and sys.stderr is not None and sys.stderr.isatty()
    timer = threading.Timer(PATIENCE, click.echo, (text,), {"err": True})
    if seen:
        timer.start()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        timer.cancel()


# -- pictures and pages ---------------------------------------------------------------------------
MOST = 20


def draws(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options of the drawing, for a command whose pictures show this."""
    options = [
        click.option("--plot", type=click.Path(path_type=Path), metavar="FILE",
                     help=f"Draw {what}: .png, .svg, .pdf."),
        click.option("--html", type=click.Path(path_type=Path), metavar="FILE",
                     help="Write one page with tables and pictures."),
    ]  # fmt: skip

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        return with_options(command, options)

    return decorate


picture_options = draws("predictions and targets, error, coverage, relevance, nodes, their map")


def check_places(plot: Path | None, html: Path | None) -> None:
    """Report before the work, not after it, that a picture cannot be drawn there."""
    if plot is None and html is None:
        return
    from dokl.base.files import check_new
    from dokl.tables.report import check_picture, pyplot

    pyplot()
    if plot is not None:
        check_picture(plot)
    for path in (plot, html):
        if path is not None:
            check_new(path, True, "")


def summarise(
    title: str, run: Any, model: TableModel, prequential: bool, held: Evaluation | None = None
) -> RunSummary:
    """What there is to draw of a training, with its held-out rows if any, or an evaluation."""
    from dokl.tables.jobs.describe import relevance, sharing_worth
    from dokl.tables.jobs.pictures import RunSummary, error_of

    frozen = getattr(run, "frozen", None)
    snapshot = None if frozen is None else (frozen.at, error_of(frozen.score))
    summary = run.score, run.course, relevance(model)
    tested = None if held is None else (held.course, error_of(held.score))
    earlier = run.persistence if held is None else held.persistence
    covered, shared = run.coverage, sharing_worth(model)
    return RunSummary(title, *summary, covered, snapshot, prequential, shared, tested, earlier)


def draw(
    summary: RunSummary, scores: object, plot: Path | None, html: Path | None,
    lists: Mapping[str, Sequence[str]], quiet: bool,
) -> None:  # fmt: skip
    """Write the picture and the page that were asked for; scores: the table that stands first."""
    if plot is not None:
        from dokl.tables.jobs.pictures import save

        save(summary, plot)
        remark(f"picture in {plot}", quiet)
    if html is not None:
        from dokl.tables.jobs.pictures import draw as picture
        from dokl.tables.report import write

        tables: list[Any] = [scores]
        if summary.relevance:
            shares = list(summary.relevance.items())[:MOST]
            rows = [[name, percent(share, 1)] for name, share in shares]
            tables.append(("relevance of inputs", ["input", "share"], rows))
        if summary.nodes:
            which = "nodes" if summary.held is None else "nodes, held-out rows"
            tables.append((which, *node_rows(summary.nodes)))
        write(html, summary.title, picture(summary), tables, lists)
        remark(f"page in {html}", quiet)


def node_rows(nodes: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of nodes."""
    found = {name: score.figures() for name, score in sorted(nodes.items())}
    names = [n for n in next(iter(found.values())) if not n.startswith("recall")]
    rows = [[node, *(figure(n, each[n]) for n in names)] for node, each in found.items()]
    return ["node", *names], rows


# -- scores, for people and for programs ----------------------------------------------------------
FOLLOWS_BETTER = 1.5  # times the error of a model that goes on learning, to say that it follows


def print_training(
    learned: Learned,
    held: Evaluation | None,
    scores: Any,
    path: Path,
    seconds: float,
    as_json: bool,
    quiet: bool,
) -> list[str]:
    """Print it; the messages are returned. held: how the model did on rows that were held
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
        were = "was" if learned.skipped == 1 else "were"
        remark(f"{counted(learned.skipped, 'row')} without {lacking} {were} skipped", quiet)
    for notice in learned.notices:
        remark(notice, quiet)
    return words


def training_scores(
    learned: Learned, held: Evaluation | None, which: HoldOut | None, passes: int
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
    if held is not None and which is not None:
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


def nodes_of(learned: Learned, held: Evaluation | None) -> dict[str, Any]:
    """Scores of nodes, {title: scores}: of held-out rows where there are some."""
    course = learned.course if held is None else held.course
    title = "nodes" if held is None else "nodes, held-out rows"
    return {title: course.nodes} if course.nodes else {}


def evaluation_figures(found: Evaluation) -> dict[str, Any]:
    """How a model did on rows that it did not learn, for programs."""
    coverage, nodes, earlier = found.coverage, found.course.nodes, found.persistence.figures()
    more = {} if coverage is None else {"intervals": coverage.figures()}
    more |= {"nodes": {n: each.figures() for n, each in sorted(nodes.items())}} if nodes else {}
    more |= {} if earlier is None else {"persistence": earlier}
    return {**found.score.figures(), **more}


def evaluation_words(found: Evaluation) -> list[str]:
    """The same in words, as far as it is no score."""
    from dokl.tables.jobs.course import persistence_words

    covered = [] if found.coverage is None else [found.coverage.line()]
    return covered + persistence_words(found.persistence)


def _held_words(held: Evaluation | None) -> list[str]:
    return [] if held is None else [f"held out: {line}" for line in evaluation_words(held)]


def _cell(name: str, figures: dict[str, Any]) -> str:
    """A figure; a class that did not come has none."""
    return figure(name, figures[name]) if name in figures else "-"


def _words(learned: Learned) -> list[str]:
    """How the frozen model did, how often intervals held the target, what repeating earlier values
    would have done, how far back it remembers, and what sharing is worth.
    """
    from dokl.tables.jobs.course import persistence_words
    from dokl.tables.jobs.describe import sharing_worth

    frozen, found = learned.frozen, list[str]()
    if frozen is not None:
        after = f"the model of row {frozen.at:,}, which did not learn later rows"
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


def _order(learned: Learned, frozen: Any) -> list[str]:
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
            f"the rows are sorted by their {what}: a model that follows only repeats the last one "
            f"({both}, frozen). In use there is nothing to repeat, and the frozen error is more "
            "realistic; --shuffle learns the rows in random order"
        ]
    n = frozen.score.n
    if still == follows:
        return []
    if learned.course.classifying and n * (still - follows) < 2 * math.sqrt(n * (still + follows)):
        return []
    forgets = getattr(learned.model.estimator, "experts", "") == "all"
    lower = ", which experts that forget nothing may lower (-p experts=lasting)" if forgets else ""
    return [
        f"the rows change along the file, or the first {frozen.at:,} were too few: {name} {both}, "
        f"frozen. A model that does not learn in use has the frozen error{lower}; if the order of "
        "rows has no meaning, --shuffle learns them in random order"
    ]


def _results(learned: Learned, path: Path, seconds: float) -> dict[str, Any]:
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
