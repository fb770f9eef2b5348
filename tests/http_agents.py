"""An agent for tests of its HTTP interface: it takes everything at once, or does as it is told."""

import asyncio
import json
import math
from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace

import httpx
import numpy as np

from dokl.live import description
from dokl.live.http import app as http_app
from dokl.live.http import openapi
from dokl.live.inputs import Inputs

SUMS = "shift = [0.0, 0.0]\ncount = [0.0, 0.0]\ntotal = [0.0, 0.0]\nsquare = [0.0, 0.0]\n"
ROW = {"temp": 20.5, "wind": 3, "place": "roof", "y": 1.5}
BODY_BYTES = 200_000


def network(path="lab.toml", labels=(), security="insecure-loopback"):
    task = f'task = "classification"\nlabels = {json.dumps(labels)}\n' if labels else ""
    text = (
        f'[network]\nname = "lab"\nsecurity = "{security}"\n[model]\nD = 20\n'
        f'[inputs]\nnumeric = ["temp", "wind"]\nlevels = [["place", ["cellar", "roof"]]]\n{task}'
        f'{SUMS}drop = ["note"]\n[limits]\nbody_bytes = {BODY_BYTES}\n'
        '[nodes.a]\naddress = "127.0.0.1:7001"\n'
    )
    return description.parse(text, path)


class FakeAgent:
    """Takes everything at once, or does what `becomes` says."""

    def __init__(self, becomes=None, labels=(), **more):
        self.network, self.name = network(labels=labels, **more), "a"
        self.description = self.network
        self.inputs, self.arrivals, self.lines = Inputs(self.network), [], []
        self.becomes, self.keys, self.counts = becomes, {}, Counter()
        self.purged = []
        self.learner = SimpleNamespace(classes=list(labels) or None, answers=self._answers)

    def submit(self, arrival):
        future = Future()
        self.arrivals.append(arrival)
        if self.becomes is not None:
            self.becomes(future)
            return future
        repeated = self.keys.get(arrival.key) == arrival.digest and arrival.key is not None
        self.keys.setdefault(arrival.key, arrival.digest)
        counts = {"waiting": len(arrival.waiting), "labelled": len(arrival.labels)}
        total = {"repeated": repeated, "unknown_ids": [], "samples": 7}
        future.set_result({"accepted": len(arrival.X), **counts, **total})
        return future

    def not_ready(self):
        return ""

    def purge(self, older_s):
        future = Future()
        self.purged.append(older_s)
        future.set_result(3)
        return future

    def scores(self, X):
        return np.tile(X[:, :1], (1, self.network.m)) + np.arange(self.network.m)

    def predict(self, X):
        return self._answers(self.scores(X))

    def _answers(self, scores):
        labels = self.network.inputs.labels
        return [labels[-1]] * len(scores) if labels else scores[:, 0].tolist()

    def status(self, seconds=math.inf):
        return {"name": "a", "samples": 7, "error": {"recent": math.nan}}

    def log(self, event, **fields):
        self.lines.append((event, fields))


# -- asking it ---------------------------------------------------------------------------------
JSON = {"content-type": "application/json"}


def fails(error):
    return lambda future: future.set_exception(error)


async def asked(app, method, path, base="http://127.0.0.1:8000", **how):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        return checked(await client.request(method, path, **how))


def checked(answer):
    """Every answer is one that the description lists, and an error says what it is."""
    operations = openapi.document(network())["paths"].get(answer.url.path, {})
    operation = operations.get(answer.request.method.lower())
    if operation is not None:
        assert str(answer.status_code) in operation["responses"], answer.status_code
    if answer.is_error:
        assert isinstance(answer.json()["error"], str)
        assert "Traceback" not in answer.text
    if answer.status_code in (429, 503, 507):
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["retry_after"] > 0
    return answer


def ask(app, method, path, **how):
    return asyncio.run(asked(app, method, path, **how))


def send(agent, content, kind="application/json", path="/samples", headers=None, **how):
    content = content if isinstance(content, bytes | str) else json.dumps(content)
    headers = {"content-type": kind, **(headers or {})}
    return ask(http_app.app(agent, **how), "POST", path, content=content, headers=headers)
