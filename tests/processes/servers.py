"""Servers of others that tests start, from the system's packages."""

import os
import shutil

import pytest

PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where Debian has some is no one's PATH


def found(program):
    """The path of a program; without it the test is skipped, or fails where nothing may be."""
    path = shutil.which(program, path=PLACES)
    if path is None:
        reason = f"there is no {program} here: make test-live installs it"
        pytest.fail(reason) if os.environ.get("DOKL_NO_SKIPS") else pytest.skip(reason)
    return path
