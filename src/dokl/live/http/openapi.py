"""The OpenAPI 3.1 description of a service's HTTP interface, with the columns of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dokl import __version__
from dokl.base.files import Json
from dokl.learning.cells.forms import words
from dokl.learning.cells.times import COUNTED
from dokl.learning.columns import MAX_LEVELS
from dokl.live.description.cells import ISO, forms_of, times_of

if TYPE_CHECKING:
    from dokl.live.description import AgreedInputs, ServiceDescription

_ERRORS = {
    400: "The body is no JSON or no text, or a header or parameter cannot be understood.",
    401: "The token is missing or wrong.",
    403: "The request comes from a web page, or names another host.",
    408: "The body did not arrive in time. Send smaller batches.",
    409: "The Idempotency-Key was used for another body. Use a new key for new samples.",
    413: "The body is too large. Send smaller batches.",
    415: "The Content-Type is none of those listed.",
    422: "A row does not fit: the error names row and column. Nothing was learned.",
    429: "Too much at once, too many wrong tokens, or too many inputs wait for labels. Send again "
    "after Retry-After.",
    500: "An error of dokl's own; the agent's log has more. Nothing was acknowledged.",
    503: "The agent is not ready yet (it starts, or compiles), is about to end, or could not store "
    "in time. Send again after Retry-After, with the same key.",
    507: "The disk is full. Nothing was learned; send again when there is room.",
}
_RETRIED = (429, 503, 507)
_ASKING = (401, 403, 429, 500, 503)
_SENDING = (400, 401, 403, 408, 413, 415, 422, 429, 500, 503)
_STORING = (*_SENDING, 409, 507)


def document(served: ServiceDescription, secure: bool = False) -> Json:
    """The description; secure: whether a token is wanted."""
    found: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": f"dokl: {served.title}",
            "version": __version__,
            "description": "Send samples to a model that learns as they come, and ask it for "
            "predictions.",
        },
        "servers": [{"url": "/"}],
        "paths": _paths(),
        "components": {
            "schemas": _schemas(served.inputs),
            "responses": {f"E{code}": _error(code) for code in _ERRORS},
        },
    }
    if secure:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


# -- paths -------------------------------------------------------------------------------------
def _paths() -> Json:
    text = {"schema": {"type": "string"}}
    metrics = {"text/plain": text}
    figures = "Everything the agent knows of itself."
    return {
        "/samples": {"post": _samples()},
        "/predict": {"post": _predict(text)},
        "/learn": {"post": _learn()},
        "/waiting": {"delete": _purge()},
        "/status": {"get": _get("status", figures, _json({"type": "object"}), _ASKING)},
        "/metrics": {"get": _get("metrics", "Figures for Prometheus.", metrics, _ASKING)},
        "/openapi.json": {"get": _get("openapi", "This.", _json({"type": "object"}), _ASKING)},
        "/healthz": {"get": _open("healthz", "Whether it answers.", "Health", ())},
        "/readyz": {
            "get": _open("readyz", "Whether it takes samples and predicts.", "Ready", (503,))
        },
    }


def _open(name: str, words: str, schema: str, errors: tuple[int, ...]) -> Json:
    """A question that wants no token."""
    return {**_get(name, words, _json(_ref(schema)), errors), "security": []}


def _get(name: str, words: str, content: Json, errors: tuple[int, ...]) -> Json:
    return {
        "operationId": name,
        "summary": words,
        "responses": _responses(words, content, errors),
    }


def _learn() -> Json:
    return _storing(
        "learn",
        "Learn rows that were predicted before, now that their targets are known.",
        "A row is `id` and target; its inputs came by `/predict?remember=true`, or by `/samples`. "
        "Ids whose inputs are gone are listed, and so are unknown ones.",
        "Label",
    )


def _samples() -> Json:
    return _storing(
        "samples",
        "Learn rows, one or many.",
        "A row with inputs and target is learned. A row with `id` and inputs waits for its label; "
        "a row with `id` and target brings it.",
        "Sample",
    )


def _storing(name: str, summary: str, description: str, row: str) -> Json:
    """A path that writes rows of this schema into the journal."""
    words = "The samples are in the journal and will not be lost."
    return {
        "operationId": name,
        "summary": summary,
        "description": description,
        "parameters": [_KEY],
        "requestBody": _body(row),
        "responses": _responses(words, _json(_ref("Stored")), _STORING),
    }


def _purge() -> Json:
    words = "How many inputs went without a label."
    return {
        "operationId": "purge",
        "summary": "Let inputs go that wait for their labels.",
        "parameters": [
            {
                "name": "hours",
                "in": "query",
                "description": "Only those that have waited so long.",
                "schema": {"type": "number", "minimum": 0},
            }
        ],
        "responses": _responses(words, _json({"type": "object"}), _STORING),
    }


def _predict(text: Json) -> Json:
    words = "A prediction for each row, in their order."
    return {
        "operationId": "predict",
        "summary": "Predict for rows, one or many; nothing is learned.",
        "parameters": [
            _switch("scores", "Of a classification, the scores behind the labels, too."),
            _switch("intervals", "Of experts (method squares, dokl serve): ends of intervals."),
            _switch("probabilities", "Of such a classifier (dokl serve), in the labels' order."),
            _switch("remember", "Rows wait under their `id` for their targets (`/learn`)."),
        ],
        "requestBody": _body("Inputs"),
        "responses": _responses(words, {**_json(_ref("Predictions")), "text/csv": text}, _STORING),
    }


def _switch(name: str, words: str) -> Json:
    kind = {"type": "boolean", "default": False}
    return {"name": name, "in": "query", "description": words, "schema": kind}


def _body(row: str) -> Json:
    lines = {"type": "string", "description": f"One {row} object a line."}
    table = {"type": "string", "description": "A header with the names of columns, then rows."}
    content = _json(_ref(f"{row}Batch"))
    content |= {"application/x-ndjson": {"schema": lines}, "text/csv": {"schema": table}}
    return {"required": True, "content": content}


def _responses(words: str, content: Json, errors: tuple[int, ...]) -> Json:
    wrong = {str(code): {"$ref": f"#/components/responses/E{code}"} for code in sorted(errors)}
    return {"200": {"description": words, "content": content}, **wrong}


def _error(code: int) -> Json:
    found: Json = {"description": _ERRORS[code], "content": _json(_ref("Error"))}
    if code in _RETRIED:
        seconds = {"type": "integer", "minimum": 1}
        words = "Seconds to wait before sending again."
        found["headers"] = {"Retry-After": {"description": words, "schema": seconds}}
    return found


# -- schemas -----------------------------------------------------------------------------------
def _schemas(agreed: AgreedInputs) -> Json:
    inputs: Json = {name: {"type": ["number", "null"]} for name in agreed.numeric}
    forms = dict.fromkeys(times_of(agreed.times), ISO) | forms_of(agreed.forms)
    for column, form in forms.items():
        more = "; or seconds since 1970, UTC" if form.kind == "time" else "; or a number"
        about = f"As text: {words(form)}{'' if form.order in COUNTED else more}."
        inputs[column] = {"type": ["string", "number", "null"], "description": about}
    inputs.pop(agreed.target, None)
    for name, levels in agreed.levels:
        inputs[name] = {"type": ["string", "null"], "examples": list(levels[:MAX_LEVELS])}
    inputs |= {name: {"description": "Not used."} for name in agreed.drop}
    target: Json = {"enum": list(agreed.labels)} if agreed.classifying else {"type": "number"}
    name = {"type": ["string", "integer"], "description": "Joins inputs and a later label."}
    joined = {} if "id" in agreed.drop else {"id": name}
    sample = {**inputs, agreed.target: target, **joined}
    label = {"type": "object", "properties": {"id": name, agreed.target: target}}
    return {
        "Inputs": {"type": "object", "properties": {**inputs, **joined}},
        "Label": {**label, "required": ["id", agreed.target]},
        "LabelBatch": _batch("Label"),
        "Sample": {"type": "object", "properties": sample, "additionalProperties": False},
        "InputsBatch": _batch("Inputs"),
        "SampleBatch": _batch("Sample"),
        "Stored": _STORED,
        "Predictions": _predictions(target),
        "Error": _ERROR,
        "Health": _record({"ok": {"type": "boolean"}}),
        "Ready": _record({"ready": {"type": "boolean"}}),
    }


def _batch(row: str) -> Json:
    rows = {"type": "array", "items": _ref(row)}
    named = {"type": "array", "items": {"type": "string"}}
    values = {"type": "array", "items": {"type": "array"}}
    table = _record({"columns": named, "data": values})
    return {"anyOf": [_ref(row), rows, _record({"rows": rows}), table]}


def _predictions(target: Json) -> Json:
    numbers = {"type": "array", "items": {"type": "number"}}
    found = _record({"predictions": {"type": "array", "items": target}})
    order = "The order of the scores. Of two labels there is one score, positive for the second."
    found["properties"]["labels"] = {"type": "array", "description": order}
    for name in ("scores", "probabilities"):
        found["properties"][name] = {"type": "array", "items": numbers}
    found["properties"] |= {"lower": numbers, "upper": numbers, "coverage": {"type": "number"}}
    return found


def _record(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _count(words: str) -> Json:
    return {"type": "integer", "minimum": 0, "description": words}


_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A text of your choice, the same when a request is sent again: what was learned "
    "is not learned twice.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_ERROR = _record({"error": {"type": "string"}})
_ERROR["properties"]["retry_after"] = {"type": "number", "description": "Seconds."}
_STORED = _record(
    {
        "accepted": _count("Complete rows of this request."),
        "waiting": _count("Rows that now wait for their labels."),
        "labelled": _count("Rows that waited and got their labels."),
        "unknown_ids": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Labels that came for no waiting row; at most the first 100.",
        },
        "repeated": {
            "type": "boolean",
            "description": "The key was known: this is the first answer again.",
        },
        "samples": _count("Samples acknowledged in all."),
    }
)
_STORED["properties"]["expired_ids"] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Labels whose inputs waited too long and have gone; at most the first 100.",
}
