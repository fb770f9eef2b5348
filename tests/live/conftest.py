"""Fixtures that several files here share: agents in this process, a store, and a fake network."""

import numpy as np
import pytest

from dokl.live.dashboard.collect import Collector
from fake_agents import NAMES, FakeLab, ring_with_chords
from fake_link import described
from memory_agents import starting
from stores import opened


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture(scope="module")
def small():
    """A learner that two-node tests share: drawing features takes its time."""
    return described().learner()


@pytest.fixture
def start(tmp_path):
    with starting(tmp_path) as started:
        yield started


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def store(path):
    store = opened(path)
    yield store
    store.close()


@pytest.fixture
def lab(tmp_path):
    with FakeLab(tmp_path, NAMES, ring_with_chords(NAMES)) as made:
        yield made


@pytest.fixture
def collector(lab):
    with Collector(lab.path, timeout=2.0) as made:
        yield made
