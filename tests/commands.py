"""Run `dokl` inside this process, and make small files for it to read."""

import csv
import gzip
import json
from datetime import UTC, datetime
from functools import cache

import numpy as np
from click.testing import CliRunner

from dokl import AutoRegressor
from dokl.cli import commands
from dokl.tables.readers import open_table


def dokl(*arguments, code=0, input=None, env=None):
    """What a command printed; `code` is the exit code it must have."""
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(commands, words, input=input, env=env)
    unexpected = result.exception is not None and not isinstance(result.exception, SystemExit)
    if unexpected:
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def fails(*arguments, code=1, **how):
    """The one line that a command says when it refuses."""
    result = dokl(*arguments, code=code, **how)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("dokl: ")
    return lines[0].removeprefix("dokl: ")


def json_of(*arguments, **how):
    return json.loads(dokl(*arguments, **how).stdout)


def write_csv(path, columns, delimiter=","):
    """columns: name -> values."""
    with open(path, "w", newline="") as file:
        out = csv.writer(file, delimiter=delimiter)
        out.writerow(columns)
        out.writerows(zip(*columns.values(), strict=True))
    return path


def readings(n=600, seed=0):
    """Columns of a small stream: two numbers, a place, a number and a label to learn."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n)).round(4)
    place = rng.choice(["roof", "cellar", "yard"], n)
    y = (np.sin(2 * a) * b + (place == "roof")).round(4)
    label = np.where(a * b > 0, "same", "other")
    return {"id": np.arange(n) + 10**15, "a": a, "b": b, "place": place, "y": y, "label": label}


@cache
def risen():
    """A model whose first input has left the range of its last pilot, and rows of all ranges."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(220, 3))
    X[:, 0] += 0.2 * np.maximum(np.arange(220) - 125, 0)
    model = AutoRegressor(20, experts="lasting", random_state=0).partial_fit(X, X[:, 0] - X[:, 1])
    assert model.bank_.extent[0] > 5.5
    return model, np.concatenate([X[::5], 3 * X[::5]])


def rows_of(text):
    """Lines of CSV as dictionaries."""
    return list(csv.DictReader(text.splitlines()))


INPUTS = ("--drop", "id", "--method", "gradient", "--components", "60")


def train_each(place, learners, columns, logistic=()):
    """r.csv with these columns, some `a` missing; NAME-y.dokl and NAME-label.dokl of each learner.

    learners: name -> options. logistic: names whose labels are learned with that loss.
    """
    gaps = columns["a"].astype(object)
    gaps[::17] = ""
    write_csv(place / "r.csv", {**columns, "a": gaps})
    for name, options in learners.items():
        for target, other in (("y", "label"), ("label", "y")):
            loss = ["--loss", "logistic"] if target == "label" and name in logistic else []
            dokl("train", place / "r.csv", "--target", target, "--drop", "id", "--drop", other,
                 *options, *loss, "-q", "--model", place / f"{name}-{target}.dokl")  # fmt: skip
    return place


def make_folder(place):
    """A folder with one stream in several formats, and two models of it: y.dokl, label.dokl."""
    columns = readings()
    write_csv(place / "r.csv", columns)
    lines = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    text = "".join(json.dumps(line, default=lambda v: v.item()) + "\n" for line in lines)
    (place / "r.jsonl").write_text(text)
    with gzip.open(place / "r.csv.gz", "wb") as file:
        file.write((place / "r.csv").read_bytes())
    pairs = zip(columns["a"], columns["b"], strict=True)
    rows = [f"{'+1' if a * b > 0 else '-1'} 1:{a} 3:{b}" for a, b in pairs]
    (place / "r.svm").write_text("\n".join(rows) + "\n")
    quick = (*INPUTS, "--quiet")
    dokl("train", place / "r.csv", "--target", "y", "--drop", "label", *quick,
         "--model", place / "y.dokl")  # fmt: skip
    dokl("train", place / "r.csv", "--target", "label", "--drop", "y", *quick,
         "--loss", "logistic", "--model", place / "label.dokl")  # fmt: skip
    return place


def times_file(path, n=150):
    """A file of times, numbers and texts, and its times in seconds."""
    rng = np.random.default_rng(3)
    seconds = 1.7e9 + 7919.0 * np.arange(n)
    a, y = rng.normal(size=n).round(3), np.sin(seconds / 86400 * 6.283) + rng.normal(size=n) / 9
    columns = {"when": [*map(iso, seconds)], "a": a, "kind": ["u", "", "v"] * (n // 3)}
    return write_csv(path, columns | {"y": y.round(3)}), seconds


def iso(seconds):
    """A time as text; nothing for NaN."""
    return "" if np.isnan(seconds) else str(datetime.fromtimestamp(seconds, UTC))[:19]


def column_of(path, name):
    """The numbers of a column of a CSV file."""
    with open_table(path) as reader:
        return reader.first.columns[name]
