"""The example with real stations: its extract, its study, and what the pages say of it."""

import csv
import importlib
import json
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from dokl.learning.columns import Preprocessor
from dokl.paper.datasets.parse import STATIONS
from dokl.tables.readers import open_table

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "beijing"
sys.path.insert(0, str(HERE))
data = importlib.import_module("beijing_data")
runs = importlib.import_module("beijing_runs")
study = importlib.import_module("study")
extract = importlib.import_module("extract")
live = importlib.import_module("live")


@pytest.fixture(scope="module")
def stations():
    return data.from_extract()


@pytest.fixture(scope="module")
def ready(stations):
    """The study as it is meant, with three of its ten seeds."""
    return runs.Study(stations, data.read_links(), runs.Settings(seeds=3))


@pytest.fixture(scope="module")
def found():
    return json.loads((HERE / "results.json").read_text("utf-8"))


def early(ready, **case):
    return ready.errors(runs.Case(**case)).early


# --- the extract ------------------------------------------------------------------------------


def test_links_are_those_of_the_map_and_connect_all():
    graph = data.read_links()
    assert nx.is_connected(graph)
    assert set(graph) == set(STATIONS)
    assert set(map(frozenset, graph.edges)) == set(map(frozenset, data.links(STATIONS).edges))
    assert min(dict(graph.degree).values()) >= data.NEAREST


def test_distances_are_known_ones():
    assert data.distance((0, 0), (0, 90)) == pytest.approx(data.EARTH * np.pi / 2)
    assert data.distance(STATIONS["Changping"], STATIONS["Dingling"]) == pytest.approx(8.4, abs=0.1)


def test_a_graph_that_falls_apart_is_tied_together():
    clusters = {f"{where}{i}": (where * 10.0, i / 100) for where in (0, 1) for i in range(5)}
    assert nx.is_connected(data.links(clusters))


def test_extract_has_an_agent_file_for_every_node(stations):
    assert stations.names == tuple(sorted(STATIONS))
    for name in stations.names:
        with open_table(HERE / "stations" / f"{name}.csv") as reader:
            chunks = list(reader)
        assert chunks[0].names == ("id", *data.NUMERIC, data.WIND, data.TARGET)
        rows = sum(chunk.n for chunk in chunks)
        assert 0.85 * data.QUARTER < rows <= data.QUARTER
        assert not any(np.isnan(chunk.columns[data.TARGET]).any() for chunk in chunks)
    assert stations.target.shape == (data.QUARTER, 12)
    assert abs(np.nanmean(stations.target[: data.MONTH])) < 0.1
    assert np.nanmin(stations.pm25) > 1


def test_hours_have_names():
    assert [data.id_of(h) for h in (0, data.MONTH, data.QUARTER - 1)] == [
        "03-01T00", "04-01T00", "05-31T23",
    ]  # fmt: skip
    assert all(data.hour_of(data.id_of(hour)) == hour for hour in range(0, data.QUARTER, 17))


def test_sample_agrees_on_the_scaling_of_the_study(stations):
    with open_table(HERE / "sample.csv") as reader:
        (sample,) = list(reader)
    agreed = Preprocessor.plan(sample.columns, [data.TARGET, "station"], standardise="fixed")
    assert len(agreed.levels[data.WIND]) == 16
    hour = {name: stations.columns[name][1000] for name in (*data.NUMERIC, data.WIND)}
    hour[data.TARGET] = stations.target[1000]
    np.testing.assert_allclose(agreed.transform(hour), stations.inputs()[1000], atol=1e-5)
    with (HERE / "sample.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    assert len(rows) == np.count_nonzero(~np.isnan(stations.target[: data.MONTH : data.EVERY]))


def test_extract_writes_itself_again_to_the_byte(stations, tmp_path):
    extract.write(stations, tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.csv"))
    assert made == sorted(path.relative_to(HERE) for path in HERE.rglob("*.csv"))
    assert [
        path for path in made if (tmp_path / path).read_bytes() != (HERE / path).read_bytes()
    ] == []


# --- the study --------------------------------------------------------------------------------


def test_with_few_staggered_labels_it_is_better_together(ready):
    alone = early(ready, share=0.1)
    together = early(ready, share=0.1, together=True)
    assert (together < 0.95 * alone).all()
    with_intercept = early(ready, share=0.1, together=True, intercept=0.3)
    assert (with_intercept < 0.93 * alone).all()


def test_with_all_labels_sharing_everything_does_not_pay(ready):
    alone, together = early(ready), early(ready, together=True)
    assert (together > 1.05 * alone).all()
    private = early(ready, together=True, intercept=1.0)
    assert (private < alone).all()
    assert (early(ready, together=True, every=24) < alone).all()


def test_with_labels_at_the_same_hours_there_is_little_to_share(ready):
    alone = early(ready, share=0.1, staggered=False)
    together = early(ready, share=0.1, staggered=False, together=True)
    assert (np.abs(together / alone - 1) < 0.05).all()


def test_the_same_seed_gives_the_same_numbers(stations, ready):
    again = runs.Study(stations, data.read_links(), runs.Settings(seeds=1))
    case = {"share": 0.1, "together": True}
    assert early(again, **case)[0] == early(ready, **case)[0]


def test_the_full_study_began_as_the_extract_does(ready, found):
    """A seed labels the same hours in both; only the digits of the target differ."""
    stored = runs.from_stored(found["cases"])
    for together in (False, True):
        case = runs.Case(share=0.1, together=together)
        np.testing.assert_allclose(ready.errors(case).early, stored[case].early[:3], rtol=0.002)


def test_an_hour_without_label_teaches_nothing(stations, monkeypatch):
    """Predictions at labelled hours are the same as when other hours are not there at all."""
    small = runs.Settings(D=50, seeds=1)
    case = runs.Case(share=0.1, together=True, intercept=0.3)
    study_ = runs.Study(stations, data.read_links(), small)
    there = study_.labelled(case, 0) & ~np.isnan(stations.target)
    predicted = study_._squares(case, 0)
    monkeypatch.setattr(runs, "PREDICT_ONLY", 0.0)
    absent = study_._squares(case, 0)
    assert np.isnan(absent[~there]).all()
    np.testing.assert_array_equal(predicted[there], absent[there])


def test_naive_guesses_by_hand(stations):
    one = runs.Study(stations, data.read_links(), runs.Settings(seeds=1))
    y = stations.target
    last, errors = np.zeros(12), []
    for hour in y:
        errors.append((hour - last) ** 2)
        last = np.where(np.isnan(hour), last, hour)
    expected = np.nanmean(errors[data.MONTH :])
    assert one.last_label(runs.Case()).early[0] == pytest.approx(expected)
    assert one.constant().early[0] == pytest.approx(np.nanmean(y[data.MONTH :] ** 2))


def test_study_prints_and_writes(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    told = ["study.py", "--extract", "--seeds", "1", "--D", "20", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", told)
    study.main()
    assert "How many labels" in capsys.readouterr().out
    assert (out / "stations.png").stat().st_size > 10_000
    written = json.loads((out / "results.json").read_text("utf-8"))
    assert (out / "RESULTS.md").read_text("utf-8") == study.text(written)


# --- live ------------------------------------------------------------------------------------


def test_live_feeds_every_row_of_a_station_day_by_day(stations):
    days = live.days_of(None, 3)
    assert set(days) == set(stations.names)
    for k, name in enumerate(stations.names):
        known = ~np.isnan(stations.target[:72, k])
        assert [len(day) for day in days[name]] == known.reshape(3, 24).sum(axis=1).tolist()
        last = days[name][0][-1].split(",")
        assert float(last[-1]) == pytest.approx(stations.target[:24, k][known[:24]][-1])
        assert len(last) == len(live.HEADER.split(","))


def test_live_scores_what_was_said_after_the_first_weeks():
    rows = [[1, 9.0, 0.0, -1.0, 1.0], [2, 1.0, 0.0, -1.0, 1.0], [3, 3.0, 0.0, -1.0, 1.0]]
    course, alone = live.Course(rows), live.Course([[n, y, y + 4.0, 0, 0] for n, y, *_ in rows])
    assert (course.error(1), course.covered(1)) == (5.0, 0.5)
    *_, line, mean = live.table({"hill": course}, {"hill": alone}, {"hill": 1})
    assert line.split() == ["hill", "2", "16.0000", "5.0000", "0.312", "50.0%"]
    assert mean.split()[:1] == ["mean"]


# --- what is said of it -----------------------------------------------------------------------


def test_results_are_those_of_the_stored_figures(found):
    assert (HERE / "RESULTS.md").read_text("utf-8") == study.text(found)
    assert found["settings"] == vars(runs.Settings())
    assert found["whole"]


def test_guide_quotes_the_results():
    results = (HERE / "RESULTS.md").read_text("utf-8").splitlines()
    guide = (ROOT / "docs" / "guides" / "stations.md").read_text("utf-8").splitlines()
    quoted = [line for line in guide if line.startswith("|")]
    assert len(quoted) >= 9
    assert [line for line in quoted if line not in results] == []


def test_attribution_travels_with_the_data():
    for path in (HERE / "README.md", HERE / "stations" / "README.md"):
        text = path.read_text("utf-8")
        assert "CC BY 4.0" in text
        assert "473:20170457" in text
    assert str(data.LEVEL) in text
