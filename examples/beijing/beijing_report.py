"""Tables of the study, for the terminal and for RESULTS.md, and its picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from beijing_data import LEVEL, links
from beijing_runs import Case, Errors, Settings, ways

from dokl import graphs
from dokl.base.arrays import Array
from dokl.paper.datasets.parse import STATIONS
from dokl.tables import report

ALL = Case()
FEW = Case(share=0.1)
FEW_SAME = Case(share=0.1, staggered=False)
LABELS = {"10 %, staggered": FEW, "10 %, same hours": FEW_SAME, "all": ALL}
INTERCEPTS = (0.0, 0.1, 0.3, 1.0)
SHARES = (0.05, 0.1, 0.2, 0.5)
STEPS = (0.1, 0.25, 0.5, 1.0, 1.5)
PERIODS = {"early": "months 2-3", "whole": "months 2-48"}

INTRODUCTION = """\
# Twelve stations in Beijing: alone and together

Made by `python examples/beijing/study.py --data-dir DIR --out examples/beijing`; no figure in it
is typed. Data: Beijing Multi-Site Air-Quality, Zhang et al., Proc. R. Soc. A 473:20170457, 2017,
CC BY 4.0.

Twelve stations predict PM2.5 at every hour from their gases (SO2, NO2, CO, O3) and weather
(temperature, pressure, dew point, wind speed, and its direction as 16 categories), one hour after
the other, each before it learns from that hour. The target is log(1 + PM2.5) less {level}, the
level of the first month. Inputs are scaled by every seventh hour of the first month of all
stations, never by what comes later. Missing inputs stand at their mean; hours without PM2.5 are
skipped.

D = {D}, sigma = {sigma:g}, {variant} features, normalised step 0.5, Metropolis weights, an
exchange every hour, unless a table says otherwise. **Error** is the mean squared error of the
target over all stations and all hours at which PM2.5 is known, labelled or not. Means of {seeds}
seeds; each draws other frequencies and other label hours. `±` is the standard deviation over
seeds; *change* is from alone to together in the same seed.

*Staggered* labels: every station has its own hours, drawn independently. *Same hours*: all
stations have labels at the same hours. Hours without a label are predicted and not learned from.
"""


@dataclass(frozen=True)
class Grid:
    """A table: what it shows, what to say of it, its header and rows, of numbers or of words."""

    title: str
    text: str
    header: list[str]
    rows: list[list[str]]
    words: bool = False

    def markdown(self) -> str:
        """For a page."""
        side = "---|" if self.words else "---:|"
        head = "| " + " | ".join(self.header) + " |\n|---|" + side * (len(self.header) - 1)
        body = "".join("\n| " + " | ".join(row) + " |" for row in self.rows)
        return f"## {self.title}\n\n{self.text}\n\n{head}{body}\n"

    def show(self) -> None:
        """For the terminal."""
        report.table(self.title, self.header, self.rows)


Get = Callable[[Case], Errors]


def spread(values: Array) -> str:
    """Mean and standard deviation over seeds."""
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def change(alone: Array, together: Array) -> str:
    """Relative change in the same seed, in percent."""
    percent = 100 * (together / alone - 1)
    return f"{np.mean(percent):+.1f} ± {np.std(percent):.1f} %"


# -- the tables ----------------------------------------------------------------------------------
def main_table(get: Get, period: str) -> Grid:
    """Alone against together, for three ways to have labels and four intercepts."""
    rows = []
    for label, case in LABELS.items():
        for c in INTERCEPTS:
            here = replace(case, intercept=c)
            alone = getattr(get(here), period)
            together = getattr(get(replace(here, together=True)), period)
            cells = [spread(alone), spread(together), change(alone, together)]
            rows.append([label, f"{c:g}" if c else "none", *cells])
    text = "Is it better together? The private intercept is a constant that is never shared."
    header = ["labels", "intercept", "alone", "together", "change"]
    return Grid(f"Alone and together, {PERIODS[period]}", text, header, rows)


def sweep(get: Get, title: str, text: str, first: str, cases: dict[str, Case], whole: bool) -> Grid:
    """Rows of three ways to learn, for both periods where there are four years."""
    periods = ("early", "whole") if whole else ("early",)
    header = [first]
    for period in periods:
        header += [f"{PERIODS[period]}: alone", "together", "with intercept 0.3"]
    rows = []
    for label, case in cases.items():
        cells = [
            f"{np.mean(getattr(get(way), period)):.3f}" for period in periods for way in ways(case)
        ]
        rows.append([label, *cells])
    return Grid(title, text, header, rows)


def shares() -> dict[str, Case]:
    """From few labels to all."""
    found = {}
    for staggered in (True, False):
        for share in SHARES:
            how = "staggered" if staggered else "same hours"
            found[f"{100 * share:g} %, {how}"] = Case(share=share, staggered=staggered)
    return {**found, "all": ALL}


def steps() -> dict[str, Case]:
    """The step, with few labels and with all."""
    return {
        f"step {mu:g}, labels {label}": replace(case, mu=mu)
        for label, case in LABELS.items()
        for mu in STEPS
    }


def exchanges() -> dict[str, Case]:
    """How often vectors travel, with few labels and with all."""
    return {
        f"every {hours} h, labels {label}": replace(case, every=hours)
        for label, case in LABELS.items()
        for hours in (1, 6, 24)
    }


def choices(columns: set[str]) -> dict[str, Case]:
    """Other inputs and targets, as far as the columns are there."""
    found = {
        "as above": FEW,
        "target not centred": replace(FEW, target="plain"),
        "log(PM2.5) for log(1 + PM2.5)": replace(FEW, target="log"),
        "with hour of day and day of year": replace(FEW, inputs="time"),
        "without wind direction": replace(FEW, inputs="calm"),
        "with rain": replace(FEW, inputs="rain"),
        "with PM10": replace(FEW, inputs="PM10"),
    }
    lacking = {"rain": "RAIN", "PM10": "PM10"}
    return {k: c for k, c in found.items() if lacking.get(c.inputs, "SO2") in columns}


def station_table(get: Get, names: tuple[str, ...]) -> Grid:
    """Who gains and who loses."""
    kinds = {"10 %, staggered": FEW, "all labels": ALL}
    header = ["station"]
    for label in kinds:
        header += [f"{label}: alone", "together", "with intercept 0.3"]
    longer = replace(ALL, together=True, intercept=0.3, mu=1.0)
    header.append("and step 1")
    columns = [get(way).stations for way in [*ways(FEW), *ways(ALL), longer]]
    rows = [[name, *(f"{c[k]:.3f}" for c in columns)] for k, name in enumerate(names)]
    text = "Means from month 2 on."
    return Grid("Station by station", text, header, rows)


def beside_table(naive: dict[str, Errors], whole: bool) -> Grid:
    """A prediction without learning."""
    periods = ("early", "whole") if whole else ("early",)
    rows = [
        [name, *(f"{np.mean(getattr(errors, period)):.3f}" for period in periods)]
        for name, errors in naive.items()
    ]
    text = "For scale: the level of the first month, and the last label that the station had."
    return Grid("Without learning", text, ["", *(PERIODS[p] for p in periods)], rows)


def link_table() -> Grid:
    """The graph."""
    graph = links(STATIONS)
    facts = graphs.describe(graph)
    text = (
        "Each station is linked with its three nearest along the great circle (the shortest tree "
        "that spans all is added and adds nothing here): "
        f"{facts.edges} links, diameter {facts.diameter}, lambda_2 = {facts.lambda_2:.3f}. The "
        "four in the north and north-east (Changping, Dingling, Huairou, Shunyi) lie 20 km and "
        "more from those of the city."
    )
    rows = []
    for name in STATIONS:
        near = sorted(graph[name].items(), key=lambda item: item[1]["km"])
        rows.append([name, ", ".join(f"{other} {link['km']:.0f} km" for other, link in near)])
    return Grid("The graph", text, ["station", "linked with"], rows, words=True)


def tables(
    get: Get, naive: dict[str, Errors], names: tuple[str, ...], columns: set[str], whole: bool
) -> list[Grid]:
    """All of them; `get` gives the errors of a case, by a run or from a file."""
    found = [link_table(), main_table(get, "early")]
    found += [main_table(get, "whole")] if whole else []
    share = "The fewer labels, the more cooperation pays, if the stations have them at other hours."
    step = "Averaging takes away noise, so that a network can afford a step that one alone cannot."
    every = "Seldom is enough; with many labels it is even better than always."
    other = "With labels at 10 % of the hours, staggered."
    sweeps: list[tuple[str, str, str, dict[str, Case]]] = [
        ("How many labels", share, "labels", shares()),
        ("How large a step", step, "", steps()),
        ("How often vectors travel", every, "", exchanges()),
        ("Other inputs, other targets", other, "", choices(columns)),
    ]
    found += [sweep(get, *parts, whole) for parts in sweeps]
    return [*found, station_table(get, names), beside_table(naive, whole)]


def page(settings: Settings, grids: list[Grid]) -> str:
    """RESULTS.md."""
    known = {"level": LEVEL, **vars(settings)}
    return "\n".join([INTRODUCTION.format(**known), *(grid.markdown() for grid in grids)])


def draw(get: Get, path: Path) -> Path:
    """Error over time, alone and together, with few labels; beside it the network."""
    plt = report.pyplot()
    figure, (axes, place) = plt.subplots(
        1, 2, figsize=(10, 3.6), width_ratios=[2.2, 1], layout="constrained"
    )
    labels = ("alone", "together", "together, intercept 0.3")
    for colour, label, way in zip(report.COLOURS, labels, ways(FEW), strict=False):
        months = get(way).months
        when = np.datetime64("2013-03", "M") + np.arange(len(months))
        axes.plot(when, months, color=colour, lw=1.6, marker="o", ms=3, label=label)
    axes.set_ylabel("mean squared error of the month")
    axes.set_title("labels at 10 % of the hours, staggered", fontsize=11)
    axes.set_ylim(0)
    ticks = plt.matplotlib.dates.AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter(plt.matplotlib.dates.ConciseDateFormatter(ticks))
    _tidy(axes)
    _draw_places(place, get)
    return report.save_picture(figure, path)


def _tidy(axes: Any) -> None:
    axes.grid(alpha=0.25, lw=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False)


def _draw_places(axes: Any, get: Get) -> None:
    """The stations on the map, coloured by what they gain."""
    graph = links(STATIONS)
    for name, (latitude, longitude) in STATIONS.items():
        graph.nodes[name]["pos"] = (longitude * np.cos(np.radians(40)), latitude)
    alone, _, together = (get(way).stations for way in ways(FEW))
    gain = dict(zip(sorted(STATIONS), 100 * (1 - together / alone), strict=True))
    report.draw_graph(axes, graph, np.array([gain[name] for name in graph]), "error saved (%)")
    axes.set_title("who gains", fontsize=11)
