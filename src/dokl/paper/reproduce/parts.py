"""What there is to reproduce, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dokl.base.errors import UnknownName

FIGURES = {
    "fig1": "together against alone, Examples 1 to 4 (20 nodes)",
    "fig2": "one node over the number of features D, Example 5",
    "fig3": "RFF-KLMS against QKLMS and KLMS, Examples 5 to 8",
}
TABLES = {
    "table2": "distributed Pegasos against nodes alone, 5 nodes",
    "table3": "the same with 20 nodes",
    "table5": "training times and dictionary sizes, RFF-KLMS and QKLMS",
    "beside": "beside the paper: other choices on the same data, 20 nodes",
    "beyond": "beyond the paper: least squares over the same networks, and published rivals",
}
COMMANDS = FIGURES | TABLES
DATA = ("adult", "banana", "waveform", "mnist")


@dataclass(frozen=True)
class Part:
    """A piece that is run, stored and shown by itself; long ones run only when asked for."""

    name: str
    command: str
    only: str
    long: bool = False


def _parts() -> dict[str, Part]:
    found = [Part(f"fig1{x}", "fig1", x) for x in "abcd"]
    found += [Part("fig2", "fig2", "curves")]
    found += [Part(f"fig3{x}", "fig3", x) for x in "abcd"]
    found += [Part("table5", "table5", "times")]
    for command in ("table2", "table3", "beside"):
        for data in DATA:
            if command != "beside" or data != "mnist":
                found.append(Part(f"{command}-{data}", command, data, data == "mnist"))
    found += [Part(f"beyond-example{i}", "beyond", f"example{i}") for i in range(1, 5)]
    found += [Part(f"beyond-{data}", "beyond", data, data == "mnist") for data in DATA]
    return {part.name: part for part in found}


PARTS = _parts()


def choose_parts(command: str, only: Sequence[str] = (), long: bool = False) -> list[Part]:
    """The parts of a command, or of all; `only` names some of them, and then long ones, too.

    >>> [part.name for part in choose_parts("table2")]
    ['table2-adult', 'table2-banana', 'table2-waveform']
    """
    if command not in (*COMMANDS, "all"):
        raise UnknownName("figure or table", command, (*COMMANDS, "all"))
    parts = [part for part in PARTS.values() if command in (part.command, "all")]
    known = {word for part in parts for word in (part.only, part.name)}
    for word in only:
        if word not in known:
            raise UnknownName(f"part of {command}", word, known)
    if only:
        return [part for part in parts if part.only in only or part.name in only]
    return [part for part in parts if long or not part.long]
