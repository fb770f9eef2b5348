"""From the archives that the public offers to the text that we keep and check."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

MOST = 200_000_000  # bytes; nothing here is larger, whatever an archive claims


def _limited(raw: bytes) -> bytes:
    if len(raw) > MOST:
        raise ValueError(f"more than {MOST} bytes")
    return raw


def plain(raw: bytes) -> bytes:
    """Text as it is, or unpacked where it is gzip's.

    >>> plain(gzip.compress(b"x,y"))
    b'x,y'
    """
    if raw[:2] != b"\x1f\x8b":
        return raw
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        return _limited(file.read(MOST + 1))


def member(raw: bytes, ending: str) -> bytes:
    """The first file of a zip archive whose name ends so."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for info in archive.infolist():
            if info.filename.endswith(ending):
                with archive.open(info) as file:
                    return _limited(file.read(MOST + 1))
    raise ValueError(f"no {ending} in the archive")


def tar_member(raw: bytes, ending: str) -> bytes:
    """The first file of a tar archive, packed or not, whose name ends so."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for info in archive:
            file = archive.extractfile(info) if info.name.endswith(ending) else None
            if file is not None:
                return _limited(file.read(MOST + 1))
    raise ValueError(f"no {ending} in the archive")


def banana_csv(libsvm: bytes) -> bytes:
    """Lines 'y 1:a 2:b' as 'a,b,y' under a header.

    >>> banana_csv(b"-1 1:0.5 2:1.25 ")
    b'x1,x2,y\\n0.5,1.25,-1\\n'
    """
    rows = ["x1,x2,y"]
    for line in libsvm.decode("ascii").splitlines():
        y, *entries = line.split()
        values = dict(entry.split(":") for entry in entries)
        rows.append(f"{values['1']},{values['2']},{y}")
    return ("\n".join(rows) + "\n").encode()


def banana_zip(raw: bytes) -> bytes:
    """River's archive."""
    return banana_csv(member(raw, "banana.all.txt"))


def banana_tar(raw: bytes) -> bytes:
    """LASVM's archive."""
    return banana_csv(tar_member(raw, "banana.all.txt"))


def waveform_csv(data: bytes) -> bytes:
    """UCI's lines under a header."""
    header = ",".join([*(f"x{i}" for i in range(1, 22)), "y"])
    return header.encode() + b"\n" + data


def waveform_zip(raw: bytes) -> bytes:
    """UCI's archive, whose data file is one of Unix's old `compress`."""
    return waveform_csv(unlzw(member(raw, "waveform.data.Z")))


def beijing_csv(stations: list[bytes]) -> bytes:
    """The stations' files one after the other, without quotes and the running number.

    >>> beijing_csv([b'"No","year"\\n1,2013\\n', b'"No","year"\\n1,2014\\n'])
    b'year\\n2013\\n2014\\n'
    """
    rows: list[str] = []
    for file in stations:
        lines = file.decode("ascii").replace('"', "").splitlines()
        rows += [line.partition(",")[2] for line in (lines[1:] if rows else lines)]
    return ("\n".join(rows) + "\n").encode()


def beijing_zip(raw: bytes) -> bytes:
    """UCI's archive: twelve files in an archive in an archive."""
    with zipfile.ZipFile(io.BytesIO(raw)) as outer:
        nested = [name for name in outer.namelist() if name.endswith(".zip")]
    with zipfile.ZipFile(io.BytesIO(member(raw, nested[0]) if nested else raw)) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".csv"))
        if sum(archive.getinfo(name).file_size for name in names) > MOST:
            raise ValueError(f"more than {MOST} bytes")
        return beijing_csv([archive.read(name) for name in names])


def unlzw(raw: bytes) -> bytes:
    """Unpack a file of Unix's `compress` (.Z): LZW with codes of 9 to 16 bits, low bits first.

    Codes come in groups of eight; a new width, or a new table (code 256), begins a new
    group, and what was left of the old one is skipped.
    """
    if raw[:2] != b"\x1f\x9d" or len(raw) < 3:
        raise ValueError("not a file of compress")
    widest, renews = raw[2] & 31, bool(raw[2] & 128)
    data, table = raw[3:], [bytes([i]) for i in range(256)]
    table += [b""] if renews else []
    out: list[bytes] = []
    width, position, group, previous = 9, 0, 0, b""
    while True:
        if len(table) >= 1 << width and width < widest:
            position = group = group + -(-(position - group) // (8 * width)) * 8 * width
            width += 1
        if position + width > 8 * len(data):
            return b"".join(out)
        at, shift = divmod(position, 8)
        code = int.from_bytes(data[at : at + 4], "little") >> shift & (1 << width) - 1
        position += width
        if code == 256 and renews:
            position = group = group + -(-(position - group) // (8 * width)) * 8 * width
            width = 9
            del table[256:]
            continue
        if code > len(table) or (code == len(table) and not previous):
            raise ValueError("a broken file of compress")
        entry = table[code] if code < len(table) else previous + previous[:1]
        if previous and len(table) < 1 << widest:
            table.append(previous + entry[:1])
        out.append(entry)
        previous = entry
