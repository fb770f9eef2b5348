"""A row's way does not become longer than CONTRIBUTING says."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import row_path  # noqa: E402

PASSED = {
    "AutoRegressor.partial_fit, a row": "estimators/auto.py",
    "NetworkRegressor, a step": "estimators/network.py",
    "dokl train, a small CSV": "tables/jobs/train.py",
}


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", row_path.JOURNEYS)
def test_a_row_passes_through_no_more_files_than_said(name):
    path = row_path.passed(row_path.JOURNEYS[name]())
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (most,) = re.findall(rf"^{re.escape(name)} +(\d+) files", text, re.M)
    assert PASSED[name] in path.files
    assert path.hops >= len(path.files) - 1
    assert len(path.files) <= int(most), path.files
