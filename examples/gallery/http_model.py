"""A model behind HTTP, asked from another language: curl, and JavaScript where node is installed.

`dokl serve` answers rows in JSON with predictions and intervals. What curl sends is an ordinary
request, so any language can send it; where curl is absent, Python sends the same bytes.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from figure import BLUE, GREY, RED, frame, save

import dokl

HERE = Path(__file__).parent


def trained(folder):
    """A model file, and the rows that it has learned."""
    rng = np.random.default_rng(0)
    temp = rng.uniform(5, 30, 300)
    pm = 20 + 8 * np.sin(temp / 4) + rng.normal(size=300)
    table = {"temp": temp.round(2), "pm": pm.round(2)}
    model = dokl.fit_table(table, "pm", n_components=60, random_state=0)
    return model.save(folder / "pm.dokl"), table


def by_curl(address, rows):
    """By the command line of any machine."""
    command = [
        "curl",
        "--silent",
        "--fail",
        "--noproxy",
        "*",
        "-H",
        "Content-Type: application/json",
    ]
    command += ["-d", json.dumps(rows), f"{address}/predict?intervals=true"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def by_request(address, rows):
    """What curl sends, by Python."""
    given = urllib.request.Request(f"{address}/predict?intervals=true", json.dumps(rows).encode(),
                                   {"Content-Type": "application/json"})  # fmt: skip
    plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with plain.open(given, timeout=30) as answer:
        return json.load(answer)


def by_javascript(address, rows):
    """By `fetch`, as node and browsers have it."""
    command = ["node", "--input-type=module", "-", address, json.dumps(rows)]
    source = (HERE / "http_model.js").read_text("utf-8")
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def serve(path):
    """A server on a free port of this machine, once it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "dokl", "serve", str(path), "--http", address]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(1200):
        if server.poll() is not None:
            raise SystemExit(f"dokl serve ended with {server.returncode}: is dokl[live] installed?")
        try:
            if plain.open(f"http://{address}/readyz", timeout=5).status == 200:
                return server, f"http://{address}"
        except urllib.error.URLError:
            time.sleep(0.1)
    server.kill()
    raise SystemExit("dokl serve was not ready in two minutes")


def main(picture="http_model.png"):
    """Run it, draw it, and return what was found."""
    ways = {"curl": by_curl if shutil.which("curl") else by_request}
    if shutil.which("node"):
        ways["JavaScript"] = by_javascript
    rows = [{"temp": round(float(t), 2)} for t in np.linspace(5, 30, 60)]
    with tempfile.TemporaryDirectory() as folder:
        path, table = trained(Path(folder))
        server, address = serve(path)
        try:
            found = {name: ask(address, rows) for name, ask in ways.items()}
        finally:
            server.terminate()
            server.wait(30)
        own = dokl.load(path).predict(rows)
    across = [row["temp"] for row in rows]
    figure, axes = frame("predictions that came over HTTP", "temp", "pm")
    first = found["curl"]
    axes.plot(table["temp"], table["pm"], ".", color=GREY, ms=3, label="training rows")
    axes.fill_between(across, first["lower"], first["upper"], color=BLUE, alpha=0.2,
                      label="90 % interval")  # fmt: skip
    for (name, answer), style in zip(found.items(), ("-", ":"), strict=False):
        axes.plot(across, answer["predictions"], style, color=BLUE if style == "-" else RED,
                  lw=2, label=f"asked by {name}")  # fmt: skip
    save(figure, picture)
    apart = max(float(np.abs(np.array(each["predictions"]) - own).max()) for each in found.values())
    print(f"asked by {' and '.join(found)}: at most {apart:.2g} from the model itself")
    return {"ways": list(found), "apart": apart}


if __name__ == "__main__":
    main(*sys.argv[1:2])
