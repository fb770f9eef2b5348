"""Every engine on the same problems."""

from dataclasses import replace

import pytest

from dokl.base.errors import MissingExtra
from dokl.paper.bench import engines
from dokl.paper.bench.engines import compare_engines, tasks
from dokl.simulation.streams import Example2


def small():
    return [replace(tasks()[0], stream=Example2(n=20), runs=2)]


def test_every_engine_has_a_row_and_agrees():
    rows = compare_engines(small())
    assert [row.engine for row in rows] == ["reference", "numba", "jax"]
    for row in rows:
        assert row.seconds > 0
        assert row.first_seconds > 0
        assert row.difference < 1e-4
    assert rows[0].speedup == 1
    assert rows[0].difference == 0
    assert rows[1].speedup > 1
    assert rows[1].dtype == "float32"


def test_what_is_not_installed_is_named(monkeypatch):
    def absent(name):
        if name == "jax":
            raise MissingExtra("engine 'jax'", "jax")

    monkeypatch.setattr(engines, "module_of", absent)
    row = compare_engines(small(), ["jax"])[0]
    assert row.seconds is None
    assert row.note.endswith("pip install 'dokl[jax]'")


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.name)
def test_tasks_are_what_they_say(task):
    assert f"D = {task.problem.features.D}" in task.name
    assert ("one node" in task.name) == (task.stream.K == 1)
