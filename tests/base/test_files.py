"""The container of models, checkpoints and snapshots."""

import errno
import json
import os
import pickle
import struct

import numpy as np
import pytest

from dokl import files
from dokl.base.errors import BadFile, BadInput

ARRAYS = {
    "none": np.zeros((0, 3)),
    "number": np.array(2.5, np.float32),
    "truth": np.array([[True, False], [False, True]]),
    "whole": np.array([-(2**62), 2**62]),
    "small": np.arange(6, dtype=np.uint8).reshape(1, 2, 3),
    "strided": np.arange(24.0).reshape(4, 6)[::2, ::-3],
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big-endian": np.arange(4, dtype=">f4"),
    "text": np.array([["a", "größe"], ["日本", ""]]),
    "wide": np.array(["ab"], "U20"),
    "one text": np.array("x"),
    "no text": np.array([], "U3"),
    "strange": np.array(["\ud800", 'quote" \\ \n', "\U0001f600"]),
    "wild": np.array([np.nan, np.inf, -0.0, 5e-324]),
}
META = {"n": 3, "name": "größe", "nested": {"list": [1, 2.5, None, True]}, "1": 0.1}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.safetensors"


@pytest.fixture
def written(path):
    """A file with something in every section."""
    return files.write(path, "example", META, ARRAYS)


# -- round trips -------------------------------------------------------------------------------
def test_everything_comes_back(written):
    meta, arrays = files.read(written, "example")
    assert meta == META
    assert set(arrays) == set(ARRAYS)
    for name, expected in ARRAYS.items():
        found = arrays[name]
        assert found.shape == expected.shape, name
        assert found.dtype == expected.dtype.newbyteorder("="), name
        np.testing.assert_array_equal(found, expected)
        assert found.flags.writeable, name


def test_any_kind_and_the_header(written):
    assert files.read(written)[0] == META
    header = files.header(written)
    assert header["format"] == files.FORMAT
    assert header["kind"] == "example"


def test_same_content_same_bytes(written, tmp_path):
    again = files.write(tmp_path / "again", "example", META, ARRAYS)
    assert again.read_bytes() == written.read_bytes()


def test_nothing_at_all_can_be_written(path):
    assert files.read(files.write(path, "example", {}, {})) == ({}, {})


def test_numpy_numbers_in_meta(path):
    files.write(path, "example", {"a": np.int64(3), "b": np.float32(0.5), "c": np.True_}, {})
    assert files.read(path)[0] == {"a": 3, "b": 0.5, "c": True}


@pytest.mark.parametrize("path_of", [str, os.fspath, lambda p: p])
def test_paths_of_all_kinds(path, path_of):
    assert files.write(path_of(path), "example", {}, {}) == path
    assert files.read(path_of(path)) == ({}, {})


@pytest.mark.parametrize(
    "array", [np.array([1j]), np.array([None]), np.array(["2020"], "M8[Y]"), np.array([b"x"])]
)
def test_arrays_that_no_file_can_hold(path, array):
    with pytest.raises(BadInput, match=r"array 'x' of type .* cannot be written"):
        files.write(path, "example", {}, {"x": array})
    assert not path.exists()


@pytest.mark.parametrize("meta", [{"a": float("nan")}, {"a": object()}, {"a": {(1, 2): 3}}])
def test_meta_that_is_no_json(path, meta):
    with pytest.raises(BadInput, match="cannot be written as JSON"):
        files.write(path, "example", meta, {})


@pytest.mark.parametrize("name", ["dokl.sha256", "__metadata__"])
def test_reserved_names(path, name):
    with pytest.raises(BadInput, match="reserved"):
        files.write(path, "example", {}, {name: np.zeros(3)})


def test_a_header_that_no_reader_would_take(path, monkeypatch):
    monkeypatch.setattr(files, "_LONGEST_HEADER", 1000)
    with pytest.raises(BadInput, match="more than 1,000 bytes of text"):
        files.write(path, "example", {"text": "x" * 2000}, {})


# -- files that cannot be read -----------------------------------------------------------------
def refused(path, kind=None):
    with pytest.raises(BadFile) as caught:
        files.read(path, kind)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message


def test_missing_file(path):
    assert "there is no such file" in refused(path)


def test_missing_folder(path):
    assert "there is no such file" in refused(path / "below")


def test_folder(tmp_path):
    assert "this is a folder" in refused(tmp_path)


def test_empty(path):
    path.touch()
    assert "the file is empty" in refused(path)


def test_other_kind(written):
    assert "kind 'example', and not a 'model'" in refused(written, "model")


def test_truncated_anywhere(written, path):
    whole = written.read_bytes()
    for tenth in range(1, 10):
        path.write_bytes(whole[: len(whole) * tenth // 10])
        assert "truncated" in refused(path)
    for size in (1, 7, 8, 9, 20, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert "truncated" in refused(path)


def test_more_than_there_should_be(written):
    with open(written, "ab") as file:
        file.write(b"more")
    assert "damaged" in refused(written)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"theta": [1.0, 2.0]}),
        b"x1,x2,y\n" * 100,
        b"\0" * 100,
        b"PK\x03\x04" + bytes(range(256)),
        b'{"format": 1, "kind": "model"}',
        struct.pack("<Q", 2) + b"[]",
    ],
    ids=["pickle", "csv", "zeros", "zip", "json", "list"],
)
def test_foreign_files(path, content):
    path.write_bytes(content)
    assert "not a file of dokl's" in refused(path)


def test_foreign_safetensors(path):
    from safetensors.numpy import save_file

    save_file({"weight": np.zeros(3)}, path)
    assert "a safetensors file, but not one of dokl's" in refused(path)
    save_file({"weight": np.zeros(3)}, path, {"format": "pt"})
    assert "a safetensors file, but not one of dokl's" in refused(path)


def test_a_large_foreign_file_is_not_read_to_its_end(path):
    with open(path, "wb") as file:
        file.write(b"a,b,c\n1,2,3\n")
        file.truncate(1 << 40)  # a hole, which takes no space: read whole, it would not fit
    assert "not a file of dokl's" in refused(path)


def test_newer_format(path, monkeypatch):
    monkeypatch.setattr(files, "FORMAT", 7)
    monkeypatch.setattr("dokl.__version__", "9.8.7")
    files.write(path, "example", {}, {})
    monkeypatch.undo()
    message = refused(path, "model")
    assert "written by a newer dokl, 9.8.7, in file format 7" in message
    assert "pip install -U dokl" in message
    with pytest.raises(BadFile, match="newer"):
        files.header(path)


def test_no_permission_to_read(written, monkeypatch):
    def denied(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    assert "no permission, the file cannot be read" in refused(written)


def test_flipped_bits_are_found(written, path):
    """A flip either is found, or hits the padding and changes nothing."""
    whole = bytearray(written.read_bytes())
    expected = files.read(written)
    rng = np.random.default_rng(7)
    found = 0
    for at in rng.integers(len(whole), size=600):
        damaged = whole.copy()
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            meta, arrays = files.read(path, "example")
        except BadFile:
            found += 1
            continue
        assert meta == expected[0]
        for name, array in expected[1].items():
            np.testing.assert_array_equal(arrays[name], array)
    assert found > 550


def rewritten(path, change):
    """The same file with another header, as a careless program might leave it."""
    blob = path.read_bytes()
    (length,) = struct.unpack("<Q", blob[:8])
    entries = json.loads(blob[8 : 8 + length])
    change(entries)
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + blob[8 + length :])


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: entries.pop("dokl.sha256"),
        lambda entries: entries.pop("number"),
        lambda entries: entries["number"].pop("data_offsets"),
        lambda entries: entries["number"].update(data_offsets=["a", "b"]),
        lambda entries: entries["number"].update(data_offsets=[0]),
        lambda entries: entries["number"].update(dtype="F99"),
        lambda entries: entries["number"].update(dtype="I32"),
        lambda entries: entries["strided"].update(shape=[2, 2, 1]),
        lambda entries: entries.update(number=None),
        lambda entries: entries.update(__metadata__=[]),
        lambda entries: entries["__metadata__"].update(dokl="{"),
        lambda entries: entries["__metadata__"].update(dokl="[" * 100_000),
        lambda entries: entries["__metadata__"].update(dokl="[]"),
        lambda entries: entries["__metadata__"].update(dokl='{"format": "x"}'),
        lambda entries: entries["__metadata__"].update(
            dokl=entries["__metadata__"]["dokl"].replace("0.1,", "0.2,").replace("2.5,", "2.6,")
        ),
    ],
)
def test_headers_gone_wrong(written, change):
    rewritten(written, change)
    assert "damaged" in refused(written, "example")


def test_strings_that_are_none(path):
    def change(entries):
        described = json.loads(entries["__metadata__"]["dokl"])
        described["strings"]["text"].update(values=[1, 2])
        entries["__metadata__"]["dokl"] = json.dumps(described)

    files.write(path, "example", {}, {"text": np.array(["a", "b"])})
    rewritten(path, change)
    assert "damaged" in refused(path)
