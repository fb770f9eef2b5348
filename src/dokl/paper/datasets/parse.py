"""From the checked contents of files to arrays."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName

# Latitude and longitude of Beijing's stations, approximate: enough to build a graph from.
STATIONS = {
    "Aotizhongxin": (39.982, 116.397),
    "Changping": (40.217, 116.230),
    "Dingling": (40.292, 116.220),
    "Dongsi": (39.929, 116.417),
    "Guanyuan": (39.929, 116.339),
    "Gucheng": (39.914, 116.184),
    "Huairou": (40.328, 116.628),
    "Nongzhanguan": (39.937, 116.461),
    "Shunyi": (40.127, 116.655),
    "Tiantan": (39.886, 116.407),
    "Wanliu": (39.987, 116.287),
    "Wanshouxigong": (39.878, 116.352),
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows for classification, labels -1 and 1.

    X: (N, d) dense or CSR, y: (N,): the training rows, or all there are where the set has no
    given split (X_test is None). last: how many of the last rows are the test set by custom.
    """

    name: str
    X: Any
    y: Array
    X_test: Any = None
    y_test: Array | None = None
    last: int = 0
    description: str = ""
    licence: str = ""
    source: str = ""


@dataclass(frozen=True, eq=False)
class StationTable:
    """Hourly measurements of several stations, one row each; NaN where one is missing.

    station: (N,) names; time: (N,) datetime64[h]; columns: name -> (N,) numbers; wind: (N,) its
    direction as a point of the compass, empty where missing; coordinates: station -> (latitude,
    longitude).
    """

    name: str
    station: Array
    time: Array
    columns: dict[str, Array]
    wind: Array
    coordinates: dict[str, tuple[float, float]]
    description: str = ""
    licence: str = ""
    source: str = ""

    def at(self, station: str) -> StationTable:
        """The rows of one station."""
        if station not in self.coordinates:
            raise UnknownName("station", station, self.coordinates)
        rows = self.station == station
        columns = {name: values[rows] for name, values in self.columns.items()}
        place = {station: self.coordinates[station]}
        parts = {"station": self.station[rows], "time": self.time[rows], "wind": self.wind[rows]}
        return replace(self, columns=columns, coordinates=place, **parts)


def _numbers(csv: bytes) -> Array:
    return np.loadtxt(io.BytesIO(csv), delimiter=",", skiprows=1, ndmin=2)


def adult(train: bytes, test: bytes) -> Dataset:
    """LIBSVM's a9a: 123 binary features, sparse, as float32."""
    from sklearn.datasets import load_svmlight_file

    parts: list[Any] = []
    for content in (train, test):
        X, y = load_svmlight_file(io.BytesIO(content), n_features=123, dtype=np.float32)
        parts += [X, y.astype(np.float64)]
    return Dataset("adult", *parts)


def banana(csv: bytes) -> Dataset:
    """Two inputs of unit variance."""
    rows = _numbers(csv)
    return Dataset("banana", rows[:, :2].copy(), rows[:, 2].copy(), last=min(1300, len(rows) // 2))


def waveform(csv: bytes) -> Dataset:
    """UCI's class 1 against the rest, every column standardised (with n - 1) over all rows."""
    rows = _numbers(csv)
    X = rows[:, :21]
    X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    return Dataset("waveform", X, np.where(rows[:, 21] == 1, 1.0, -1.0))


def idx(content: bytes) -> Array:
    """An array of LeCun's format for bytes: 0, 0, 8, the number of dimensions, their sizes, data.

    >>> idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    array([7, 9], dtype=uint8)
    """
    dimensions = content[3] if content[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    if not dimensions or len(content) - start != shape.prod():
        raise BadInput("not a file of MNIST's format")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def mnist(*contents: bytes) -> Dataset:
    """Digit 8 against the rest; pixels divided by 255, as float32."""
    arrays = [idx(content) for content in contents]
    parts: list[Any] = []
    for images, labels in (arrays[:2], arrays[2:]):
        pixels = images.reshape(len(images), -1).astype(np.float32)
        pixels /= np.float32(255)
        parts += [pixels, np.where(labels == 8, 1.0, -1.0)]
    return Dataset("mnist", *parts)


def beijing(csv: bytes) -> StationTable:
    """Twelve stations, hour by hour for four years, one station after the other."""
    header = csv[: csv.index(b"\n")].decode().split(",")
    words = [header.index(name) for name in ("wd", "station")]
    numeric = [i for i in range(len(header)) if i not in words]
    text = csv.replace(b",NA", b",nan")
    values = np.loadtxt(io.BytesIO(text), delimiter=",", skiprows=1, usecols=numeric, ndmin=2).T
    named = dict(zip((header[i] for i in numeric), values, strict=True))
    year, month, day, hour = (named.pop(name).astype(int) for name in header[:4])
    date = ((year - 1970) * 12 + month - 1).astype("M8[M]").astype("M8[D]") + (day - 1)
    wind, station = np.loadtxt(
        io.BytesIO(csv), delimiter=",", skiprows=1, usecols=words, dtype="U16", ndmin=2
    ).T
    wind = np.where(wind == "NA", "", wind).astype("U3")
    columns = {name: np.ascontiguousarray(column) for name, column in named.items()}
    time = date.astype("M8[h]") + hour
    return StationTable("beijing", station.copy(), time, columns, wind, dict(STATIONS))
