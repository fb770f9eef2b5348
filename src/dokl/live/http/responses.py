"""Responses of the HTTP interface: predictions, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from dokl.base.errors import BadInput, MissingExtra
from dokl.live.http.bounds import Refusal

try:
    from starlette.responses import Response
except ImportError:
    raise MissingExtra("a live network", "live") from None

if TYPE_CHECKING:
    from dokl.base.arrays import Array
    from dokl.live.agent.service import Service

# Switches of a question besides predictions.
FURTHER = ("scores", "intervals", "probabilities")


def predictions(service: Service, X: Array, wanted: Collection[str] = ()) -> dict[str, Any]:
    """Numbers or labels for X (n, d), and what is wanted besides, of FURTHER: scores (n, m) with
    the labels' order; of the rest the service says what it knows.
    """
    found: dict[str, Any] = {}
    if "scores" in wanted:
        classes = service.learner.classes
        if classes is None:
            raise BadInput(
                "scores are for classification: here the predictions are numbers already"
            )
        scores = service.scores(X)
        found = {"predictions": service.learner.answers(scores), "labels": list(classes)}
        found["scores"] = scores.tolist()
    else:
        found["predictions"] = service.predict(X)
    more = [name for name in wanted if name != "scores"]
    return {**found, **service.further(X, more)} if more else found


def as_json(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """JSON as others read it: what is no finite number is null."""
    try:
        text = json.dumps(content, allow_nan=False, default=_plain)
    except ValueError:
        text = json.dumps(_finite(content), allow_nan=False, default=_plain)
    return Response(text, status, headers, media_type="application/json")


def as_refusal(refusal: Refusal) -> Response:
    """An error, and after how many seconds a second try makes sense."""
    body: dict[str, object] = {"error": refusal.text}
    if refusal.retry_after is not None:
        body["retry_after"] = refusal.retry_after
    return as_json(body, refusal.status, refusal.headers)


def as_csv(found: Mapping[str, Any]) -> Response:
    """A column `prediction`, and those of what was wanted besides, as `dokl predict` names them."""
    columns = {"prediction": found["predictions"]}
    labels = found.get("labels", ())
    if "scores" in found:
        names = ["score"] if len(labels) == 2 else [f"score {label}" for label in labels]
        columns |= dict(zip(names, zip(*found["scores"], strict=True), strict=True))
    if "probabilities" in found:
        names = [f"probability {label}" for label in labels]
        columns |= dict(zip(names, zip(*found["probabilities"], strict=True), strict=True))
    columns |= {end: found[end] for end in ("lower", "upper", "std") if end in found}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return Response(out.getvalue(), media_type="text/csv")


def _plain(value: object) -> object:
    """NumPy's numbers as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _finite(content: object) -> object:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
