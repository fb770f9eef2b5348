"""Responses of the HTTP face: predictions, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dokl.errors import BadInput, MissingExtra

try:
    from starlette.responses import Response
except ImportError:
    raise MissingExtra("a live network", "live") from None

if TYPE_CHECKING:
    from dokl.agents.runtime import Agent
    from dokl.arrays import Array


def predictions(agent: Agent, X: Array, scored: bool) -> dict[str, Any]:
    """Numbers or labels for X (n, d); with scores, also (n, m) of them and the labels' order."""
    if not scored:
        return {"predictions": agent.predict(X)}
    classes = agent.learner.classes
    if classes is None:
        raise BadInput("scores are for classification: here the predictions are numbers already")
    scores = agent.scores(X)
    found = {"predictions": agent.learner.answers(scores), "labels": list(classes)}
    return {**found, "scores": scores.tolist()}


def as_json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON as others read it: what is no finite number is null."""
    try:
        text = json.dumps(content, allow_nan=False, default=_plain)
    except ValueError:
        text = json.dumps(_finite(content), allow_nan=False, default=_plain)
    return Response(text, status, headers, media_type="application/json")


def as_csv(found: Mapping[str, Any]) -> Response:
    """A column `prediction`, and one or more of scores, named as `dokl predict` names them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    scores = found.get("scores")
    if scores is None:
        writer.writerow(["prediction"])
        writer.writerows([value] for value in found["predictions"])
    else:
        labels = found["labels"]
        one = len(labels) == 2
        writer.writerow(["prediction", *(["score"] if one else [f"score {k}" for k in labels])])
        pairs = zip(found["predictions"], scores, strict=True)
        writer.writerows([value, *row] for value, row in pairs)
    return Response(out.getvalue(), media_type="text/csv")


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
