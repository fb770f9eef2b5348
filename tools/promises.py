"""Break the code on purpose, one promise at a time, and see a test fail.

    python tools/promises.py              all of them (minutes)
    python tools/promises.py 3 7          some, by number

Each is broken in a copy of src/, never in place. A promise that can be broken without a failing
test is not guarded: the exit code is then 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Promise:
    """What is promised; `old` in `file` replaced by `new` breaks it, and `test` must notice."""

    text: str
    broken: str
    file: str
    old: str
    new: str
    test: str


PROMISES = (
    Promise(
        "a row is predicted before it is learned",
        "half of the target is in the prediction",
        "learning/experts/learn.py",
        "    prediction = Prediction(f, variance, widths)\n    return surprised",
        "    prediction = Prediction(0.5 * (f + Y), variance, widths)\n    return surprised",
        "learning/test_experts.py::test_what_is_predicted_next_is_what_is_told",
    ),
    Promise(
        "results do not depend on how rows are split into chunks",
        "maps are only learned at the end of a chunk",
        "learning/experts/learn.py",
        "return min(pending.rows_left(bank), AT_ONCE - bank.seen % AT_ONCE)",
        "return AT_ONCE - bank.seen % AT_ONCE",
        "estimators/test_auto.py::test_any_cut_gives_the_same",
    ),
    Promise(
        "intervals hold as often as they say",
        "the tracker aims at a tenth less",
        "learning/intervals.py",
        "a, q, G = 1.0 - tracker.levels,",
        "a, q, G = 1.1 - tracker.levels,",
        "learning/test_intervals.py::test_every_level_is_kept_whatever_the_tails",
    ),
    Promise(
        "a node without neighbours is an `AutoRegressor`, to the bit",
        "the node's own bank has one centre less",
        "network/node.py",
        "own = banks.start(d, m, settings)",
        "own = banks.start(d, m, replace(settings, most=settings.most - 1))",
        "network/test_network_banks.py::test_one_node_is_the_lone_learner_to_the_bit",
    ),
    Promise(
        "sums merge in any order, however often they come",
        "the entry that comes last wins",
        "network/sums/origins.py",
        "return max(one, other, key=lambda entry: entry.version)",
        "return other",
        "network/test_squares_origins.py::test_accounts_merge_in_any_order_however_often",
    ),
    Promise(
        "a message of sums adds at least `fewest_rows` rows",
        "one row is enough",
        "live/protocol/sealing.py",
        "rows - self.base >= least_new_rows(self.base, fewest)",
        "rows - self.base >= 1",
        "live/test_agents_sums.py::test_few_rows_are_not_told",
    ),
    Promise(
        "nobody speaks of another node's rows",
        "the name in a certificate is not compared",
        "live/protocol/roll.py",
        "if by not in (None, entry.origin):",
        "if False:",
        "live/test_agents_sums.py::test_a_relayed_entry_of_another_name_is_refused",
    ),
    Promise(
        "hostile bytes are refused",
        "NaN in a vector is accepted",
        "live/protocol/messages.py",
        "if not bool((np.abs(theta) <= LARGEST32).all()):",
        "if False:",
        "live/test_agents_messages.py::test_each_fault_has_its_reason",
    ),
    Promise(
        "an acknowledged row survives kill -9",
        "commits are rolled back",
        "live/store/journal.py",
        'self._db.execute("COMMIT")',
        'self._db.execute("ROLLBACK")',
        "live/test_agents_store_damage.py::test_what_was_acknowledged_survives_a_kill",
    ),
    Promise(
        "a request that is sent twice is learned once",
        "idempotency keys are forgotten",
        "live/store/journal.py",
        '(key,)).fetchone()\n        if row is None:',
        '(key,)).fetchone()\n        if True:',
        "live/test_agents_runtime.py::test_a_repeated_key_is_learned_once",
    ),
    Promise(
        "an agent that others can reach needs its token",
        "a wrong token is let in",
        "live/http/app.py",
        "        if wait == 0:\n            raise",
        "        if wait == 0:\n            return\n            raise",
        "live/test_agents_http_attempts.py::test_an_agent_limits_wrong_tokens",
    ),
    Promise(
        "a damaged model file is not loaded",
        "the checksum is not compared",
        "base/files.py",
        "intact = bool(np.array_equal(expected, _checksum(text, tensors)))",
        "intact = True",
        "base/test_files.py::test_flipped_bits_are_found",
    ),
    Promise(
        "the simulation is the paper's algorithm",
        "nodes adapt first where they should combine first",
        "simulation/diffusion.py",
        'if mixing and exchange.order == "cta":',
        'if mixing and exchange.order == "atc":',
        "simulation/test_diffusion.py::test_one_step_of_combine_then_adapt",
    ),
)  # fmt: skip


def broken(promise: Promise, text: str) -> str:
    """The text of its file, broken."""
    if text.count(promise.old) != 1:
        raise SystemExit(
            f"{promise.file}: {promise.old!r} is there {text.count(promise.old)} times"
        )
    return text.replace(promise.old, promise.new)


def is_noticed(promise: Promise) -> bool:
    """Whether the test, which passes on the code as it is, fails on the broken code."""
    with tempfile.TemporaryDirectory() as folder:
        src = Path(folder) / "src"
        shutil.copytree(ROOT / "src", src)
        if not _passes(src, promise.test):
            raise SystemExit(f"{promise.test} fails on the code as it is")
        path = src / "dokl" / promise.file
        path.write_text(broken(promise, path.read_text("utf-8")), "utf-8")
        return not _passes(src, promise.test)


def _passes(src: Path, test: str) -> bool:
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{test}"]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(src)}, capture_output=True, text=True
    )
    if done.returncode not in (0, 1):  # 1: tests failed
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode == 0


def main() -> None:
    """Break each, and say what came of it."""
    chosen = [int(word) for word in sys.argv[1:]] or range(1, len(PROMISES) + 1)
    missed = 0
    for number in chosen:
        promise = PROMISES[number - 1]
        noticed = is_noticed(promise)
        missed += not noticed
        found = "noticed" if noticed else "MISSED "
        print(f"{number:2} {found} {promise.text}: {promise.broken}", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
