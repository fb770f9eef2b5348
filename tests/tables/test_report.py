"""Tables and pictures."""

import numpy as np
import pytest

from dokl.base.errors import BadFile, BadInput
from dokl.network.graphs import ring
from dokl.simulation.diffusion import Trace
from dokl.tables import report


def test_tables_show_every_cell_and_no_colour_when_piped(capsys):
    report.table("a [title]", ["", "value"], [["first", "1"], ["second", "2.5"]])
    text = capsys.readouterr().out
    assert "a [title]" in text
    assert all(word in text for word in ("first", "second", "2.5", "value"))
    assert "\x1b" not in text


def test_facts_show_names_and_values(capsys):
    report.facts(
        "m.dokl", {"rows": 1234567, "kernel": {"name": "gaussian", "sigma": 2.0}, "ok": True}
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m.dokl"
    assert lines[1].split() == ["rows", "1,234,567"]
    assert "gaussian, sigma 2" in lines[2]
    assert lines[3].split() == ["ok", "True"]


def test_long_facts_are_not_cut_when_piped(capsys):
    report.facts("x", {"names": ", ".join(f"column {i}" for i in range(50))})
    assert "column 49" in capsys.readouterr().out.splitlines()[1]


def test_smoothing_keeps_a_constant_and_the_steep_beginning():
    assert np.allclose(report.smooth(np.full(100, 3.0), 10), 3.0)
    falling = 1.0 / np.arange(1, 101)
    assert report.smooth(falling, 50)[0] == 1.0


def test_first_below_counts_from_one():
    assert report.first_below(np.array([3.0, 1.0, 2.0]), 1.5) == 2
    assert report.first_below(np.array([3.0]), 1.0) is None


def trace():
    curves = {"mse": np.abs(np.random.default_rng(0).normal(size=(3, 50))) + 0.1}
    at = {"mse": np.arange(1, 51)}
    made = {"states": [], "engine": "numba", "dtype": "float32", "seed": 0, "seconds": 1.0}
    return Trace(curves, at, runs=3, steps=50, **made)


@pytest.mark.parametrize("name", ["p.png", "p.svg", "p.pdf", "p"])
def test_pictures_are_written_in_the_format_of_their_name(tmp_path, name):
    plt = report.pyplot()
    figure, axes = plt.subplots()
    report.draw_curves(axes, {"one": trace(), "two": trace()})
    path = report.save_picture(figure, tmp_path / name)
    starts = {".svg": b"<?xml", ".pdf": b"%PDF"}.get(path.suffix, b"\x89PNG")
    assert path.read_bytes().startswith(starts)


def test_pictures_that_cannot_be_written(tmp_path):
    figure, axes = report.pyplot().subplots()
    report.draw_graph(axes, ring(5))
    with pytest.raises(BadInput, match="png, svg, pdf"):
        report.save_picture(figure, tmp_path / "p.gif")
    with pytest.raises(BadFile, match="no folder"):
        report.save_picture(figure, tmp_path / "none" / "p.png")
    report.save_picture(figure, tmp_path / "p.png")
