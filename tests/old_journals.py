"""Journals and messages as earlier versions wrote them: tests/golden/journals, never written again.

`a.db` is of format 1, from an orderly end; `b.db` and its log are of format 2, after kill -9. Both
learned 40 rows in four requests with keys, and have one input that waits for its label. `a.json`
and `b.json` have what their agents then said, and the rows of the first request. `hello.bin` and
`theta.bin` are messages of both versions.
"""

import json
import re
import shutil
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden" / "journals"


def expected(name):
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


def first_request(name):
    """Its body, to the byte: an idempotency key belongs to it."""
    return json.dumps(expected(name)["body"], separators=(",", ":")).encode()


def old_network(folder, ports):
    """The description, at free ports, and the journals beside it; its path."""
    text, new = (GOLDEN / "lab.toml").read_text("utf-8"), iter(ports)
    path = folder / "lab.toml"
    path.write_text(re.sub(r"127\.0\.0\.1:\d+", lambda _: f"127.0.0.1:{next(new)}", text))
    state = folder / "lab.state"
    state.mkdir(mode=0o700)
    for each in GOLDEN.glob("*.db*"):
        shutil.copyfile(each, state / each.name)
        (state / each.name).chmod(0o600)
    return path
