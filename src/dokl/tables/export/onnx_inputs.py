"""The part of an ONNX graph that makes inputs of raw columns. See `onnx`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dokl.learning.columns.times import DAY
from dokl.tables.export.formula import RawInputs

if TYPE_CHECKING:
    from dokl.tables.export.onnx import Graph

RESULTS = ("prediction", "lower", "upper", "std", "probabilities", "scores")


def inputs(graph: Graph, raw: RawInputs) -> str:
    """x: (rows, d). Entries in the order of the columns, x as the model has it."""
    names = {
        name: graph.entry(_entry_name(name), 1, text=name in raw.levels, exact=name in raw.times)
        for name in raw.columns
    }
    numbers = [names[name] for name in raw.numeric]
    numbers += [_days(graph, names[name], raw.times[name].start) for name in raw.since]
    parts = [_scaled(graph, raw, numbers)] if numbers else []
    for name, times in raw.times.items():
        parts += [_circle(graph, names[name], seconds) for seconds in times.rounds]
    for name, levels in raw.levels.items():
        if levels:
            parts.append(_one_hot(graph, names[name], levels))
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=1)


def _entry_name(name: str) -> str:
    return f"column {name}" if name in RESULTS or name.startswith("dokl.") else name


def _scaled(graph: Graph, raw: RawInputs, columns: list[str]) -> str:
    together = columns[0] if len(columns) == 1 else graph.op("Concat", *columns, axis=1)
    scaled = graph.op("Sub", together, graph.constant(raw.centre))
    scaled = graph.op("Mul", scaled, graph.constant(raw.factor))
    missing = graph.op("IsNaN", together)
    return graph.op("Where", missing, graph.constant(raw.fill), scaled)


def _days(graph: Graph, seconds: str, start: float) -> str:
    """Days since the start; counted in double, since seconds have ten digits."""
    since = graph.op("Sub", seconds, graph.constant(start, np.float64))
    days = graph.op("Div", since, graph.constant(DAY, np.float64))
    return graph.op("Cast", days, to=graph.type_of(graph.kind))


def _circle(graph: Graph, seconds: str, around: float) -> str:
    """(rows, 2): cos and sin of the place on a circle of so many seconds; 0 where it is missing."""
    turns = graph.op("Div", seconds, graph.constant(around, np.float64))
    turns = graph.op("Sub", turns, graph.op("Floor", turns))
    angles = graph.op("Mul", turns, graph.constant(2.0 * math.pi, np.float64))
    ahead = graph.op("Add", angles, graph.constant([[0.5 * math.pi, 0.0]], np.float64))
    both = graph.op("Where", graph.op("IsNaN", ahead), graph.constant(0.0, np.float64),
                    graph.op("Sin", ahead))  # fmt: skip
    return graph.op("Cast", both, to=graph.type_of(graph.kind))


def _one_hot(graph: Graph, text: str, levels: tuple[str, ...]) -> str:
    hot = graph.op(
        "OneHotEncoder", text, domain="ai.onnx.ml", cats_strings=list(levels), zeros=1
    )  # (rows, 1, levels), of float32
    flat = graph.op("Reshape", hot, graph.constant([-1, len(levels)], np.int64))
    return graph.op("Cast", flat, to=graph.type_of(graph.kind))
