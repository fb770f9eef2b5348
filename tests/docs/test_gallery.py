"""The examples of the gallery run, find what they say, and draw; their page shows them all."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "gallery"
NAMES = ("drift", "stations", "forecast", "board", "http_model", "unlearn")


def found_by(name, tmp_path, monkeypatch):
    """What an example returns; the picture must be there."""
    monkeypatch.syspath_prepend(str(HERE))
    for module in (name, "figure"):
        sys.modules.pop(module, None)
    picture = tmp_path / f"{name}.png"
    found = importlib.import_module(name).main(picture)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert 5_000 < picture.stat().st_size < 100_000
    return found


def test_a_sensor_with_drift(tmp_path, monkeypatch):
    found = found_by("drift", tmp_path, monkeypatch)
    assert found["learns every row"] < 0.6 * found["trained once"]


def test_stations_that_share(tmp_path, monkeypatch):
    found = found_by("stations", tmp_path, monkeypatch)
    assert list(found) == ["harbour", "park", "school", "tunnel"]
    alone, together = np.sum([found[name] for name in ("harbour", "park", "school")], axis=0)
    assert together < 0.9 * alone
    assert found["tunnel"][1] < 1.3 * found["tunnel"][0]  # who is unlike loses little


def test_a_forecast_with_lags_and_intervals(tmp_path, monkeypatch):
    found = found_by("forecast", tmp_path, monkeypatch)
    assert found["error"] < 0.6 * found["newest value"]
    assert 0.75 < found["inside"] <= 1.0


def test_a_board_that_learns(tmp_path, monkeypatch):
    found = found_by("board", tmp_path, monkeypatch)
    assert found["learns"] < 0.3 * found["frozen"]
    assert found["apart"] < 1e-3  # what dokl itself says after the same rows
    assert found["bytes"] < 32_000


@pytest.mark.slow
def test_a_model_behind_http(tmp_path, monkeypatch, short_searches):
    found = found_by("http_model", tmp_path, monkeypatch)
    assert found["ways"][0] == "curl"
    assert found["apart"] < 1e-9


@pytest.mark.slow
def test_a_model_behind_http_without_curl_and_node(tmp_path, monkeypatch, short_searches):
    """The same request by Python; JavaScript is left out."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    found = found_by("http_model", tmp_path, monkeypatch)
    assert found["ways"] == ["curl"]
    assert found["apart"] < 1e-9


def test_unlearning_a_customer(tmp_path, monkeypatch):
    found = found_by("unlearn", tmp_path, monkeypatch)
    assert found["same bits"]
    assert found["change"] > 0.2


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_it(name):
    page = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    assert f"examples/gallery/{name}.py" in page
    assert f"(gallery/{name}.png)" in page
    picture = ROOT / "docs" / "gallery" / f"{name}.png"
    assert picture.stat().st_size < 60_000
    assert f"`{name}.py`" in (HERE / "README.md").read_text("utf-8")


def test_every_example_is_tested():
    scripts = {path.stem for path in HERE.glob("*.py")} - {"figure"}
    assert scripts == set(NAMES)
    assert not re.search(r"shared/|/work", "".join(p.read_text("utf-8") for p in HERE.glob("*.py")))
