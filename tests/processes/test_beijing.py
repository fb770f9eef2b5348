"""The command of the example with real stations: twelve agents, together and alone."""

import re
import subprocess
import sys
from pathlib import Path

COMMAND = Path(__file__).parents[2] / "examples" / "beijing" / "live.py"


def test_twelve_stations_learn_together_and_alone():
    options = ["--days", "6", "--weeks", "0", "--components", "40", "--pace", "0.2"]
    done = subprocess.run(
        [sys.executable, str(COMMAND), *options], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^(\w+) +(\d+) +[\d.]+ +[\d.]+ +([\d.]+)", done.stdout, re.M)
    assert len(lines) == 12
    assert all(int(rows) > 100 for _, rows, _ in lines)
    assert all(float(ratio) < 2.0 for _, _, ratio in lines)
