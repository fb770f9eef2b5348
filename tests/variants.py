"""Variants of a test of which a few are enough every time."""

from typing import Any

import pytest


def first(*values: Any, always: int = 1) -> list[Any]:
    """Values for `parametrize`, tuples where it has several names: the first always run, the others
    with the tests marked slow.
    """
    later = (value if isinstance(value, tuple) else (value,) for value in values[always:])
    return [*values[:always], *(pytest.param(*each, marks=pytest.mark.slow) for each in later)]
