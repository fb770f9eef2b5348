"""What a service must know of itself, whether it is a node of a network or a model alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dokl.base.arrays import Array
from dokl.live.description.agreed import AgreedInputs
from dokl.live.description.sections import Durability, Limits


class RowEncoder(Protocol):
    """How columns become the numbers of a row; levels: of columns of text, by name."""

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        """The levels of each column of text."""

    @property
    def d(self) -> int:
        """Numbers of a row."""

    @property
    def names_out(self) -> Sequence[str]:
        """What each of them is."""

    def transform(self, columns: Mapping[str, Any]) -> Array:
        """X (n, d) of columns of n values."""


@dataclass(frozen=True)
class Access:
    """Who may use the HTTP interface: tokens, and the certificate and key by which it speaks https.

    token None: anyone on this machine. reading: good for everything but samples.
    """

    token: str | None = None
    reading: str | None = None
    certificate: tuple[Path, Path] | None = None


class ServiceDescription(Protocol):
    """What rows look like, how many are taken, and how they are stored.

    title: of what is served, for people. path: the file that describes it.
    """

    @property
    def title(self) -> str:
        """What is served."""

    @property
    def inputs(self) -> AgreedInputs:
        """The columns of a row."""

    @property
    def limits(self) -> Limits:
        """How much is taken before senders have to wait."""

    @property
    def durability(self) -> Durability:
        """What an acknowledged row survives."""

    @property
    def path(self) -> Path:
        """The file that describes it."""

    def preprocessor(self) -> RowEncoder:
        """How columns become numbers, a new one each time."""

    def access(self, name: str, address: str) -> Access:
        """Who may use the HTTP interface of `name` at an address; BadInput where nobody should."""
