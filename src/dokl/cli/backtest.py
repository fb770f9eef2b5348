"""dokl backtest"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dokl.base.errors import BadInput
from dokl.base.progress import progress
from dokl.cli.options import (
    BY,
    DROP,
    FILES_HELP,
    NUMERIC,
    PARAMETER,
    TEXT,
    TIME,
    Data,
    comma_list,
    earlier_options,
    echo_json,
    examples,
    keep_inputs,
    key_values,
    lag_request,
    make_source,
    on_error_options,
    output_switches,
    reading_options,
    remark,
    with_options,
)
from dokl.cli.results import Meter, check_places, draws, loading

if TYPE_CHECKING:
    from dokl.tables.jobs.rolling_origin import Backtest

HELP = """\b
How: the rows are sorted by time. The last --held-out percent are split into --folds.
The beginning of a fold is its origin: each model has learned what was known by then,
and predicts the fold.
  dokl frozen     the model as it was at the origin
  dokl following  the same model, which learns each target when it is known
  ridge, LightGBM fitted at the origin, with the same inputs and rows; LightGBM
                  also gets hour, weekday and day of the year as numbers. They
                  learn nothing later: compare them with the frozen model
  the last value  and the values one day and one week earlier: persistence
Rows that all models predict are scored. r2 is over the rows held out; "in 90 %" is
the coverage of 90 % intervals, +- half their width. --horizon 1,6,24 scores several
horizons. Unless lags are named, the rows before the first origin choose them; --lags
none uses none.

\b
All rows are in memory. Ctrl-C prints the folds that are done.
"""


def _options(command: Any) -> Any:
    """What to backtest, and how."""
    lags = [
        click.option("--lags", "auto_lags", type=click.Choice(["auto", "none"]),
                     help="Default: auto (the rows choose) unless lags are named."),
        click.option("--horizon", metavar="N|6h,...", default="0", show_default=True,
                     help="Predict the target N rows, or hours, later; one or several."),
    ]  # fmt: skip
    options = [
        click.option("--target", metavar="COLUMN", required=True, help="Column to predict."),
        *earlier_options(), *lags, BY, TIME,
        click.option("--folds", type=click.IntRange(1), default=4, show_default=True,
                     help="Number of origins."),
        click.option("--held-out", type=click.FloatRange(1, 95), default=40.0, show_default=True,
                     metavar="PERCENT", help="The last rows, which are scored."),
        click.option("--rows", type=click.IntRange(1), metavar="N",
                     help="Use only the newest N rows."),
        DROP, TEXT, NUMERIC,
        click.option("--components", type=click.IntRange(1), metavar="D",
                     help="Size of the model, as for train."),
        click.option("--seed", "random_state", type=int, default=0, show_default=True,
                     help="Seed of features and of the replay buffer."),
        PARAMETER,
    ]  # fmt: skip
    return with_options(command, options)


@click.command(
    epilog=HELP
    + "\n"
    + FILES_HELP
    + "\n"
    + examples(
        "dokl backtest air.csv --target temp --horizon 6 --by station",
        "dokl backtest air.csv --target temp --horizon 1,6,24h --folds 6 --html air.html",
        "dokl backtest flow.csv --target flow --lag flow=1,24 --held-out 20 --folds 1 --json",
    )
)
@click.argument("data", type=Data)
@_options
@reading_options
@on_error_options
@draws("intervals, errors and coverage")
@output_switches
def backtest(
    data: str, plot: Path | None, html: Path | None, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Measure from origins in the past how well DATA can be predicted.

    DATA is in the order of time, or has a column of times, and the target is a number. The command
    prints the errors of a model that continues to learn and of a frozen one, beside those of
    persistence, ridge and LightGBM, and the coverage of 90 % intervals.
    """
    check_places(plot, html)
    keep_inputs([data], [plot, html])
    with loading(quiet):
        from dokl.tables.jobs import rolling_report as report
        from dokl.tables.jobs.rolling_origin import Origins, read_table, run_backtest
        from dokl.tables.jobs.sources import closing
    source = make_source(data, options, f"{Path(data).name}.refused.csv")
    training = _training(options)
    horizons = comma_list(options["horizon"])
    origins = Origins(options["folds"], options["held_out"] / 100, options["rows"])
    say = (lambda line: None) if quiet or as_json else click.echo
    with closing(source.on_error):
        with Meter("reading", quiet) as meter:
            table = read_table(source, training.target, training.lags.by, meter.show)
        total = min(table.n, options["rows"] or table.n) * len(horizons)
        with progress(total, "backtest", False if quiet else None, unit="rows") as bar:
            found = run_backtest(table, training, horizons, origins, source, bar.advance, say)
    _report(found, data, as_json, quiet)
    remark(source.on_error.words, quiet or not source.on_error.count)
    title = f"{training.target} of {Path(data).name}, backtest"
    if plot is not None:
        from dokl.tables.report import save_picture

        save_picture(report.draw(found, title), plot)
        remark(f"picture in {plot}", quiet or as_json)
    if html is not None:
        _write_page(found, title, html)
        remark(f"page in {html}", quiet or as_json)
    if found.interrupted:
        click.echo("interrupted: the figures are of the folds that were done by then", err=True)
        sys.exit(130)
    if source.on_error.fault is not None:
        fault = source.on_error.fault
        raise BadInput(f"{fault}. The scores are those of the rows before", options=fault.options)


def _training(options: dict[str, Any]) -> Any:
    from dokl.tables.jobs.start import Training

    named = any(options[name] for name in ("lag", "rolling", "difference"))
    chosen = options["auto_lags"] or ("none" if named else "auto")
    asked = replace(lag_request({**options, "horizon": 0}), auto=chosen == "auto")
    parameters = {"random_state": options["random_state"], **key_values(options["parameters"])}
    if options["components"] is not None:
        parameters["n_components"] = options["components"]
    how: dict[str, Any] = {"method": "bank", "parameters": parameters, "lags": asked}
    return Training(options["target"], "regression", **how)


def _report(found: Backtest, data: str, as_json: bool, quiet: bool) -> None:
    from dokl.tables.jobs import rolling_report as report
    from dokl.tables.report import table

    if as_json:
        echo_json(report.record(found))
        return
    folds = len(found.forecasts[0].folds)
    many = "1 origin" if folds == 1 else f"{folds} origins"
    table(f"{found.target} of {data}, from {many}", *report.score_table(found))
    if folds > 1 and len(found.forecasts) == 1:
        table("", *report.fold_table(found.forecasts[0]))
    for line in report.words(found):
        click.echo(line)
    for line in _remarks(found):
        remark(line, quiet)


def _remarks(found: Backtest) -> list[str]:
    return [*found.notices, *(f"{name} is {why}" for name, why in found.skipped.items())]


def _write_page(found: Backtest, title: str, path: Path) -> None:
    from dokl.tables.jobs import rolling_report as report
    from dokl.tables.report import write

    tables = [("errors", *report.score_table(found))]
    for each in found.forecasts:
        ahead = f", {each.horizon.words} ahead" if each.horizon else ""
        tables.append((f"errors by fold{ahead}", *report.fold_table(each)))
    guesses = [line for each in found.forecasts[:1] for line in each.pairs.guesses]
    lists = {"to know": [*report.words(found), *_remarks(found)], "what was guessed": guesses}
    write(path, title, report.draw(found, title), tables, lists)
