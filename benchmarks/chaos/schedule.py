"""What happens when: faults drawn from a seed, every kind before any comes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

KINDS = ("kill", "hang", "part", "flood", "face", "lie", "journal", "broker")
# Of each kind: how, and for how long, in seconds.
HOWS = {
    "kill": ("kill -9",),
    "hang": ("SIGSTOP",),
    "part": ("pause", "cut", "pause all", "cut all"),
    "flood": ("close", "idle", "hello", "fail"),
    "face": ("idle", "head", "body"),
    "journal": ("flip", "truncate"),
    "broker": ("restart",),
}
LIES = {
    "gradient": ("flipped", "largest", "noise", "drifting"),
    "squares": ("labels", "inflated", "noise", "flipped", "stale"),
    "rows": ("labels", "noise", "forged", "forked", "stale"),
}
LASTS = {"kill": (0.2, 2.0), "hang": (1.0, 5.0), "part": (2.0, 5.0), "flood": (2.0, 4.0)}
LASTS |= {"face": (2.0, 4.0), "lie": (4.0, 7.0), "journal": (0.2, 1.0), "broker": (1.0, 3.0)}


@dataclass(frozen=True)
class Fault:
    """One of them; at: seconds after the beginning; lasts: until it is over, not until all is well.

    number: its place in the schedule. seed: for what is drawn while it goes on.
    """

    number: int
    at: float
    kind: str
    how: str
    node: str
    lasts: float
    seed: int

    def __str__(self) -> str:
        return f"{self.at:7.1f} s  {self.kind:8} {self.node:6} {self.how:10} {self.lasts:4.1f} s"


def drawn(
    seed: int, begin: float, end: float, every: float, method: str, names: Sequence[str],
    sensor: str, secure: str, kinds: Sequence[str] = KINDS,
) -> list[Fault]:  # fmt: skip
    """The faults between two times, of these kinds, one every n seconds on average.

    sensor: the node with a broker; secure: the one with an https face, which half of the floods of
    faces are for.
    """
    rng = np.random.default_rng(seed)
    found: list[Fault] = []
    bag: list[str] = []
    at = begin
    while at < end:
        bag = bag or [str(kind) for kind in rng.permutation(list(kinds))]
        kind = bag.pop()
        how = str(rng.choice(LIES[method] if kind == "lie" else HOWS[kind]))
        node = str(rng.choice(list(names)))
        if kind == "broker":
            node = sensor
        elif kind == "face" and rng.random() < 0.5:
            node = secure
        lasts = float(rng.uniform(*LASTS[kind]))
        found.append(Fault(len(found), at, kind, how, node, lasts, int(rng.integers(2**31))))
        at += float(rng.uniform(0.3, 1.7) * every)
    return found
