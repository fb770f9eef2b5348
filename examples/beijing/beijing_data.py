"""The stations' data in one shape, from the full file or from the extract beside this file.

Inputs are gases and weather. PM10 is left out: it contains PM2.5. So is rain: the month that the
scaling is agreed from was almost dry, and a shower of July would lie hundreds of deviations out.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dokl import datasets, graphs
from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.columns import Preprocessor

HERE = Path(__file__).parent
GASES = ("SO2", "NO2", "CO", "O3")
WEATHER = ("TEMP", "PRES", "DEWP", "WSPM")
NUMERIC = (*GASES, *WEATHER)
WIND = "wd"
TARGET = "log_pm25"
# log(1 + PM2.5) less its mean over the sample below, to one digit: features have no constant, and
# learning one from the data costs more than anything else in this study.
LEVEL = 4.1
FIRST = np.datetime64("2013-03-01T00", "h")
MONTH, QUARTER = 31 * 24, (31 + 30 + 31) * 24  # hours until the end of March, of May
EVERY = 7  # the sample takes every seventh hour, so that all hours of the day occur
NEAREST = 3
EARTH = 6371.0  # km


@dataclass(frozen=True, eq=False)
class Stations:
    """Hours of K stations side by side.

    columns: name -> (n, K) numbers, NaN where missing, or texts, None where missing; pm25: (n, K);
    target: (n, K), as learned, NaN where PM2.5 is missing.
    """

    names: tuple[str, ...]
    columns: dict[str, Array]
    pm25: Array
    target: Array

    @property
    def n(self) -> int:
        """Number of hours."""
        return len(self.target)

    def inputs(self, numeric: tuple[str, ...] = NUMERIC, wind: bool = True) -> Array:
        """X: (n, K, d), scaled by what the sample of the first month says, of all stations."""
        chosen = (*numeric, WIND) if wind else numeric
        known = ~np.isnan(self.target[:MONTH:EVERY])  # the rows of sample.csv
        sample = {name: self.columns[name][:MONTH:EVERY][known] for name in chosen}
        agreed = Preprocessor.plan(sample, standardise="fixed")
        X = agreed.transform({name: self.columns[name].ravel() for name in chosen})
        return X.reshape(self.n, len(self.names), -1).astype(np.float32)


def from_full(data_dir: str | None = None) -> Stations:
    """All four years; the loader checks the file's hash."""
    table = datasets.load("beijing", data_dir)
    names = tuple(table.coordinates)
    K = len(names)
    hours = table.time.reshape(K, -1)
    if not (np.repeat(names, hours.shape[1]) == table.station).all():
        raise BadInput("the stations do not stand one after the other in the file")
    if not (hours == FIRST + np.arange(hours.shape[1])).all():
        raise BadInput("the hours of the stations do not go on one by one from March 2013")
    columns = {name: values.reshape(K, -1).T for name, values in table.columns.items()}
    wind = table.wind.astype(object)
    wind[wind == ""] = None
    columns[WIND] = wind.reshape(K, -1).T
    pm25 = columns.pop("PM2.5")
    return Stations(names, columns, pm25, target_of(pm25))


def target_of(pm25: Array) -> Array:
    """log(1 + PM2.5), less the agreed level."""
    return np.asarray(np.log1p(pm25) - LEVEL)


def from_extract(folder: Path = HERE / "stations") -> Stations:
    """The first three months, from one CSV file per station."""
    names = tuple(sorted(path.stem for path in folder.glob("*.csv")))
    if not names:
        raise BadInput(f"{folder}: there are no stations in it")
    shape = QUARTER, len(names)
    columns: dict[str, Array] = {name: np.full(shape, np.nan) for name in (*NUMERIC, TARGET)}
    columns[WIND] = np.full(shape, None, object)
    for k, name in enumerate(names):
        with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                _place(columns, hour_of(row.pop("id")), k, row)
    target = columns.pop(TARGET)
    return Stations(names, columns, np.expm1(target + LEVEL), target)


def _place(columns: dict[str, Array], hour: int, k: int, row: dict[str, str]) -> None:
    for name, cell in row.items():
        if cell:
            columns[name][hour, k] = cell if name == WIND else float(cell)


def id_of(hour: int) -> str:
    """The name of an hour, counted from the first: its month, day and hour of day.

    >>> id_of(25), hour_of("03-02T01")
    ('03-02T01', 25)
    """
    return str(FIRST + hour)[5:]


def hour_of(name: str) -> int:
    """The hour of such a name."""
    return int((np.datetime64(f"2013-{name}", "h") - FIRST).astype(int))


# -- who is linked with whom -------------------------------------------------------------------
def distance(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Along the great circle, in km; places as (latitude, longitude) in degrees."""
    (p, q), (r, s) = np.radians(a), np.radians(b)
    h = np.sin((r - p) / 2) ** 2 + np.cos(p) * np.cos(r) * np.sin((s - q) / 2) ** 2
    return float(2 * EARTH * np.arcsin(np.sqrt(h)))


def links(places: dict[str, tuple[float, float]]) -> Any:
    """A graph with the length of each link in km: every station and its three nearest.

    The shortest tree that spans all stations is added, so that it is connected in any case.
    """
    import networkx as nx

    everyone = nx.Graph()
    everyone.add_nodes_from(places)
    names = list(places)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            everyone.add_edge(a, b, km=distance(places[a], places[b]))
    graph = nx.minimum_spanning_tree(everyone, weight="km")
    for a in names:
        near = sorted(everyone[a], key=lambda b: everyone[a][b]["km"])[:NEAREST]
        graph.add_edges_from((a, b, everyone[a][b]) for b in near)
    return graph


def read_links(path: Path = HERE / "links.csv") -> Any:
    """The graph that ships with the extract."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_edges_from(line.split(",") for line in path.read_text("utf-8").splitlines())
    return graph


def weights(graph: Any, names: tuple[str, ...]) -> Any:
    """Metropolis weights (K, K), rows in the order of the names."""
    import networkx as nx

    order = {name: k for k, name in enumerate(names)}
    numbered = nx.Graph()
    numbered.add_nodes_from(range(len(names)))
    numbered.add_edges_from((order[a], order[b]) for a, b in graph.edges)
    return graphs.metropolis(numbered)
