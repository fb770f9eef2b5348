"""Named data, verified by hash: `load`, `split`, and a generator of waveforms.

Files come from a folder of yours (data_dir, or the variable DOKL_DATA), otherwise from their
public place, once; they are then kept in the system's cache folder. Nothing is shipped inside the
package. Parsing is not cached: it takes a second for MNIST, two for Beijing, else much less.

>>> X, labels = waveform(3, seed=0)
>>> X.shape
(3, 21)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, overload

from dokl.base.errors import UnknownName
from dokl.paper.datasets import parse
from dokl.paper.datasets.breiman import waveform
from dokl.paper.datasets.files import FILES, cache_folder, contents
from dokl.paper.datasets.parse import Dataset, StationTable
from dokl.paper.datasets.splits import Split, split

__all__ = [
    "Dataset",
    "NAMES",
    "Split",
    "StationTable",
    "cache_folder",
    "load",
    "split",
    "waveform",
]

NAMES = tuple(FILES)
_PARSERS: dict[str, Callable[..., Any]] = {name: getattr(parse, name) for name in NAMES}

# description, licence, source
_FACTS = {
    "adult": (
        "Adult (a9a): is a yearly income above 50,000 dollars? 123 binary features of a census.",
        "none stated by LIBSVM; derived from UCI's Adult, CC BY 4.0 by UCI's policy",
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#a9a",
    ),
    "banana": (
        "Banana: two classes in the plane, banana-shaped; each column has unit variance.",
        "none stated",
        "G. Raetsch's benchmark, as in LASVM: https://leon.bottou.org/projects/lasvm",
    ),
    "waveform": (
        "Waveform: Breiman's, class 1 against the rest, each column standardised.",
        "CC BY 4.0 by UCI's policy",
        "https://archive.ics.uci.edu/dataset/107/waveform+database+generator+version+1",
    ),
    "mnist": (
        "MNIST: handwritten digits, 8 against the rest; 28 x 28 pixels from 0 to 1.",
        "CC BY-SA 3.0",
        "Y. LeCun, C. Cortes and C. Burges, http://yann.lecun.com/exdb/mnist",
    ),
    "beijing": (
        "Beijing air quality: 12 stations, hourly, from March 2013 to February 2017.",
        "CC BY 4.0",
        "Zhang et al., Proc. R. Soc. A 473:20170457, 2017; "
        "https://archive.ics.uci.edu/dataset/501/beijing+multi+site+air+quality+data",
    ),
}


@overload
def load(
    name: Literal["beijing"],
    data_dir: str | os.PathLike[str] | None = ...,
    show_progress: bool | None = ...,
) -> StationTable: ...


@overload
def load(
    name: Literal["adult", "banana", "waveform", "mnist"],
    data_dir: str | os.PathLike[str] | None = ...,
    show_progress: bool | None = ...,
) -> Dataset: ...


@overload
def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = ...,
    show_progress: bool | None = ...,
) -> Dataset | StationTable: ...


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    show_progress: bool | None = None,
) -> Dataset | StationTable:
    """A data set by name: adult, banana, waveform, mnist (a Dataset); beijing (a StationTable).

    data_dir: the folder with its files; without it the one in DOKL_DATA; without either they are
    fetched. A file whose hash is wrong is refused.

    >>> load("iris")
    Traceback (most recent call last):
    dokl.base.errors.UnknownName: unknown data set 'iris': Known: adult, banana, beijing, mnist, ...
    """
    if name not in FILES:
        raise UnknownName("data set", name, NAMES)
    data: Dataset | StationTable = _PARSERS[name](*contents(name, data_dir, show_progress))
    description, licence, source = _FACTS[name]
    return replace(data, description=description, licence=licence, source=source)
