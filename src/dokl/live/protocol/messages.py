"""What travels between nodes: a header of 64 bytes, little-endian, then the bytes of theta.

A hello may end with refusals, 17 bytes each: whose messages its sender does not use (8 bytes of the
SHA-256 of the name), of which incarnation (u64, 0 where it is not known), and why (u8, the place in
`SAID`). So a node whose messages are always refused learns of it. One of these places, with the
word `RELEASE` for a name and a reason that nobody knows, is the sender's version of dokl: earlier
versions pass over it. It is a claim, and good for nothing but to be shown.

========= ======= ==================================================================
offset    type    meaning
========= ======= ==================================================================
0         4 bytes "dokl"
4         u8      version of this layout, 1
5         u8      kind: 1 hello (no theta), 2 theta; method "squares": 3 sums of an origin,
                  sealed, 4 which versions of sums the sender has (16 + 8 bytes each), 5 a
                  piece of sums that are too large for one message; where rows are shared:
                  6 batches of rows, 7 which rows the sender has, 8 which it wants of one
                  neighbour, 9 the answer to that
6         u8      numbers of theta: 0 none, 1 float32, 2 float16
7         u8      flags: 1 finished (no more samples will come), 2 waiting (please repeat)
8         8 bytes fingerprint of features, scaling and labels
16        u16     m, outputs
18        u32     D, numbers per output
22        u16     number of the sender's neighbours
24        u64     incarnation: grows with each start of the sender
32        u64     step: grows with each change of its theta
40        u64     count: samples in the sense of the step schedule
48        u64     learned: samples learned from
56        f64     the sender's clock, seconds
64        m*D     theta, output by output
========= ======= ==================================================================

Bytes from outside are hostile: `unpack` compares their length with what *this* node expects before
anything is made of it, so no claim in a message decides how much memory is taken.

float16 ends at 65504. Larger numbers are sent as that (and smaller than 6e-8 as 0): a neighbour
would refuse infinity, and half a pull in the right direction is better than none: see `fits`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.network.exchange.rules import LARGEST16

HELLO, THETA, SUMS, VERSIONS, PIECE = 1, 2, 3, 4, 5
ROWS, HAVE, WANT, STRETCH = 6, 7, 8, 9
# Kinds whose bytes are for others to make something of: of sums, and of rows.
BODIES, ROW_BODIES = (SUMS, VERSIONS, PIECE), (ROWS, HAVE, WANT, STRETCH)
FINISHED, WAITING = 1, 2
VERSION = 1
MAGIC = b"dokl"
HEADER = struct.Struct("<4sBBBB8sHIHQQQQd")
DTYPES = {"float32": 1, "float16": 2}
# Beyond these no honest node gets, and sums of a few of them stay within range.
LARGEST_COUNT, LARGEST32 = 1 << 62, 1e30

_NUMBERS: dict[int, Any] = {1: np.dtype("<f4"), 2: np.dtype("<f2")}


# Why a message may not be used: what is wrong with its bytes, then what the protocol finds.
REASONS = (
    "size", "magic", "version", "kind", "fingerprint", "shape", "finite", "numbers",
    "stale", "duplicate", "large", "stranger", "off", "ahead",
)  # fmt: skip
TWICE = "twice"  # two agents speak under the name
OF_SUMS = ("sums", "signature")  # sums that are impossible, or of another origin than claimed
OF_ROWS = ("rows",)  # rows that cannot be
SAID = (
    *REASONS,
    TWICE,
    *OF_SUMS,
    *OF_ROWS,
)  # what a hello can say of a neighbour; only ever added to
REFUSAL = struct.Struct("<8sQB")
MOST_REFUSALS = 32
RELEASE, OF_RELEASE = b"release\0", 255
_PART = 1 << 20  # below which each number of a version is


class Refused(Exception):
    """A message that is not used; `reason` is one word to count, the text is for people."""

    def __init__(self, reason: str, text: str) -> None:
        self.reason, self.text = reason, text
        super().__init__(f"{reason}: {text}")


@dataclass(frozen=True)
class RefusalNotice:
    """What a hello says of a neighbour of its sender: whose messages it does not use, and why."""

    whom: bytes
    incarnation: int
    reason: str


def mark_of(name: str) -> bytes:
    """A node in a refusal."""
    return sha256(name.encode()).digest()[:8]


@dataclass(frozen=True)
class Message:
    """One message; theta: (m, D) float32, None in a hello, which may have refusals, and say of
    which release of dokl its sender is, as "0.2.0".
    """

    kind: int
    fingerprint: str
    m: int
    D: int
    degree: int
    incarnation: int
    step: int
    count: int = 0
    learned: int = 0
    wall: float = 0.0
    finished: bool = False
    theta: Array | None = None
    waiting: bool = False
    refusals: tuple[RefusalNotice, ...] = ()
    body: bytes = b""
    release: str = ""

    @property
    def version(self) -> tuple[int, int]:
        """(incarnation, step): of two messages of a node the newer has the larger."""
        return self.incarnation, self.step


def fits(theta: Array, dtype: str) -> bool:
    """Whether every number can be sent as it is, up to rounding."""
    return dtype == "float32" or float(np.abs(theta).max(initial=0.0)) <= LARGEST16


def pack(message: Message, dtype: str = "float32") -> bytes:
    """The bytes of a message; theta in float32 or, at half the size, float16."""
    code = 0 if message.theta is None else DTYPES[dtype]
    flags = FINISHED * message.finished | WAITING * message.waiting
    head = HEADER.pack(
        MAGIC, VERSION, message.kind, code, flags,
        bytes.fromhex(message.fingerprint), message.m, message.D, message.degree,
        message.incarnation, message.step, message.count, message.learned, message.wall,
    )  # fmt: skip
    if message.kind in (*BODIES, *ROW_BODIES):
        return head + message.body
    if message.theta is None:
        about = b""
        if message.release:
            about = REFUSAL.pack(RELEASE, release_number(message.release), OF_RELEASE)
        refusals = message.refusals[: MOST_REFUSALS - bool(about)]
        return (head + about) + b"".join(
            REFUSAL.pack(each.whom, each.incarnation, SAID.index(each.reason)) for each in refusals
        )
    theta = message.theta
    if dtype == "float16":
        theta = np.clip(theta, -LARGEST16, LARGEST16)
    return bytes(head + theta.astype(_NUMBERS[code]).tobytes())


def unpack(
    data: bytes, *, fingerprint: str, m: int, D: int, most: int = 0,
    bodies: tuple[int, ...] = BODIES, earlier: Collection[str] = (),
) -> Message:  # fmt: skip
    """The message in these bytes, if it comes from a node like this one; else `Refused`.

    most: where sums or rows travel, the most bytes of a message of them, and bodies: its kinds;
    theta does not then. earlier: fingerprints of columns whose rows can be used, too.
    """
    if len(data) < HEADER.size:
        raise Refused("size", f"{len(data)} bytes, a message has at least {HEADER.size}")
    magic, version, kind, code, flags, print_, *shape = HEADER.unpack_from(data)
    theirs_m, theirs_D, degree, *counters, wall = shape
    if magic != MAGIC:
        raise Refused("magic", "this is not a message of dokl's")
    if version != VERSION:
        raise Refused("version", f"message layout {version}, this node reads {VERSION}")
    known = (HELLO, *bodies) if most else (HELLO, THETA)
    if kind not in known or code not in (_NUMBERS if kind == THETA else (0,)):
        raise Refused("kind", f"kind {kind} with numbers of type {code} is not known")
    if print_.hex() not in (fingerprint, *earlier):
        raise Refused("fingerprint", _strangers(fingerprint, print_.hex()))
    if (theirs_m, theirs_D) != (m, D):
        raise Refused("shape", f"theta of shape {(theirs_m, theirs_D)}, ours has {(m, D)}")
    size = HEADER.size + (m * D * _NUMBERS[code].itemsize if code else _tail(data))
    if kind in bodies and most:
        size = min(len(data), HEADER.size + most)
    if len(data) != size:
        raise Refused("size", f"{len(data)} bytes instead of {size}")
    if max(counters) >= LARGEST_COUNT or not math.isfinite(wall) or flags & ~(FINISHED | WAITING):
        raise Refused("numbers", "a counter, the clock or the flags are out of range")
    theta = _theta(data, _NUMBERS[code], m, D) if code else None
    finished, waiting = bool(flags & FINISHED), bool(flags & WAITING)
    incarnation, step, count, learned = counters
    return Message(
        kind, fingerprint, m, D, degree, incarnation, step, count, learned, wall, finished, theta,
        waiting, _refusals(data) if kind == HELLO else (),
        data[HEADER.size :] if kind in bodies and most else b"",
        _release(data) if kind == HELLO else "",
    )  # fmt: skip


def _tail(data: bytes) -> int:
    """How long the refusals of a hello may be, at most as long as they are."""
    times = (len(data) - HEADER.size) // REFUSAL.size
    return min(times, MOST_REFUSALS) * REFUSAL.size


def _refusals(data: bytes) -> tuple[RefusalNotice, ...]:
    """Those of a hello; what a later version may say is left out."""
    found = REFUSAL.iter_unpack(data[HEADER.size :])
    return tuple(RefusalNotice(whom, of, SAID[why]) for whom, of, why in found if why < len(SAID))


def _release(data: bytes) -> str:
    """What a hello says of its sender's release; "" where it says nothing."""
    for whom, number, why in REFUSAL.iter_unpack(data[HEADER.size :]):
        if (whom, why) == (RELEASE, OF_RELEASE):
            return release_text(number)
    return ""


def release_number(release: str) -> int:
    """The first three numbers of a version as one; the larger, the later.

    >>> release_number("0.2.0") < release_number("0.10.1.dev3") < release_number("1.0")
    True
    >>> release_text(release_number("0.10.1.dev3")), release_text(release_number("1.0"))
    ('0.10.1', '1.0.0')
    """
    parts = [int(part) for part in re.findall(r"\d+", release.partition("+")[0])[:3]]
    number = 0
    for part in (*parts, 0, 0, 0)[:3]:
        number = number * _PART + min(part, _PART - 1)
    return number


def release_text(number: int) -> str:
    """The same as text, whatever the number."""
    return f"{number // _PART**2}.{number // _PART % _PART}.{number % _PART}"


def _theta(data: bytes, dtype: Any, m: int, D: int) -> Array:
    theta: Array = np.frombuffer(data, dtype, offset=HEADER.size).astype(np.float32).reshape(m, D)
    # A comparison with NaN is false, so this finds NaN, infinity and absurd numbers alike.
    if not bool((np.abs(theta) <= LARGEST32).all()):
        raise Refused("finite", f"theta holds NaN, infinity or a number beyond {LARGEST32:g}")
    theta.setflags(write=False)
    return theta


def _strangers(ours: str, theirs: str) -> str:
    return (
        f"its fingerprint is {theirs}, ours is {ours}: another kernel, sigma, seed, variant, "
        "scaling or labels. Give both nodes the same description"
    )
