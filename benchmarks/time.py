"""Series: dokl beside persistence, ridge and LightGBM on the last fifth of time-ordered files.

    python -m benchmarks.time                  all of them, some minutes
    python -m benchmarks.time water air        those whose name begins so
    python -m benchmarks.time --data DIR       where Beijing and the streams lie; else DOKL_DATA
    python -m benchmarks.time --experts one    a single expert, which remembers everything
    python -m benchmarks.time --json FILE      write the figures there, too

Every row is a backtest with one origin, after four fifths of the rows. Lags are chosen by the rows
before it (`--lags auto`); ridge and LightGBM get the same inputs and rows, LightGBM the calendar as
well. They learn nothing in the last fifth, and neither does "frozen"; "following" does. Long files
are cut to their newest rows. "/ best" is the error over that of the best of the others: below 1
dokl is better. Files inside other packages are read where these are installed.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

import dokl

OURS = ("dokl following", "dokl frozen")
BEHIND, COVERED = 1.05, (0.80, 0.97)  # the aim: at most, and between


@dataclass(frozen=True)
class Series:
    """A table in the order of time, what to predict of it, and how far ahead."""

    name: str
    read: Callable[[Path], Any]
    target: str
    horizons: tuple[Any, ...] = (0,)
    how: dict[str, Any] = field(default_factory=dict)


def inside(package: str, path: str) -> Path:
    """A file that a package brings along."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{package} is not installed")
    return Path(spec.origin).parent / path


def river(name: str) -> Callable[[Path], Any]:
    return lambda data: pd.read_csv(inside("river", f"datasets/{name}"))


def water_flow(data: Path) -> Any:
    table = river("water-flow.csv")(data).set_axis(["time", "flow"], axis=1)
    return table.assign(time=pd.to_datetime(table["time"], utc=True))


def passengers(data: Path) -> Any:
    table = river("airline-passengers.csv")(data)
    return table.assign(month=pd.to_datetime(table["month"]))


def approval(data: Path) -> Any:
    table = river("trump_approval.csv.gz")(data)
    days = pd.to_datetime(table.pop("ordinal_date") - 719_163, unit="D")  # 1970 in ordinals
    return table.assign(day=days)


def stream(name: str, rows: int) -> Callable[[Path], Any]:
    return lambda data: pd.read_csv(data / "streams" / f"{name}.csv.gz")[-rows:]


def beijing(stations: int, months: int, *columns: str) -> Callable[[Path], Any]:
    """The first months of the first stations; columns: those beside time and station."""

    def read(data: Path) -> Any:
        table = pd.read_csv(data / "beijing_air.csv.gz")
        table = table[table["station"].isin(table["station"].unique()[:stations])]
        when = pd.to_datetime(table[["year", "month", "day", "hour"]])
        table = table[[*columns, "station"]].assign(when=when)
        end = when.min() + pd.DateOffset(months=months)
        return table[table["when"] < end]

    return read


GASES = ("PM2.5", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "WSPM", "wd")
SERIES = (
    Series("passengers, monthly", passengers, "passengers"),
    Series("water flow, hourly", water_flow, "flow", (0, 6, 24)),
    Series("approval, daily", approval, "five_thirty_eight", (0, 7)),
    Series("stock returns, daily", river("sp500.csv.gz"), "next_day_return"),
    Series("Beijing PM2.5, 4 stations, 2 months", beijing(4, 2, *GASES), "PM2.5", (0, 6),
           {"by": "station"}),
    Series("Beijing temperature, 1 station, 5 months", beijing(1, 5, "TEMP", "PRES", "DEWP"),
           "TEMP", (1, 24), {"by": "station"}),
    Series("energy, every 10 minutes", stream("energy", 4000), "y", (0, 6)),
    Series("air, hourly", stream("air", 4000), "y", (0, 6)),
)  # fmt: skip


def measure(chosen: list[str], data: Path, experts: str | None = None) -> Iterator[dict[str, Any]]:
    """The figures of each file and horizon."""
    for series in SERIES:
        if chosen and not any(series.name.lower().startswith(name.lower()) for name in chosen):
            continue
        try:
            table = series.read(data)
        except FileNotFoundError as error:
            print(f"{series.name}: left out, {error}", flush=True)
            continue
        for horizon in series.horizons:
            yield figures(series, table, horizon, {"experts": experts} if experts else {})


def figures(series: Series, table: Any, horizon: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    began = perf_counter()
    how = {"horizon": horizon, "folds": 1, "held_out": 0.2, **series.how, **parameters}
    found = dokl.backtest(table, series.target, **how)
    every = found[found["fold"] == "all"].set_index("model")
    errors = {name: float(error) for name, error in every["rmse"].items()}
    others = {name: error for name, error in errors.items() if name not in OURS}
    best = min(others, key=lambda name: others[name])
    return {
        "series": series.name,
        "rows": len(table),
        "horizon": str(horizon),
        "rmse": errors,
        "r2": {name: float(value) for name, value in every["r2"].items()},
        "best": best,
        "ratio": {name: errors[name] / errors[best] for name in OURS},
        "coverage": {name: float(every["coverage"][name]) for name in OURS},
        "seconds": perf_counter() - began,
    }


OURS_HEADER = f"{'/ best':>7}{'in 90 %':>8}"
HEADER = (
    f"{'':<42}{'rows':>6}{'ahead':>6} |{'ridge':>8}{'LightGBM':>9}{'earlier':>8} |"
    f"{'following':>10}{OURS_HEADER}  |{'frozen':>8}{OURS_HEADER}{'s':>6}"
)


def line(found: dict[str, Any]) -> str:
    errors, ratio, inside_ = dict(found["rmse"]), found["ratio"], found["coverage"]
    peers = [errors.pop(name, float("nan")) for name in ("ridge", "LightGBM")]
    ours = [errors.pop(name) for name in OURS]
    earlier = min(errors.values(), default=float("nan"))  # persistence is what is left
    parts = [f"{found['series']:<42}{found['rows']:>6,}{found['horizon']:>6} |"]
    parts.append(f"{peers[0]:>8.4g}{peers[1]:>9.4g}{earlier:>8.4g} |")
    for name, error, wide in zip(OURS, ours, (10, 8), strict=True):
        parts.append(f"{error:>{wide}.4g}{ratio[name]:>7.2f}{100 * inside_[name]:>7.0f} % |")
    return "".join(parts).removesuffix("|") + f"{found['seconds']:>5.0f}"


def summary(all_found: list[dict[str, Any]]) -> Iterator[str]:
    """Where the aim was reached, and by how much it was missed."""
    low, high = COVERED
    for name in OURS:
        near = [each for each in all_found if each["ratio"][name] <= BEHIND]
        held = [each for each in all_found if low <= each["coverage"][name] <= high]
        yield (
            f"{name}: at most 5 % behind the best of the others on {len(near)} of "
            f"{len(all_found)}; coverage between 80 and 97 % on {len(held)}"
        )
        for each in all_found:
            if each not in near:
                more = 100 * (each["ratio"][name] - 1)
                what = f"{each['series']}, {each['horizon']} ahead"
                yield f"    behind {each['best']} by {more:.0f} %: {what}"
            if each not in held:
                what = f"{each['series']}, {each['horizon']} ahead"
                yield f"    coverage {100 * each['coverage'][name]:.0f} %: {what}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.time", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("series", nargs="*", help="those whose name begins so; default all")
    parser.add_argument("--data", type=Path, help="where Beijing and the streams lie")
    parser.add_argument(
        "--experts", choices=("lasting", "one", "all"), help="lasting is usual with a horizon"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    args = parser.parse_args()
    near = Path(__file__).parents[2] / "shared" / "data"
    data = args.data or Path(os.environ.get("DOKL_DATA", near))
    print(f"root mean square errors on the last fifth\n\n{HEADER}", flush=True)
    found = []
    for each in measure(args.series, data, args.experts):
        found.append(each)
        print(line(each), flush=True)
    print()
    for sentence in summary(found):
        print(sentence)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
