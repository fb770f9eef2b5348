import gzip

import numpy as np
import pytest

from data_files import BANANA, WAVE, beijing_archive, idx, lzw, tarred, zipped
from dokl.base.errors import BadInput
from dokl.paper.datasets import parse, unpack


def test_banana_of_both_archives():
    expected = b"x1,x2,y\n1.617466,-0.919233,-1\n0.5,0.25,1\n0,1,-1\n"
    assert unpack.banana_zip(zipped({"banana.all.txt": BANANA})) == expected
    assert unpack.banana_tar(tarred("banana/banana.all.txt", BANANA)) == expected
    with pytest.raises(ValueError, match=r"no banana.all.txt"):
        unpack.banana_zip(zipped({"other": b""}))
    with pytest.raises(ValueError, match=r"no banana.all.txt"):
        unpack.banana_tar(tarred("other", b""))


@pytest.mark.parametrize("renew_at", [None, 5, 3000])
@pytest.mark.parametrize("widest", [12, 16])
def test_unlzw(renew_at, widest):
    rng = np.random.default_rng(0)
    for data in (b"x", b"a" * 500, rng.choice(list(b"01234.,-\n"), 9000).astype("u1").tobytes(),
                 rng.bytes(6000)):  # fmt: skip
        assert unpack.unlzw(lzw(data, renew_at, widest)) == data


def test_unlzw_by_hand():
    # the codes 97, 257, 258, 257 ("a", "aa", "aaa", "aa"), nine bits each, low bits first
    codes = sum(code << 9 * i for i, code in enumerate((97, 257, 258, 257)))
    assert unpack.unlzw(b"\x1f\x9d\x90" + codes.to_bytes(5, "little")) == b"aaaaaaaa"
    for broken in (b"", b"\x1f\x8bxx", bytes.fromhex("1f9d90ffff")):
        with pytest.raises(ValueError, match=r"file of compress"):
            unpack.unlzw(broken)


def test_waveform_of_the_archive():
    csv = unpack.waveform_zip(zipped({"Index": b"", "waveform.data.Z": lzw(WAVE)}))
    assert csv == ",".join([*(f"x{i}" for i in range(1, 22)), "y"]).encode() + b"\n" + WAVE


def test_beijing_of_the_archive():
    lines = unpack.beijing_zip(beijing_archive()).decode().splitlines()
    assert lines[0] == "year,month,day,hour,PM2.5,PM10,wd,WSPM,station"
    assert lines[1] == "2013,3,1,0,4,NA,NNW,4.4,Changping"
    assert lines[4] == "2016,2,29,23,NA,8.5,NA,1,Dongsi"
    assert len(lines) == 5


def test_archives_cannot_fill_the_memory(monkeypatch):
    monkeypatch.setattr(unpack, "MOST", 1000)
    large = bytes(5000)
    for action in (
        lambda: unpack.plain(gzip.compress(large)),
        lambda: unpack.member(zipped({"a": large}), "a"),
        lambda: unpack.tar_member(tarred("a", large), "a"),
        lambda: unpack.beijing_zip(zipped({"a.csv": large})),
    ):
        with pytest.raises(ValueError, match=r"more than 1000 bytes"):
            action()


def test_idx_refuses_other_files():
    good = idx(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(parse.idx(good), [[0, 1, 2], [3, 4, 5]])
    for wrong in (b"", b"PNG", good[:-1], b"\0\0\x0d" + good[3:]):
        with pytest.raises(BadInput, match=r"MNIST's format"):
            parse.idx(wrong)
