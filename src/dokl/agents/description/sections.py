"""The sections of a network description: what each may say, checked as it is made.

A section is a frozen dataclass of plain values, so `dokl.config` can fill it from TOML. What
needs more than one section to be judged (links to nodes that do not exist, say) is judged in
`dokl.agents.description.inspection`.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from dokl.agents.cells import check_cells, times_of
from dokl.errors import BadInput, UnknownName
from dokl.exchange import ORDERS

SECURITY = ("mtls", "insecure-loopback")
TASKS = ("regression", "classification")
STANDARDISE = ("fixed", "off")
OUTSIDE = ("refuse", "clip")
MODES = ("push", "pull", "lockstep", "off")
DTYPES = ("float32", "float16")
MIXINGS = ("ios", "mean")
METHODS = ("gradient", "squares")
DURABILITY = ("process", "full")
# Names become keys of the network, common names of certificates, and names of files.
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Node:
    """One node: where neighbours dial it, where it listens if elsewhere, and its HTTP face.

    at: longitude and latitude, by which the page of `dokl watch` draws it; empty: anywhere.
    """

    address: str
    listen: str | None = None
    http: str | None = None
    at: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        fits = len(self.at) == 2 and abs(self.at[0]) <= 360 and abs(self.at[1]) <= 90
        if self.at and not fits:
            raise BadInput(f"at is [longitude, latitude] in degrees, got {list(self.at)}")

    @property
    def binds(self) -> str:
        """Where it listens."""
        return self.listen or self.address


@dataclass(frozen=True)
class About:
    """[network]: its name, who is linked with whom, and how strangers are kept out.

    begun: the day on which it was made, as 2026-11-15; nobody has rows of before. Empty: unknown.
    """

    name: str
    links: tuple[Any, ...] = ()
    security: str = "mtls"
    certificates: str | None = None
    revoked: tuple[str, ...] = ()
    begun: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "[network] name")
        self._check_begun()
        _one_of("network", "security", self.security, SECURITY)
        for link in self.links:
            pair = isinstance(link, tuple) and len(link) == 2
            if not (pair and all(isinstance(end, str) for end in link)):
                shown = list(link) if isinstance(link, tuple) else link
                raise BadInput(f"[network] links: a link is two node names, got {shown!r}")

    def _check_begun(self) -> None:
        try:
            good = not self.begun or date.fromisoformat(self.begun).year > 1970
        except ValueError:
            good = False
        if not good:
            raise BadInput(f"[network] begun is a day like 2026-11-15, got {self.begun!r}")


@dataclass(frozen=True)
class Model:
    """[model]: kernel and features, loss and schedule, as `dokl run` names them.

    sigma: the width, or a list with one for each input. mu None is the schedule's own: 0.5 where
    it is normalised, else 1. intercept is the size of a private constant feature, never exchanged.
    method: "gradient" steps along the slope of the loss and averages vectors; "squares" is exact
    least squares, with ridge, and exchanges sums.
    """

    kernel: str = "gaussian"
    sigma: float | tuple[float, ...] = 1.0
    D: int = 500
    variant: str = "orthogonal"
    seed: int = 1
    parameters: dict[str, Any] = field(default_factory=dict)
    loss: str = "squared"
    loss_parameter: float | None = None
    schedule: str = "normalised"
    mu: float | None = None
    lam: float = 0.0
    n0: float | None = None
    power: float | None = None
    eps: float | None = None
    intercept: float = 0.0
    method: str = "gradient"
    ridge: float = 0.01

    def __post_init__(self) -> None:
        _at_least("model", self, "lam", "intercept")
        _one_of("model", "method", self.method, METHODS)
        if not 0 < self.ridge < math.inf:
            raise BadInput(f"[model] ridge must be finite and above 0, got {self.ridge!r}")
        if self.method == "squares" and (self.loss != "squared" or self.intercept):
            raise BadInput(
                "[model] method = 'squares' is least squares: loss is 'squared', and its own "
                "experts take the place of a private intercept; leave both as they are"
            )

    @property
    def squares(self) -> bool:
        """Whether sums travel."""
        return self.method == "squares"


@dataclass(frozen=True)
class AgreedInputs:
    """[inputs]: how columns become X and y, the same on every node: `Preprocessor.agreed()`.

    levels: pairs (column, its levels). shift, count, total, square: the sums behind mean and
    deviation, one number per numeric column. drop: columns that may be there and are not used.
    target_range: the least and the largest target that is believed; empty: any. A broken sensor's
    -9999 would go through the whole network. ranges: the same of each numeric input, [low, high].
    outside: what becomes of a number beyond, "refuse" or "clip" to the range. times, forms: see
    `cells`; missing: spellings of missing values, where they are others than usual.
    fingerprint: what all this, the features and the labels should come to.
    """

    target: str = "y"
    task: str = "regression"
    labels: tuple[Any, ...] = ()
    numeric: tuple[str, ...] = ()
    levels: tuple[Any, ...] = ()
    standardise: str = "off"
    shift: tuple[float, ...] = ()
    count: tuple[float, ...] = ()
    total: tuple[float, ...] = ()
    square: tuple[float, ...] = ()
    drop: tuple[str, ...] = ()
    target_range: tuple[float, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    outside: str = "refuse"
    fingerprint: str | None = None
    times: tuple[Any, ...] = ()
    forms: tuple[Any, ...] = ()
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_cells(self)
        _one_of("inputs", "task", self.task, TASKS)
        _one_of("inputs", "outside", self.outside, OUTSIDE)
        self._check_range()
        self._check_ranges()
        _one_of("inputs", "standardise", self.standardise, STANDARDISE)
        self._check_labels()
        self._check_levels()
        self._check_columns()
        self._check_sums()

    @classmethod
    def plain(cls, d: int, target: str = "y", labels: tuple[Any, ...] = ()) -> AgreedInputs:
        """Columns x1 ... xd, taken as they are."""
        names, zeros = tuple(f"x{i + 1}" for i in range(d)), (0.0,) * d
        task = "classification" if labels else "regression"
        return cls(target, task, labels, names, (), "off", zeros, zeros, zeros, zeros)

    @property
    def classifying(self) -> bool:
        """Whether targets are labels."""
        return self.task == "classification"

    @property
    def m(self) -> int:
        """Outputs: one, or one per class where there are more than two."""
        return len(self.labels) if len(self.labels) > 2 else 1

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the input columns, numbers first."""
        return (*self.numeric, *times_of(self.times), *(name for name, _ in self.levels))

    def _check_range(self) -> None:
        if not self.target_range:
            return
        low, high = self.target_range[0], self.target_range[-1]
        if len(self.target_range) != 2 or not low < high or self.classifying:
            shown = list(self.target_range)
            raise BadInput(
                f"[inputs] target_range is [low, high] of a regression's target, got {shown}"
            )

    def _check_ranges(self) -> None:
        if self.ranges and len(self.ranges) != len(self.numeric):
            raise BadInput(
                f"[inputs] ranges has {len(self.ranges)} entries for {len(self.numeric)} numeric "
                "columns: one [low, high] for each, or none at all"
            )
        for name, bounds in zip(self.numeric, self.ranges, strict=False):
            pair = isinstance(bounds, tuple) and len(bounds) == 2
            if not (pair and all(isinstance(v, int | float) for v in bounds)) or not (
                bounds[0] < bounds[1]
            ):
                raise BadInput(
                    f"[inputs] ranges: column {name!r} needs [low, high], got {_as_list(bounds)!r}"
                )

    def _check_labels(self) -> None:
        labels = self.labels
        if not self.classifying:
            if labels:
                raise BadInput("[inputs] labels are for task = 'classification'")
            return
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in labels)
        if not (numbers or all(isinstance(v, str) for v in labels)):
            raise BadInput("[inputs] labels must be all texts or all numbers")
        if len(set(labels)) < 2 or sorted(set(labels)) != list(labels):
            raise BadInput(
                f"[inputs] labels must be two or more, sorted, each once, got {list(labels)!r}"
            )

    def _check_levels(self) -> None:
        for entry in self.levels:
            named = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
            listed = named and isinstance(entry[1], tuple)
            if not (listed and all(isinstance(level, str) for level in entry[1])):
                raise BadInput(
                    '[inputs] levels: each entry is ["column", ["level", ...]], '
                    f"got {_as_list(entry)!r}"
                )

    def _check_columns(self) -> None:
        every = [self.target, *self.columns, *self.drop]
        twice = [name for name in every if every.count(name) > 1]
        if twice:
            raise BadInput(f"[inputs] column {twice[0]!r} is named twice (target, inputs, drop)")
        if not self.columns:
            raise BadInput("[inputs] numeric, times and levels name no column to learn from")
        if "id" in (self.target, *self.columns):
            raise BadInput(
                "[inputs] a column 'id' says which row a later label belongs to, and can be "
                "neither input nor target: rename it, or drop it"
            )

    def _check_sums(self) -> None:
        p = len(self.numeric) + sum(each.since for each in times_of(self.times).values())
        for name in ("shift", "count", "total", "square"):
            numbers = getattr(self, name)
            if len(numbers) != p:
                raise BadInput(
                    f"[inputs] {name} has {len(numbers)} numbers for {p} numeric columns and times"
                )
            if not all(map(math.isfinite, numbers)):
                raise BadInput(f"[inputs] {name} holds a number that is not finite")
            object.__setattr__(self, name, tuple(map(float, numbers)))


@dataclass(frozen=True)
class ExchangePolicy:
    """[exchange]: when theta travels, how, and how far a neighbour may pull.

    every_seconds, every_samples: 0 is "not by time", "not by count". mixing: "ios" leaves out the
    neighbours farthest from all others, as many as the neighbourhood can stand liars; "mean" uses
    all. clip: the longest difference that a neighbour may contribute, 0 is any. order and
    patience_seconds are for "lockstep": how long to wait for a neighbour that is alive.
    join_seconds: how long a newcomer looks for neighbours to start from. fewest_rows: own rows that
    a message of sums adds at least, since few could be read off; rows_per_second: the most that are
    believed of one origin.
    """

    mode: str = "push"
    every_seconds: float = 0.1
    every_samples: int = 0
    dtype: str = "float32"
    clip: float = 0.0
    order: str = "cta"
    patience_seconds: float = 5.0
    join_seconds: float = 2.0
    mixing: str = "ios"
    fewest_rows: int = 50
    rows_per_second: float = 10_000.0

    def __post_init__(self) -> None:
        _one_of("exchange", "mode", self.mode, MODES)
        _one_of("exchange", "dtype", self.dtype, DTYPES)
        _one_of("exchange", "mixing", self.mixing, MIXINGS)
        _one_of("exchange", "order", self.order, ORDERS)
        _at_least("exchange", self, "every_seconds", "every_samples", "clip", "join_seconds")
        _at_least("exchange", self, "patience_seconds")
        _at_least("exchange", self, "fewest_rows", "rows_per_second", low=1)
        if self.mode in ("push", "pull") and not (self.every_seconds or self.every_samples):
            raise BadInput(
                "[exchange] every_seconds and every_samples are both 0, so nothing would ever be "
                "exchanged: set one of them, or mode = 'off'"
            )


@dataclass(frozen=True)
class Durability:
    """[durability]: "process" survives kill -9, "full" a power cut; when theta is written.

    keep_minutes: how often a snapshot is put aside to go back to (`dokl agent rollback`); 0: never.
    """

    mode: str = "process"
    snapshot_rows: int = 10_000
    keep_minutes: float = 10.0

    def __post_init__(self) -> None:
        _one_of("durability", "mode", self.mode, DURABILITY)
        _at_least("durability", self, "snapshot_rows", low=1)
        _at_least("durability", self, "keep_minutes")


@dataclass(frozen=True)
class Limits:
    """[limits]: what an agent takes in before it says that it is too much.

    waiting_labels: inputs that may wait for their labels, and waiting_hours: for how long.
    """

    body_bytes: int = 4_000_000
    queue_rows: int = 20_000
    waiting_labels: int = 100_000
    waiting_hours: float = 168.0
    keys: int = 100_000

    def __post_init__(self) -> None:
        _at_least("limits", self, "body_bytes", "queue_rows", "keys", low=1)
        _at_least("limits", self, "waiting_labels", "waiting_hours")


# -- names and addresses -----------------------------------------------------------------------
def check_name(name: str, what: str = "node name") -> str:
    """The name, if it can be one."""
    if not NAME.fullmatch(name):
        raise BadInput(f"{what} {name!r}: use 1 to 64 of the letters A-Z a-z, digits, _ and -")
    if what == "node name" and name.lower() == "ca":
        raise BadInput(f"{what} {name!r}: the certificate authority has this name already")
    return name


def host_port(address: str) -> tuple[str, int]:
    """Host and port of an address.

    >>> host_port("127.0.0.1:7447"), host_port("[::1]:7447")
    (('127.0.0.1', 7447), ('::1', 7447))
    """
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    plain = bare == host and ":" in host
    usable = re.fullmatch(r"[A-Za-z0-9._:%-]+", bare) and port.isascii() and port.isdigit()
    if not (colon and usable) or plain or not 0 < int(port) < 65536:
        raise BadInput(f"address {address!r} is not HOST:PORT, like 10.0.0.7:7447 or [::1]:7447")
    return bare, int(port)


def is_loopback(address: str) -> bool:
    """Whether an address HOST:PORT stays on its machine."""
    host, _ = host_port(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# -- checks ------------------------------------------------------------------------------------
def _one_of(section: str, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UnknownName(f"[{section}] {key}", value, known)


def _at_least(section: str, given: Any, *keys: str, low: float = 0) -> None:
    for key in keys:
        value = getattr(given, key)
        if not (math.isfinite(value) and value >= low):
            raise BadInput(f"[{section}] {key} must be finite and at least {low}, got {value!r}")


def _as_list(value: Any) -> Any:
    return [_as_list(each) for each in value] if isinstance(value, tuple) else value
