"""The sections of a network description: what each may contain, checked as it is made.

A section is a frozen dataclass of plain values, so `dokl.base.config` can fill it from TOML. What
needs more than one section to be judged (links to nodes that do not exist, say) is judged in
`dokl.live.description.inspection`. [inputs] is in `agreed`, [sources] in `sources`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from dokl.base.errors import BadInput
from dokl.live.description.checks import at_least, check_name, one_of
from dokl.network.exchange import ORDERS

SECURITY = ("mtls", "insecure-loopback")
MODES = ("push", "pull", "lockstep", "off")
DTYPES = ("float32", "float16")
MIXINGS = ("ios", "mean")
CLIPS = ("auto",)
METHODS = ("gradient", "squares")
LEAST_BYTES = 1000  # a second that sums may take of a link
SHARES = ("sums", "rows")
DURABILITY = ("process", "full")


@dataclass(frozen=True)
class Node:
    """One node: where neighbours dial it, where it listens if elsewhere, and its HTTP interface.

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

    begun: the day on which it was made, as 2026-11-15; there are no earlier rows. Empty: unknown.
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
        one_of("network", "security", self.security, SECURITY)
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
    method: "gradient" steps along the slope of the loss and averages vectors; "squares": every node
    is a learner, of own_components centres, that also uses sums of others' rows. map:
    the file with the map that these sums are on; without one it is drawn, and has this ridge.
    share: what leaves a node by method "squares": "sums" of rows, or the "rows" themselves, for
    which nothing but columns and labels is agreed.
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
    map: str | None = None
    own_components: int = 1000
    share: str = "sums"

    def __post_init__(self) -> None:
        at_least("model", self, "lam", "intercept")
        one_of("model", "method", self.method, METHODS)
        one_of("model", "share", self.share, SHARES)
        if self.share == "rows" and (self.method != "squares" or self.map is not None):
            raise BadInput(
                "[model] share = 'rows' is for method = 'squares', and without a map: every node "
                "makes its own from the rows received"
            )
        if not 0 < self.ridge < math.inf:
            raise BadInput(f"[model] ridge must be finite and above 0, got {self.ridge!r}")
        if self.map is not None and self.method != "squares":
            raise BadInput("[model] map is for method = 'squares', whose nodes share sums on it")
        if not 1 <= self.own_components <= 100_000:
            raise BadInput(
                f"[model] own_components must be 1 to 100,000, got {self.own_components!r}"
            )
        if self.method == "squares" and (self.loss != "squared" or self.intercept):
            raise BadInput(
                "[model] method = 'squares' is least squares: loss is 'squared', and its own "
                "experts replace a private intercept; leave both unchanged"
            )

    @property
    def squares(self) -> bool:
        """Whether sums or rows travel, and not vectors."""
        return self.method == "squares"

    @property
    def rows(self) -> bool:
        """Whether rows travel."""
        return self.squares and self.share == "rows"


@dataclass(frozen=True)
class ExchangePolicy:
    """[exchange]: when theta travels, how, and how far a neighbour may pull.

    every_seconds, every_samples: 0 is "not by time", "not by count". mixing: "ios" leaves out the
    neighbours farthest from all others, as many as the neighbourhood tolerates; "mean" uses
    all. clip: the longest difference that a neighbour may contribute, 0 is any; "auto": where
    "ios" can leave nobody out, as far as the node's own last rows allow, elsewhere any. order and
    patience_seconds are for "lockstep": how long to wait for a neighbour that is alive.
    join_seconds: how long a newcomer looks for neighbours to start from. fewest_rows: own rows that
    a message of sums adds at least, since few could be read off; rows_per_second: the most that are
    believed of one origin. bytes_per_second: the most that sums take of the link to one neighbour,
    on average over a message; 0 is any. Where rows are shared, kept_rows: that a node keeps of each
    origin; seal_seconds: how long its own rows wait at most before they leave it.
    """

    mode: str = "push"
    every_seconds: float = 0.1
    every_samples: int = 0
    dtype: str = "float32"
    clip: float | str = "auto"
    order: str = "cta"
    patience_seconds: float = 5.0
    join_seconds: float = 2.0
    mixing: str = "ios"
    fewest_rows: int = 50
    rows_per_second: float = 10_000.0
    bytes_per_second: float = 100_000.0
    kept_rows: int = 20_000
    seal_seconds: float = 5.0

    def __post_init__(self) -> None:
        one_of("exchange", "mode", self.mode, MODES)
        one_of("exchange", "dtype", self.dtype, DTYPES)
        one_of("exchange", "mixing", self.mixing, MIXINGS)
        one_of("exchange", "order", self.order, ORDERS)
        at_least("exchange", self, "every_seconds", "every_samples", "join_seconds")
        if isinstance(self.clip, str):
            one_of("exchange", "clip", self.clip, CLIPS)
        else:
            at_least("exchange", self, "clip")
        at_least("exchange", self, "patience_seconds")
        at_least("exchange", self, "seal_seconds", "bytes_per_second")
        at_least("exchange", self, "fewest_rows", "rows_per_second", "kept_rows", low=1)
        if 0 < self.bytes_per_second < LEAST_BYTES:
            raise BadInput(
                f"[exchange] bytes_per_second must be at least {LEAST_BYTES:,}, or 0 for any, got "
                f"{self.bytes_per_second!r}: sums would be out of date before they arrive"
            )
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
        one_of("durability", "mode", self.mode, DURABILITY)
        at_least("durability", self, "snapshot_rows", low=1)
        at_least("durability", self, "keep_minutes")


@dataclass(frozen=True)
class Limits:
    """[limits]: what an agent accepts before it rejects more.

    queue_rows: that may wait to be learned, or come at once. queue_seconds: of learning that may
    wait, by what rows have taken so far; for large batches and for single rows each.
    waiting_labels: inputs that may wait for their labels, and waiting_hours: for how long.
    """

    body_bytes: int = 4_000_000
    queue_rows: int = 20_000
    queue_seconds: float = 2.0
    waiting_labels: int = 100_000
    waiting_hours: float = 168.0
    keys: int = 100_000

    def __post_init__(self) -> None:
        at_least("limits", self, "body_bytes", "queue_rows", "keys", low=1)
        at_least("limits", self, "waiting_labels", "waiting_hours")
        at_least("limits", self, "queue_seconds", low=0.1)
