"""The same page with real agents: one is killed, goes red, and is brought back."""

import pytest
from lab import Lab, ring, samples
from pages import STATE, node, wait


@pytest.fixture
def lab(tmp_path):
    """Three agents that have learned something."""
    with Lab(tmp_path, ring("a", "b", "c")) as made:
        made.start()
        for k, name in enumerate("abc"):
            made.neighbours_up(name)
            for i in range(10):
                made.post(name, *samples(50, 10 * k + i))
        yield made


def test_a_real_agent_is_killed_and_comes_back(open_page, lab):
    page = open_page()
    assert page.locator("#graph .node").count() == 3
    for name in "abc":
        wait(page, STATE, name, "up")
    assert page.locator("#tile-up").inner_text() == "3 of 3"
    lab.kill("b")
    wait(page, STATE, "b", "down")
    assert node(page, "b").locator(".cross").is_visible()
    before = page.locator("#tile-samples").inner_text()
    lab.post("a", *samples(50, 77))
    wait(page, "([old]) => document.getElementById('tile-samples').textContent !== old", before)
    lab.start("b")
    wait(page, STATE, "b", "up")
    wait(page, "() => document.querySelectorAll('#graph .edge[data-age=down]').length === 0")
