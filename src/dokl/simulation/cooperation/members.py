"""Who is mixed at each node: its own experts, the network's, and the network's with its own
corrections.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dokl.base.errors import BadInput, UnknownName
from dokl.base.files import MOST, real, whole

ROLES = ("own", "shared", "corrected")


@dataclass(frozen=True)
class Member:
    """One expert of least squares.

    role    "own" learns the node's rows, "shared" the network's, "corrected" the errors that a
            shared one makes on the node's rows, and adds what it learned
    memory  rows: the node's own, or the network's where they are shared
    width   features that it uses, the first ones; None: all; 0: a constant and nothing else
    ridge   times the ridge of the method: a short memory explains as noise what is not
    of      which of the shared ones is corrected
    """

    role: str
    memory: float = math.inf
    width: int | None = None
    ridge: float = 1.0
    of: int = 0

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise UnknownName("role", self.role, ROLES)
        if not self.memory >= 2:
            raise BadInput(f"a memory is of at least 2 rows, or infinite; got {self.memory!r}")
        if not (math.isfinite(self.ridge) and self.ridge > 0):
            raise BadInput(f"ridge must be above 0, got {self.ridge!r}")
        if self.width is not None and self.width < (1 if self.role == "shared" else 0):
            raise BadInput(
                f"a {self.role} expert of width {self.width!r} has nothing to learn from"
            )

    def D(self, most: int) -> int:
        """Numbers in its vector, where there are so many features."""
        return most if self.width is None else max(1, min(self.width, most))

    @property
    def text(self) -> str:
        """For people."""
        rows = "all rows" if self.memory == math.inf else f"{self.memory:,.0f} rows"
        what = "an offset" if self.width == 0 else "a correction"
        return {"own": "own", "shared": "shared", "corrected": f"shared and {what}"}[
            self.role
        ] + f", {rows}"

    def spec(self) -> dict[str, Any]:
        """For files; an infinite memory is None."""
        return asdict(self) | {"memory": None if self.memory == math.inf else self.memory}


def of_spec(spec: Mapping[str, Any]) -> Member:
    """The member that `spec` described."""
    memory = math.inf if spec["memory"] is None else real("memory", spec["memory"], 2.0)
    for name in ("width", "of"):
        if spec[name] is not None:
            whole(name, spec[name], 0, MOST)
    return Member(**{**spec, "memory": memory})


# Measured on hourly air quality of 12 stations, with all labels and with a tenth of them, and on
# the paper's examples. Short memories take a smaller ridge, corrections a larger one: what they
# correct is small. The slower of the network's experts that forget is the better one to correct.
# Those that forget are narrow: they are solved at every exchange, and lose nothing by it.
MEMBERS = (
    Member("own"),
    Member("own", 1000, 100, 0.2),
    Member("own", 100, 100, 0.2),
    Member("own", 10, 50, 0.2),
    Member("shared"),
    Member("shared", 10_000, 100),
    Member("shared", 1000, 100, 0.3),
    Member("shared", 100, 50, 0.3),
    Member("shared", 10, 50, 0.3),
    Member("corrected", 2, 0, of=1),
    Member("corrected", 10, 0, of=1),
    Member("corrected", 10, 50, 8.0, of=1),
    Member("corrected", 1000, 100, 8.0, of=1),
    Member("corrected", math.inf, 100, 8.0, of=0),
)


def check_members(members: tuple[Member, ...]) -> None:
    """Refuse a set in which a correction has nothing to correct, or nobody learns alone."""
    shared = sum(member.role == "shared" for member in members)
    if not any(member.role == "own" for member in members):
        raise BadInput("one of the members must be own: without it cooperation can hurt")
    for member in members:
        if member.role == "corrected" and not 0 <= member.of < shared:
            raise BadInput(f"there is no shared expert {member.of} to correct: there are {shared}")


def numbered(members: tuple[Member, ...]) -> list[str]:
    """A name for each in the state: own0, own1, ... shared0, ..."""
    found, seen = [], dict.fromkeys(ROLES, 0)
    for member in members:
        found.append(f"{member.role}{seen[member.role]}")
        seen[member.role] += 1
    return found
