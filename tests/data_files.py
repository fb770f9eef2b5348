"""Small files in every format that the data sets come in."""

import bz2
import io
import tarfile
import zipfile

import numpy as np

A9A = b"-1 3:1 11:1 123:1 \n+1 1:1 \n", b"+1 2:1 3:1 \n"
BANANA = b"-1 1:1.617466 2:-0.919233 \n1 1:0.5 2:0.25 \n-1 1:0 2:1 \n"
_WAVES = [[*(f"{i * (j + 1) % 23}.5" for j in range(21)), str(i % 3)] for i in range(6)]
WAVE = "".join(",".join(row) + "\n" for row in _WAVES).encode()
STATION = (
    b'"No","year","month","day","hour","PM2.5","PM10","wd","WSPM","station"\r\n'
    b'1,2013,3,1,0,4,NA,"NNW",4.4,"%s"\r\n'
    b'2,2016,2,29,23,NA,8.5,NA,1,"%s"\r\n'
)


def idx(array):
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(name, content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return bz2.compress(buffer.getvalue())


def lzw(data, renew_at=None, widest=16):
    """Unix's `compress`, written for this test; held to gzip's unpacking when it was written."""
    packed, spare, bits, codes = bytearray(), 0, 0, 0
    table, size, width, word = {bytes([i]): i for i in range(256)}, 257, 9, b""

    def emit(code, closing):
        nonlocal spare, bits, codes
        spare, bits, codes = spare | code << bits, bits + width, codes + 1
        if closing:  # fill the group of eight
            bits, codes = bits + -codes % 8 * width, 0
        while bits >= 8:
            packed.append(spare & 255)
            spare, bits = spare >> 8, bits - 8

    for i, byte in enumerate(data):
        longer = word + bytes([byte])
        if longer in table:
            word = longer
            continue
        wider = size == 1 << width and width < widest
        emit(table[word], wider)
        if size < 1 << widest:
            table[longer], size = size, size + 1
        width, word = width + wider, bytes([byte])
        if renew_at is not None and i >= renew_at:
            emit(256, True)
            renew_at, table, size, width = None, {bytes([j]): j for j in range(256)}, 257, 9
    emit(table[word], False)
    return bytes([0x1F, 0x9D, 0x80 | widest]) + bytes(packed) + bytes([spare] if bits > 0 else [])


def beijing_archive():
    stations = {
        f"PRSA/{name.decode()}.csv": STATION % (name, name) for name in (b"Dongsi", b"Changping")
    }
    inner = zipped(stations)
    return zipped({"data.csv": b"", "PRSA2017.zip": inner})
