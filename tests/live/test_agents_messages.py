"""The layout of what travels: exact, and whatever arrives, nothing but `Refused` comes of it."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dokl.live.protocol.messages import (
    HEADER,
    HELLO,
    LARGEST16,
    THETA,
    Message,
    Refused,
    fits,
    pack,
    unpack,
)

PRINT, OTHER = "00112233aabbccdd", "ffeeddccbbaa9988"
REASONS = {"size", "magic", "version", "kind", "fingerprint", "shape", "finite", "numbers"}
OURS = {"fingerprint": PRINT, "m": 2, "D": 3}


def message(theta=None, **about):
    kind = HELLO if theta is None else THETA
    numbers = {"degree": 4, "incarnation": 17, "step": 5, "count": 9, "learned": 8, "wall": 1.5}
    return Message(kind, **{**OURS, **numbers, "theta": theta, **about})


def reason(data, **ours):
    with pytest.raises(Refused) as caught:
        unpack(data, **{**OURS, **ours})
    assert caught.value.text
    return caught.value.reason


def test_the_header_has_64_bytes_in_this_order():
    data = pack(message(np.arange(6.0).reshape(2, 3), finished=True))
    assert HEADER.size == 64
    assert data[:8] == b"dokl" + bytes([1, 2, 1, 1])
    assert data[8:16].hex() == PRINT
    assert data[16:24] == bytes([2, 0, 3, 0, 0, 0, 4, 0])
    numbers = [int.from_bytes(data[i : i + 8], "little") for i in range(24, 56, 8)]
    assert numbers == [17, 5, 9, 8]
    assert np.frombuffer(data[56:64], "<f8")[0] == 1.5
    assert np.frombuffer(data[64:], "<f4").tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("about", [{}, {"finished": True}, {"waiting": True}, {"count": 0}])
def test_there_and_back(about):
    hello = message(**about)
    assert unpack(pack(hello), **OURS) == hello
    theta = np.array([[1.0, -2.5, 1e-9], [3e8, 0.1, -0.0]], np.float32)
    got = unpack(pack(message(theta, **about)), **OURS)
    assert got.theta.tobytes() == theta.tobytes()
    assert (got.version, got.finished) == ((17, 5), about.get("finished", False))
    assert not got.theta.flags.writeable


def test_float16_halves_the_size_and_cuts_what_does_not_fit():
    theta = np.array([[1.0, -2.5, 1e-9], [3e8, 0.1, -1e5]], np.float32)
    data = pack(message(theta), "float16")
    assert len(data) == 64 + 12
    got = unpack(data, **OURS).theta
    assert got.dtype == np.float32
    assert got[1].tolist() == pytest.approx([LARGEST16, 0.1, -LARGEST16], rel=1e-3)
    assert got[0, :2].tolist() == [1.0, -2.5]
    assert not fits(theta, "float16")
    assert fits(theta, "float32")
    assert fits(theta[:1], "float16")


def test_each_fault_has_its_reason():
    theta = np.ones((2, 3), np.float32)
    good, hello = pack(message(theta)), pack(message())
    assert reason(b"") == reason(good[:63]) == reason(good[:-1]) == reason(good + b"\0") == "size"
    assert reason(hello + b"\0" * 24) == "size"
    assert reason(b"DOKL" + good[4:]) == "magic"
    assert reason(good[:4] + b"\x02" + good[5:]) == "version"
    for at, value in ((5, 0), (5, 3), (6, 0), (6, 3)):
        assert reason(good[:at] + bytes([value]) + good[at + 1 :]) == "kind"
    assert reason(hello[:6] + b"\x01" + hello[7:]) == "kind"
    assert reason(pack(message(theta)), fingerprint=OTHER) == "fingerprint"
    assert reason(good, D=4) == reason(good, m=1) == "shape"
    for bad in (np.nan, np.inf, -np.inf, 2e30):
        theta = np.ones((2, 3), np.float32)
        theta[1, 2] = bad
        assert reason(pack(message(theta))) == "finite"
    assert reason(pack(message(wall=np.nan))) == "numbers"
    assert reason(pack(message(step=1 << 63))) == "numbers"
    assert reason(hello[:7] + b"\x80" + hello[8:]) == "numbers"


def test_another_omega_is_refused_naming_both_fingerprints():
    with pytest.raises(Refused, match=f"{OTHER}.*{PRINT}"):
        unpack(pack(message(fingerprint=OTHER)), **OURS)


def test_a_huge_claim_takes_no_memory():
    data = bytearray(pack(message(np.ones((2, 3), np.float32))))
    data[16:22] = b"\xff" * 6  # m = 65535, D = 4294967295
    tracemalloc.start()
    try:
        assert reason(bytes(data)) == "shape"
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def survives(data):
    got = reason = None
    try:
        got = unpack(data, **OURS)
    except Refused as refused:
        reason = refused.reason
    assert (
        reason in REASONS
        or got.theta is None
        or (got.theta.shape == (2, 3) and np.isfinite(got.theta).all())
    )


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes(data):
    survives(data)
    survives(b"dokl\x01" + data)


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 87), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(-30, 30),
)
@settings(max_examples=500, deadline=None)
def test_mutated_messages(half, changes, longer):
    theta = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    data = bytearray(pack(message(theta), "float16" if half else "float32"))
    for at, value in changes:
        data[at % len(data)] = value
    survives(bytes(data[:longer] if longer < 0 else data + bytes(longer)))
