"""Files as people have them: made, read, and trained from by the real command."""

from datetime import datetime, timedelta

import numpy as np

from commands import dokl, write_csv
from dokl.tables.readers import Options, open_table

QUICK = ("--method", "gradient", "--components", "40")


def german(value):
    """1234.5 as 1.234,500"""
    return f"{value:,.3f}".translate(str.maketrans(",.", ".,"))


def numbers(n=120, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n).round(3), rng.integers(0, 9000, n)
    return {"a": a, "b": b, "y": (np.sin(2 * a) + b / 4500).round(3)}


def hourly(n=240):
    """A target that follows the hour of the day and the day of the week."""
    start = datetime(2020, 1, 30)
    when = [start + timedelta(hours=3 * i) for i in range(n)]
    y = [np.sin(2 * np.pi * t.hour / 24) + (t.weekday() >= 5) for t in when]
    return when, np.round(y, 3)


def written(path, columns, mark=","):
    return write_csv(path, columns, mark)


def first(path, **options):
    with open_table(path, Options(**options)) as reader:
        return reader.first


def trained(path, target, *more):
    """What train says on stdout, and the model."""
    model = path.parent / "m.dokl"
    options = (*QUICK, "--overwrite", "--model", model, *more)
    return dokl("train", path, "--target", target, *options).stdout, model
