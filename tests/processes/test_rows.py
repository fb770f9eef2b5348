"""Rows that travel, by processes: real links with certificates, kill -9, and every row once."""

import sqlite3

from lab import Lab, samples, wait_for
from test_crashes import after_kills, assert_predicts

from dokl.live.description import ExchangePolicy, Model
from dokl.live.jobs.networks import change_columns

MODEL = Model(method="squares", share="rows", own_components=40)
ROWS = ExchangePolicy(seal_seconds=0.5, join_seconds=1.0)
NAMES = ("a", "b", "c")


def settled(lab, names, **origins):
    for name in names:
        wait_for(lambda name=name: lab.sharing(name)["origins"] == origins, "all rows", 90)
        wait_for(lambda name=name: not lab.sharing(name)["behind"], "all learned", 90)


def stored(lab, name):
    """(origin, number) of the batches in a node's journal, and their bytes."""
    with sqlite3.connect(lab.folder / "lab.state" / f"{name}.db") as db:
        return sorted(db.execute("SELECT origin, first, sealed FROM log").fetchall())


def test_every_node_has_every_row_once_after_kills(tmp_path):
    with after_kills(tmp_path, 12, ("b", "a"), seed=0, model=MODEL, exchange=ROWS) as lab:
        settled(lab, NAMES, a=240, b=240, c=240)
        for name in NAMES:
            facts = lab.sharing(name)
            assert facts["rows"] == 720
            assert facts["kept"] == dict.fromkeys(NAMES, 240)
            assert not facts["forks"]
            assert not facts["missing"]
            assert lab.status(name)["samples"] == 240
            assert not lab.status(name)["problems"]
        assert stored(lab, "a") == stored(lab, "b") == stored(lab, "c")
        assert_predicts(lab, "a")


def test_a_newcomer_catches_up_and_a_lost_journal_is_told(tmp_path):
    with Lab(tmp_path, [("a", "b"), ("b", "c")], model=MODEL, exchange=ROWS) as lab:
        lab.start("a", "b")
        for seed, name in enumerate(("a", "b")):
            lab.post(name, *samples(40, seed))
        settled(lab, ("a", "b"), a=40, b=40, c=0)
        lab.start("c")
        settled(lab, NAMES, a=40, b=40, c=0)
        lab.kill("a")
        for path in (lab.folder / "lab.state").glob("a.db*"):
            path.unlink()
        lab.start("a")
        lab.post("a", *samples(10, 7))
        settled(lab, NAMES, a=10, b=40, c=0)
        for name in ("b", "c"):
            assert lab.sharing(name)["forks"] == {"a": 1}
            assert any("'a' has sealed different rows" in p for p in lab.status(name)["problems"])


def test_columns_change_over_a_restart_and_no_row_is_lost(tmp_path):
    """One node after the other gets the new description, is killed, and started again."""
    with Lab(tmp_path, [("a", "b"), ("b", "c")], model=MODEL, exchange=ROWS) as lab:
        lab.start()
        for seed, name in enumerate(NAMES):
            lab.post(name, *samples(40, seed))
        settled(lab, NAMES, a=40, b=40, c=40)
        change_columns(lab.path, add=["x3"], drop=["x2"])
        for name in NAMES:
            lab.kill(name)
            lab.start(name)
            rows = {"columns": ["x1", "x3", "y"], "data": [[0.5, 1.0, 0.1]] * 5}
            answer = lab.client(name).post("/samples", json=rows)
            assert answer.json()["samples"] == 45, answer.text
        settled(lab, NAMES, a=45, b=45, c=45)
        for name in NAMES:
            assert lab.lines(name, "columns changed")[-1]["dropped"] == ["x2"]
            assert lab.sharing(name)["kept"] == dict.fromkeys(NAMES, 45)
            assert not lab.sharing(name)["forks"]
        assert stored(lab, "a") == stored(lab, "b") == stored(lab, "c")
