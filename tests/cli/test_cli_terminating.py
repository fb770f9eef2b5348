"""SIGTERM ends long commands as Ctrl-C does: at once, and what there is by then is kept."""

import os
import signal

import numpy as np
import pytest

from commands import dokl, write_csv
from dokl.tables.export import fewer_centres
from dokl.tables.jobs import planning, predict


def terminated(*_, **__):
    """What takes long, and is sent SIGTERM meanwhile."""
    os.kill(os.getpid(), signal.SIGTERM)
    pytest.fail("it went on")  # the handler runs before this


@pytest.fixture
def csv(tmp_path):
    columns = np.random.default_rng(0).normal(size=(3, 120)).round(3)
    return write_csv(tmp_path / "r.csv", dict(zip("aby", columns, strict=True)))


def test_plan_and_export_end_with_143(csv, tmp_path, monkeypatch, short_searches):
    dokl("train", csv, "--target", "y", "--components", 20, "-q", "--model", tmp_path / "m.dokl")
    monkeypatch.setattr(planning, "read_sample", terminated)
    assert dokl("plan", csv, "--target", "y", code=143).stderr.strip() == "dokl: terminated"
    monkeypatch.setattr(fewer_centres, "fewer_centres", terminated)
    words = ("export", tmp_path / "m.dokl", tmp_path / "m.c", "--centres", 5)
    assert dokl(*words, code=143).stderr.strip() == "dokl: terminated"
    assert not (tmp_path / "m.c").exists()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_predictions_made_by_then_are_there(csv, tmp_path, monkeypatch, short_searches):
    model, calls, answers_of = tmp_path / "m.dokl", [], predict.answers_of
    dokl("train", csv, "--target", "y", "--components", 20, "-q", "--model", model)

    def twice(*given, **how):
        calls.append(1)
        return answers_of(*given, **how) if len(calls) < 3 else terminated()

    monkeypatch.setattr(predict, "answers_of", twice)
    said = dokl("predict", model, csv, "--chunk", 40, code=143)
    assert said.stdout.count("\n") == 81
