"""What leaves a node, when, and how large it is: rows, or sums of rows.

share="rows"  every row, once over each direction of every link
share="sums"  Z'Z, Z'y of at least FEWEST_ROWS new rows on the network's map, and no fewer than 5 %
              of what the node has sent before; and the sample of rows that a new map is made from

A row that was sent reaches all nodes after as many rounds as the farthest node is away. In a
simulation all nodes share one bank that learns every row with that delay: no node gets a row
earlier than it would from its neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.experts.kinds import Kind

WAYS = ("sums", "rows")
# By sums, the network has one expert that remembers everything, and two that forget.
SUMMED = (
    Kind("learned", "gaussian"),
    Kind("learned", "gaussian", 10_000, 400),
    Kind("learned", "gaussian", 1000, 200),
)
# Sums of fewer rows would reveal them.
FEWEST_ROWS = 50
# A node sends sums again once it has this share of rows more than it last sent.
MORE = 0.05
NEVER = 1 << 62
# Bytes of a number in a row, of one in sums, and of a message's or row's header.
ROW_NUMBER, SUM_NUMBER, HEADER = 8, 4, 32


@dataclass(frozen=True)
class SharingRule:
    """way: one of WAYS; delay: steps until a row reaches the farthest node; degree: (K,) links of
    each node, and fewest_rows: that a message of sums is of.
    """

    way: str
    delay: int
    degree: Array
    fewest_rows: int = FEWEST_ROWS

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise UnknownName("share", self.way, WAYS)
        if self.fewest_rows < 1:
            raise BadInput(f"fewest_rows must be at least 1, got {self.fewest_rows!r}")


@dataclass(frozen=True)
class SentRows:
    """Rows on their way: X (n, d), Y (n, m), weight, node and step (n,); due: the step at which
    all nodes have received them, NEVER while they were not sent.
    """

    X: Array
    Y: Array
    weight: Array
    node: Array
    step: Array
    due: Array

    def __getitem__(self, which: Array) -> SentRows:
        return SentRows(*(part[which] for part in vars(self).values()))

    def and_then(self, other: SentRows) -> SentRows:
        """These and later ones."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return SentRows(*(np.concatenate(pair) for pair in pairs))


def no_rows(d: int, m: int) -> SentRows:
    """Nothing on its way."""
    whole = (np.zeros(0, np.int64) for _ in range(3))
    return SentRows(np.zeros((0, d)), np.zeros((0, m)), np.zeros(0), *whole)


def least_new_rows(sent: int, fewest_rows: int) -> int:
    """How many rows more than it last sent a node needs before it sends its sums again.

    >>> least_new_rows(0, 50), least_new_rows(1000, 50), least_new_rows(20_000, 50)
    (50, 50, 1000)
    """
    return max(fewest_rows, math.ceil(MORE * sent))


def send(sharing: SharingRule, rows: SentRows, sent: Array) -> tuple[SentRows, Array, int]:
    """Rows in order of their steps with what was decided about sending; rows sent by each node so
    far, (K,), with these; and the number of messages.

    Rows that were not sent before (due NEVER) are decided about; the others stay as they are.
    """
    if sharing.way == "rows":
        new = rows.due == NEVER
        due = np.where(new, rows.step + sharing.delay, rows.due)
        return replace(rows, due=due), sent + np.bincount(rows.node[new], minlength=len(sent)), 0
    due, sent, messages = rows.due.copy(), sent.copy(), 0
    open_ = np.flatnonzero(due == NEVER)
    for k in np.unique(rows.node[open_]).tolist():
        mine, at = open_[rows.node[open_] == k], 0
        while True:
            least = least_new_rows(int(sent[k]), sharing.fewest_rows)
            if at + least > len(mine):
                break
            due[mine[at : at + least]] = rows.step[mine[at + least - 1]] + sharing.delay
            sent[k], at, messages = sent[k] + least, at + least, messages + 1
    return replace(rows, due=due), sent, messages


def diameter(links: Array) -> int:
    """Steps from the farthest node to any other, of a CSR matrix (K, K) whose entries are links.

    >>> from scipy.sparse import csr_array
    >>> diameter(csr_array(np.eye(4, k=1) + np.eye(4, k=-1)))
    3
    """
    from scipy.sparse.csgraph import shortest_path

    K, most = links.shape[0], 1
    for at in range(0, K, 256):
        some = np.arange(at, min(K, at + 256))
        far = shortest_path(links, method="D", directed=True, unweighted=True, indices=some)
        most = max(most, int(far.max()))
    return most


def sum_bytes(widths: list[int], m: int) -> int:
    """Bytes of one message of sums, of experts with n features each."""
    return HEADER + SUM_NUMBER * sum(D * (D + 1) // 2 + m * D + m + 2 for D in widths)


def row_bytes(d: int, m: int) -> int:
    """Bytes of one row."""
    return HEADER + ROW_NUMBER * (d + m)
