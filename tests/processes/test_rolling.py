"""A rolling upgrade: nodes with journals of earlier versions, one by one, under traffic."""

import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from lab import Lab, free_ports, samples, wait_for

from dokl.live.description import read
from old_journals import expected, first_request, old_network


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path, [("a", "b")], secure=False)
    made.network = read(old_network(tmp_path, free_ports(4)))
    with made:
        yield made


def said(lab, name):
    return lab.predict(name, np.array(expected(name)["asked"]))


def test_nodes_are_upgraded_one_after_the_other(lab):
    for name in ("a", "b"):
        old = expected(name)
        lab.start(name)
        (restored,) = lab.lines(name, "restored")
        assert restored["learned"] == old["samples"] == 40
        if name == "a":  # b has heard of a's vector by now
            np.testing.assert_array_equal(said(lab, name), old["predictions"])
        again = lab.post_raw(name, first_request(name), key="batch 0").json()
        assert (again["repeated"], again["samples"]) == (True, 10)  # as it was answered then
        late = lab.client(name).post("/samples", json=[{"id": "noon", "y": 0.25}]).json()
        assert (late["labelled"], late["samples"]) == (1, 41)
        lab.post(name, *samples(9, 1))  # traffic goes on, here while b is still of the old version
    lab.neighbours_up("a", "b")
    for name in ("a", "b"):
        wait_for(lambda name=name: lab.status(name)["exchange"]["combines"], "they exchange")
        status = lab.status(name)
        assert (status["samples"], status["learned"]) == (50, 50)
        assert not status["problems"]
        assert not any(status["refused"][why] for why in ("version", "size", "kind", "fingerprint"))
        lab.kill(name)
        lab.start(name)
        assert lab.status(name)["samples"] == 50  # and nothing is lost with the new format either


def test_the_old_version_would_refuse_what_a_newer_one_wrote_and_leave_it_alone(lab, tmp_path):
    path = tmp_path / "lab.state" / "a.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    words = [sys.executable, "-m", "dokl", "agent", str(lab.path), "--name", "a"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "a store of format 99, and this dokl reads format 3" in done.stdout + done.stderr
    assert path.read_bytes() == before
