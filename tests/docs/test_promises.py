"""The list of promises that are broken on purpose still fits the code and the tests."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import promises  # noqa: E402


@pytest.mark.parametrize("promise", promises.PROMISES, ids=lambda promise: promise.text)
def test_what_is_broken_and_what_notices_are_there(promise):
    text = (ROOT / "src" / "dokl" / promise.file).read_text("utf-8")
    changed = promises.broken(promise, text)
    ast.parse(changed)
    file, _, name = promise.test.partition("::")
    tests = ast.parse((ROOT / "tests" / file).read_text("utf-8")).body
    assert not name or name in {getattr(node, "name", None) for node in tests}
