"""`dokl plan`: advice from a file of data, or from a stated law of the inputs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base import config
from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.random_numbers import generator
from dokl.learning.columns import (
    Preprocessor,
    check_some_left,
    class_target,
    guessed_task,
    is_text,
    numeric_target,
    unused_texts,
    unused_words,
)
from dokl.network import graphs
from dokl.tables.jobs.sources import Source
from dokl.tables.plan import Budget, Plan, Way, compare
from dokl.tables.plan.ways import VectorRules
from dokl.tables.readers import Chunk


@dataclass(frozen=True)
class FileSample:
    """Rows of a file: X (n, d) standardised, y (n,); why agents cannot read such a file, or
    nothing; names of the d inputs; what was guessed, a line each. owners: the column of each input;
    texts: {column: (n,)} of text; first: the first rows as they come, None of LIBSVM.
    """

    X: Any
    y: Array
    unfit: str = ""
    names: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    texts: Mapping[str, Array] = field(default_factory=dict)
    first: Chunk | None = None


def read_sample(
    source: Source, target: str | None, rows: int, say: Callable[[str], None] | None = None
) -> FileSample:
    """Up to `rows` rows of a file, in random order.

    The first rows that fit are taken; a stream has no other sample to offer. `say` is told what was
    guessed, a line at a time.
    """
    with source.open(target=target) as reader:
        chunks, n = [], 0
        for chunk in reader:
            chunks.append(chunk)
            n += chunk.n
            if n >= rows:
                break
    if chunks[0].X is not None:
        from scipy.sparse import vstack

        X, y = vstack([c.X for c in chunks]).tocsr(), np.concatenate([_own(c.y) for c in chunks])
        made = FileSample(X, y)
        unused: dict[str, str] = {}
    else:
        made, unused = _prepared(chunks, target)
    task = guessed_task(made.y, target or "y")[1]
    guesses = (*chunks[0].guesses, *unused_words(unused), task)
    if say is not None:
        for line in guesses:
            say(line)
    order = generator(0, "plan-rows").permutation(made.X.shape[0])[:rows]
    texts = {name: values[order] for name, values in made.texts.items()}
    how = {"unfit": _unfit(chunks[0]), "guesses": guesses, "texts": texts}
    return replace(made, X=made.X[order], y=made.y[order], **how)  # type: ignore[arg-type]


def _unfit(first: Chunk) -> str:
    """Why a network of agents cannot take this file as its sample; "" if it can."""
    if first.X is not None:
        return "agents need rows with named columns"
    return ""


def _own(y: Array | None) -> Array:
    assert y is not None
    return y


def _prepared(chunks: list[Any], target: str | None) -> tuple[FileSample, dict[str, str]]:
    """Rows in order, and columns that are not used with examples."""
    names = chunks[0].names
    if target is None or target not in names:
        raise BadInput(f"name the target column with --target: {', '.join(names)}")
    columns = {name: np.concatenate([c.columns[name] for c in chunks]) for name in names}
    unused = unused_texts(columns, [target])
    check_some_left([name for name in names if name != target], unused)
    prepared = Preprocessor.plan(columns, [target, *unused], "fixed", times=chunks[0].times)
    pick = class_target if is_text(columns[target]) else numeric_target
    y, keep = pick(columns[target], target)
    given = [name for name in names if name != target and name not in unused]
    owners = tuple(_owner(name, given) for name in prepared.names_out)
    texts = {k: columns[k].astype(str)[keep] for k in given if is_text(columns[k])}
    X = prepared.transform(columns)[keep]
    about = {"names": prepared.names_out, "owners": owners, "texts": texts, "first": chunks[0]}
    return FileSample(X, y[keep], **about), unused


def _owner(made: str, columns: Sequence[str]) -> str:
    """The column that an input was made of: the longest whose name it begins with."""
    return max((name for name in columns if made.startswith(name)), key=len, default=made)


def weights_of(graph: str | None, nodes: int, seed: int) -> Any:
    """Metropolis weights of a named topology, None for one node."""
    return None if graph is None else graphs.metropolis(graphs.build(graph, nodes, seed=seed))


def train_lines(plan: Plan, data: str, told: Sequence[str]) -> dict[str, str]:
    """The commands that apply a plan to a file, the advised one first, each after what it is.

    told: further words of the command: the target, the task, how to read the file.
    """
    start = shlex.join(["dokl", "train", data, *told, "--model", "model.dokl"])
    tuned = f"{start} --standardise fixed {plan.train_options}"
    if plan.method == "bank":
        return {"applied": start, "by gradients, where time or memory is short": tuned}
    return {"applied": tuned, "without settings, slower, and mostly better": start}


def network_line(
    plan: Plan, data: str, told: Sequence[str], graph: str | None, nodes: int, seed: int
) -> str:
    """The `dokl network new` that applies a plan to live nodes; without a graph, a small ring.

    told: as for `train_lines`, but for the task.
    """
    where = ["--graph", graph, "--nodes", str(nodes)] if graph else ["--nodes", "3"]
    told = ["--sample", data, *told, "--task", plan.task]
    start = shlex.join(["dokl", "network", "new", "network.toml", *where, *told])
    return f"{start} {plan.network_options} --seed {seed}"


@dataclass(frozen=True)
class Sharing:
    """Ways to share, compared on the sample; none, and why, where they could not be."""

    ways: list[Way]
    why: str = ""

    @property
    def best(self) -> Way | None:
        """The least error among those that the budget allows."""
        return min((w for w in self.ways if w.fits), key=lambda way: way.error, default=None)

    def table(self) -> list[list[str]]:
        """Way, rows between exchanges, error, bytes of a node and row, microseconds, and a mark."""
        return [
            [
                way.name,
                f"{way.every or 'never'}",
                *map(_figure, (way.error, way.bytes_sent, way.microseconds)),
                "best" if way is self.best else "" if way.fits else "over budget",
            ]
            for way in self.ways
        ]


def rules_of(told: Sequence[str]) -> VectorRules:
    """Rules for vectors, each told as "sending.key=value" or "mixing.key=value"."""
    return config.parse(VectorRules, config.changed({}, told))


def sharing(
    plan: Plan, sample: FileSample, weights: Any, budget: Budget, seed: int,
    rules: VectorRules | None = None,
) -> Sharing:  # fmt: skip
    """Try ways to share on the sample."""
    try:
        return Sharing(compare(plan, sample.X, sample.y, weights, budget, seed, rules))
    except BadInput as error:
        return Sharing([], str(error))


def sharing_lines(found: Sharing, graph: str, nodes: int, seed: int) -> list[str]:
    """How to simulate each way, in Python; gradients' vectors are a live network's, too."""
    start = [
        "from dokl import *; from dokl.learning.kernels import *",
        f"weights = graphs.metropolis(graphs.build({graph!r}, {nodes}, seed={seed}))",
    ]
    maps = list(dict.fromkeys(way.map_python for way in found.ways if way.map_python))
    lines = [way.python for way in found.ways]
    for i, made in enumerate(maps):
        start.append(f"z{i} = {made}")
        lines = [line.replace(made, f"z{i}") for line in lines]
    return start + [f"{line}  # {way.name}" for line, way in zip(lines, found.ways, strict=True)]


def _figure(value: float) -> str:
    return f"{value:.4g}" if value < 1e4 else f"{value:,.0f}"


def rows(plan: Plan) -> list[list[str]]:
    """The plan as a table: what, value, what it rests on."""
    return [[line.name, shown(line.value), line.rests_on] for line in plan.lines]


def shown(value: Any) -> str:
    """A value for people."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
