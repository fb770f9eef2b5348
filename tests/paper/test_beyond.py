"""`dokl reproduce beyond`: all methods on the same few rows, and data sets without settings."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dokl import NetworkClassifier
from dokl.paper.datasets import Dataset, waveform
from dokl.paper.reproduce import beyond, findings, settings
from dokl.paper.reproduce.parts import choose_parts
from dokl.paper.reproduce.runner import write
from dokl.paper.reproduce.settings import ReproduceOptions


@pytest.fixture
def options(tmp_path):
    return ReproduceOptions(tmp_path, seed=3, runs=1, show_progress=False)


@pytest.mark.slow
def test_every_method_is_beside_the_others_with_its_bytes(monkeypatch, options):
    small = replace(beyond.SETTINGS["example2"], n=120, D=60, tail=1e-5)
    monkeypatch.setitem(beyond.SETTINGS, "example2", small)
    result = beyond.reproduce("example2", options)
    after, sent = "after 120 rows of each node", "sent by a node"
    error = {key: findings.value(result, after, words) for key, words in beyond.WORDS.items()}
    assert error["sums"] < error["vectors"] - 3
    assert error["sums"] < error["alone"]
    assert all(np.isfinite(value) for value in error.values())
    kilobytes = {key: findings.value(result, sent, words) for key, words in beyond.WORDS.items()
                 if key != "alone"}  # fmt: skip
    assert kilobytes["coke"] <= kilobytes["dkla"] < kilobytes["rls"]
    assert kilobytes["gp"] > 90 * kilobytes["sums"]  # ten rounds with every row, not one in ten
    assert "-16.81 dB together" in result.notes[0]
    again = beyond.reproduce("example2", options)  # from the stored realizations
    assert again.rows == result.rows


@pytest.mark.usefixtures("short_searches")
def test_a_data_set_in_one_pass(monkeypatch, options):
    X, labels = waveform(1700, seed=1)
    data = Dataset("waveform", (X - X.mean(0)) / X.std(0), np.where(labels == 1, 1.0, -1.0))
    few = replace(settings.classification("waveform"), sizes=(1300,))
    monkeypatch.setattr(ReproduceOptions, "dataset", lambda self, name: data)
    monkeypatch.setattr(beyond, "classification", lambda name: few)
    small = partial(NetworkClassifier, n_components=60)
    monkeypatch.setattr(beyond, "NetworkClassifier", small)
    result = beyond.reproduce("waveform", options)
    row = findings.row(result, "N = 1300", "NetworkClassifier")
    assert row.paper == 16.26
    # 65 rows of each node, of which 50 are needed before any sums are sent.
    assert 5 < row.ours < row.paper
    assert findings.value(result, "N = 1300, sent by a node", "NetworkClassifier") > 1
    sums = findings.row(result, "N = 1300", "sums that travel")
    assert sums.ours < 14
    (line,) = findings._data(result)
    assert line.startswith("Beyond the paper, Waveform, 20 nodes (N = 1300): ")
    assert "the paper's scheme, 5 passes, by the prototype 10.6 %, 9880 kB a node" in line
    assert [path.suffix for path in write(options.out)] == [".html"]


def test_the_parts_are_found():
    names = [part.name for part in choose_parts("beyond")]
    assert names == [*(f"beyond-example{i}" for i in range(1, 5)), "beyond-adult", "beyond-banana",
                     "beyond-waveform"]  # fmt: skip
