"""The page of `dokl watch --web` in a real Chromium, with fake agents that die and come back."""

import re
from urllib.parse import urlsplit

import pytest
from pages import STATE, Watch, fill, node, wait

from fake_agents import FakeLab, ring_with_chords

NAMES = tuple(f"station-{i + 1:02d}" for i in range(12))
EVIL = "<img src=x onerror=alert(1)><script>document.title = 'owned'</script>"


@pytest.fixture
def lab(tmp_path):
    """A running network: path, names, kill(name), revive(name). Fake agents stand in for real."""
    with FakeLab(tmp_path, NAMES, ring_with_chords(NAMES), learned=5000) as made:
        yield made


def test_all_nodes_are_there_and_values_change_by_themselves(open_page, lab):
    page = open_page()
    assert page.title() == "lab · dokl watch"
    assert page.locator("#graph .node").count() == len(lab.names)
    assert page.locator("#graph .edge").count() == len(lab.links)
    assert set(page.locator("#rows button.name").all_inner_texts()) == set(lab.names)
    assert page.locator("#graph .label").count() == len(lab.names)
    wait(page, "() => document.getElementById('tile-rate').textContent !== '\\u2013'")
    before = page.locator("#tile-samples").inner_text()
    wait(page, "([old]) => document.getElementById('tile-samples').textContent !== old", before)
    wait(page, "() => document.querySelectorAll('#curves .line').length > 12")
    wait(page, "() => document.querySelectorAll('#disagreement .line').length > 12")
    assert page.locator("body").get_attribute("data-connection") == "live"


def test_a_killed_agent_goes_red_and_recovers(open_page, lab):
    page, name = open_page(), lab.names[4]
    wait(page, STATE, name, "up")
    lab.kill(name)
    wait(page, STATE, name, "down")
    page.wait_for_timeout(600)  # the colour fades over
    red, green, blue = map(int, re.findall(r"\d+", fill(page, name)))
    assert red > 150
    assert red > 2 * max(green, blue)
    assert node(page, name).locator(".cross").is_visible()  # not by colour alone
    ends = sum(name in link for link in lab.links)
    assert page.locator('#graph .edge[data-age="down"]').count() == ends
    assert f"{name} is down" in page.locator("#alert-list").inner_text()
    assert page.locator("#tile-up").inner_text() == "11 of 12"
    lab.revive(name)
    wait(page, STATE, name, "up")
    page.wait_for_timeout(600)
    assert fill(page, name) != f"rgb({red}, {green}, {blue})"
    assert not node(page, name).locator(".cross").is_visible()


def test_a_lost_connection_is_shown_and_mended(open_page, watch, lab):
    page = open_page()
    wait(page, "() => document.body.dataset.connection === 'live'")
    port = urlsplit(watch.address).port
    watch.stop()
    wait(page, "() => document.body.dataset.connection === 'lost'")
    assert "connection lost" in page.locator("#connection").inner_text()
    again = Watch(lab.path, port)
    try:
        wait(page, "() => document.body.dataset.connection === 'live'")
        assert all("ERR_" in text for text in page.trouble)  # the browser tells of the outage
        page.trouble.clear()
    finally:
        again.stop()
        page.context.close()
        page.trouble.clear()


def test_text_of_agents_is_text(open_page, lab):
    lab.agents[lab.names[0]].changes = {"problems": [EVIL], "assumptions": [EVIL]}
    page = open_page()
    wait(page, "([text]) => document.getElementById('alerts').textContent.includes(text)", EVIL)
    assert EVIL in page.locator(f'tr[data-name="{lab.names[0]}"]').inner_text()
    assert page.locator("img, main script").count() == 0
    assert page.title() == "lab · dokl watch"


def test_choosing_a_node_shows_its_curves(open_page, lab):
    page, name = open_page(), lab.names[2]
    wait(page, "() => document.querySelectorAll('#curves .line').length > 12")
    page.locator(f'tr[data-name="{name}"] button').click()
    assert page.locator("#curves .line.chosen[data-name]").get_attribute("data-name") == name
    assert node(page, name).get_attribute("data-chosen") == "true"
    node(page, name).locator(".dot").click()
    assert page.locator("#curves .line.chosen").count() == 0


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (800, "dark"), (360, "dark")])
def test_a_chosen_node_shows_predicted_and_measured(open_page, lab, width, scheme):
    page, name = open_page(width=width, color_scheme=scheme), lab.names[2]
    assert "choose a node" in page.locator("#newest-sub").inner_text()
    page.locator(f'tr[data-name="{name}"] button').click()
    wait(page, "() => document.querySelectorAll('#newest .measured').length === 100")
    assert page.locator("#newest .band").count() == 1
    assert page.locator('#newest .measured[data-inside="false"]').count() == 10
    told = f"{name}: power of the last 100 rows; 90 of 100 within the interval"
    assert page.locator("#newest-sub").inner_text() == told
    first = page.locator("#newest title").first.text_content()
    wait(page, "([old]) => document.querySelector('#newest title').textContent !== old", first)
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= seen
    boxes = "all => all.every((it) => it.getBoundingClientRect().width > 0)"
    assert page.locator("#newest-legend svg").evaluate_all(boxes)
    page.locator(f'tr[data-name="{name}"] button').click()
    wait(page, "() => document.querySelectorAll('#newest .measured').length === 0")


def test_a_network_of_labels_has_no_rows_to_draw(open_page, lab):
    lab.agents[lab.names[0]].changes = {"newest": None}
    page = open_page()
    page.locator(f'tr[data-name="{lab.names[0]}"] button').click()
    wait(page, "() => document.getElementById('newest-sub').textContent.includes('labels')")
    assert page.locator("#newest .measured").count() == 0


@pytest.mark.parametrize("width", [1400, 900, 800, 720])
def test_names_stay_whole_and_labels_cover_no_node(open_page, lab, width):
    lab.kill(lab.names[8])
    page = open_page(width=width)
    wait(page, STATE, lab.names[8], "down")
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= seen
    names = page.locator("#rows button.name")
    broken = (
        "all => all.filter((it) => it.clientHeight > 26 || it.scrollWidth > it.clientWidth).length"
    )
    assert names.evaluate_all(broken) == 0
    assert names.first.inner_text() == lab.names[8]  # what is down comes first
    assert page.evaluate(COVERED) == 0
    assert page.locator("#alert-list li").count() == 1  # one fault, told once
    page.locator(f'tr[data-name="{lab.names[2]}"] td.number').first.click()  # all of the row
    assert node(page, lab.names[2]).get_attribute("data-chosen") == "true"


COVERED = """() => {
  const found = (which) => [...document.querySelectorAll(which)];
  const boxes = (which) => found(which).map((it) => it.getBoundingClientRect());
  const dots = boxes("#graph .dot");
  return boxes("#graph .label").filter((a) => dots.some((b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)).length;
}"""


def test_a_phone_needs_no_horizontal_scroll(open_page, lab):
    lab.agents[lab.names[0]].changes = {"problems": ["x" * 250, EVIL]}
    page = open_page(width=375, height=700)
    wait(page, "() => document.getElementById('alerts').textContent.includes('xxx')")
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= seen == 375
    cells = page.locator("#rows td.number")
    beyond = cells.evaluate_all("all => all.filter((it) => it.scrollWidth > it.clientWidth).length")
    assert beyond == 0


def test_in_the_dark_colours_differ(open_page):
    seen = {}
    for scheme in ("light", "dark"):
        page = open_page(color_scheme=scheme)
        style = "getComputedStyle(document.body)"
        seen[scheme] = page.evaluate(f"[{style}.backgroundColor, {style}.color]")
    assert lightness(seen["light"][0]) > 200 > 60 > lightness(seen["dark"][0])
    assert lightness(seen["light"][1]) < 60 < 200 < lightness(seen["dark"][1])


def lightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_labels_do_not_cover_each_other(open_page):
    page = open_page()
    boxes = page.locator("#graph .label").evaluate_all(
        "all => all.map((it) => it.getBoundingClientRect())"
        ".map((box) => [box.x, box.y, box.right, box.bottom])"
    )
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            wide, tall = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            assert wide <= 1 or tall <= 1


def test_a_hundred_nodes_stay_readable(browser, tmp_path):
    names = [f"n{i}" for i in range(100)]
    with FakeLab(tmp_path, names, ring_with_chords(names, 17), learned=5000) as lab:
        lab.kill("n7")
        watch = Watch(lab.path)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(watch.address)
            wait(page, STATE, "n7", "down")
            wait(page, "() => document.querySelectorAll('#curves .line').length > 1")
            assert page.locator("#graph .node").count() == 100
            assert page.locator("#graph .label").all_text_contents() == ["n7"]
            assert page.locator("#curves .line").count() <= 42 + 3  # with the legend's
            page.close()
        finally:
            watch.stop()
