"""Which experts there are: maps, memories and widths. A longer memory can fill a wider map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dokl.base.codec import IF_SET
from dokl.learning.intervals import LEVELS

# Rows with which new length scales and maps are adopted, and all experts start again with all rows
# that are kept. The work begins some rows earlier, in the background (`begin_row`). Rows that chose
# the scales are never scored with them.
PILOTS = (30, 60, 125, 250, 500, 1000, 2500, 5000, 10_000, 100_000)
# Centres of experts on ranks, which stand beside others: 500 do nearly as well as 1,000.
RANKED = 500
# Classes say less a row, and a guess of the commonest is a bad one: they cannot wait so long.
CLASS_PILOTS = (8, 15, *PILOTS)
KEPT = 10_000
# The work of a pilot begins this many rows earlier, at most: the more, the older its scales. 500
# rows cost 3.5 % of error on hourly air quality, and 250 rows 0.8 %.
MOST_AHEAD = 250
# Up to here it takes some 30 ms, and does not begin earlier. 4 rows would cost 22 % of error from
# row 30 to 60, and 15 % from there to row 125.
QUICK = 60
NEVER = 1 << 62

MapKey = tuple[str | float, str]


@dataclass(frozen=True)
class Kind:
    """One expert. map: "learned" length scales, or a number of median distances, the same along
    every input; kernel: "gaussian" or "matern32"; memory: rows; width: centres, None for all, 0
    for a linear function;
    ranked: whether inputs count by their ranks (`ranks`).
    """

    map: str | float
    kernel: str
    memory: float = math.inf
    width: int | None = None
    ranked: bool = False

    @property
    def features(self) -> MapKey:
        """The map that it shares with others, and its kernel."""
        return f"{self.map} of ranks" if self.ranked else self.map, self.kernel

    @property
    def text(self) -> str:
        """For people."""
        memory = "all rows" if self.memory == math.inf else f"{self.memory:,.0f} rows"
        if self.width == 0:
            return f"linear, {memory}"
        scales = "learned scales" if self.map == "learned" else f"{self.map:g} x median distance"
        scales += " of ranks" if self.ranked else ""
        return f"{scales}, {self.kernel}, {memory}"


def begin_row(pilot: int) -> int:
    """After how many rows the work for a pilot begins. The work grows with the cube of the rows, up
    to a thousand of them; a row is given 50 ms or more.

    >>> [begin_row(pilot) for pilot in PILOTS]
    [30, 60, 122, 243, 469, 875, 2250, 4750, 9750, 99750]
    """
    if pilot <= QUICK:
        return pilot
    return pilot - min(MOST_AHEAD, max(3, pilot * pilot // 8000))


def next_pilot(pilots: Sequence[int], seen: int) -> int:
    """The first pilot after n rows; NEVER where there is none."""
    return min((each for each in pilots if each > seen), default=NEVER)


Forgetting = dict[MapKey, tuple[tuple[int, int], ...]]


def _with_memories(wide: tuple[Kind, ...], forgetting: Forgetting) -> tuple[Kind, ...]:
    """Wide experts that remember everything, and for each map narrow ones: (memory, width)."""
    return wide + tuple(
        Kind(*features, memory, width)
        for features, each in forgetting.items()
        for memory, width in each
    )


def for_numbers() -> tuple[Kind, ...]:
    """Eighteen experts: three of everything seen so far, two by ranks, and thirteen that forget."""
    wide = Kind("learned", "gaussian"), Kind("learned", "matern32"), Kind(1.0, "matern32")
    forgetting: Forgetting = {
        ("learned", "gaussian"): ((10_000, 400), (3000, 300), (1000, 200), (100, 100), (10, 50)),
        (2.0, "gaussian"): ((10_000, 300), (3000, 200), (1000, 200), (100, 100), (10, 50)),
        (1.0, "gaussian"): ((3000, 200), (1000, 200), (100, 100)),
    }
    by_ranks = _by_ranks(Kind("learned", "gaussian"), Kind(1.0, "matern32"))
    return _with_memories(wide, forgetting) + by_ranks


def _by_ranks(*kinds: Kind) -> tuple[Kind, ...]:
    return tuple(replace(kind, width=RANKED, ranked=True) for kind in kinds)


def for_classes() -> tuple[Kind, ...]:
    """Ten experts: classes have sharp borders, so rough and narrow kernels matter more."""
    learned = Kind("learned", "gaussian"), Kind("learned", "matern32")
    wide = *learned, Kind(0.5, "matern32"), Kind(0.5, "gaussian"), Kind(0.25, "gaussian")
    forgetting: Forgetting = {
        ("learned", "gaussian"): ((10_000, 400), (1000, 200), (100, 100)),
        (0.5, "matern32"): ((10_000, 400), (1000, 200)),
    }
    return _with_memories(wide, forgetting)


def one() -> tuple[Kind, ...]:
    """A single expert that remembers everything: what it knows are sums, which can be added."""
    return (Kind("learned", "gaussian"),)


def lasting_for_numbers() -> tuple[Kind, ...]:
    """Six experts that forget nothing, one of them linear: for targets that come long after their
    rows, where the newest rows are not known yet. The linear one is on a map of fixed scales: where
    a learned one bends, it has next to no linear part.
    """
    return *_lasting(for_numbers()), Kind(1.0, "gaussian", math.inf, 0)


def lasting_for_classes() -> tuple[Kind, ...]:
    """Five experts that forget nothing."""
    return _lasting(for_classes())


def _lasting(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    return tuple(kind for kind in kinds if kind.memory == math.inf)


FOR_NUMBERS = {"all": for_numbers, "lasting": lasting_for_numbers, "one": one}
FOR_CLASSES = {"all": for_classes, "lasting": lasting_for_classes, "one": one}


@dataclass(frozen=True)
class Settings:
    """Settings of a bank of experts. most: centres of the widest; bound: on innovations, in
    standard deviations; seed: of the reservoir and of the pilots' choice of rows; levels: of
    intervals; sums: whether an infinite memory keeps its sums, for adding and taking away; classes:
    how many there are, 0 where targets are numbers; grouped: whether the last input is the number
    of the row's group (a node of a network, a level of a column), whose place is learned;
    group_errors: whether each group's errors are remembered, too, and correct its predictions;
    beside: whether rows far ahead are predicted with what stands beside a frozen bank (`rivals`);
    fixed_inputs: whether inputs are cut off at the same place in all rows, as with `sums`.
    """

    kinds: tuple[Kind, ...] = field(default_factory=for_numbers)
    most: int = 1000
    bound: float = 10.0
    seed: int = 0
    pilots: tuple[int, ...] = PILOTS
    kept: int = KEPT
    levels: tuple[float, ...] = LEVELS
    sums: bool = False
    classes: int = 0
    grouped: bool = False
    group_errors: bool = False
    beside: bool = False
    fixed_inputs: bool = field(default=False, metadata=IF_SET)
