"""One container for models, checkpoints and snapshots, and writes that happen whole or not at all.

The container is a safetensors file: named arrays, one JSON text that describes them, and a
checksum of both; docs/format.md is its specification. Nothing in it is ever executed.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = write(folder + "/small.safetensors", "example", {"n": 3}, {"x": np.arange(3.0)})
...     read(path, "example")
({'n': 3}, {'x': array([0., 1., 2.])})
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput

# An object of JSON or TOML: who reads it checks what is in it.
Json = dict[str, Any]
PathLike = str | os.PathLike[str]

# Raised whenever a reader of the old format would misunderstand the new one (docs/format.md).
FORMAT = 1

_TEXT, _SUM = "dokl", "dokl.sha256"
_LONGEST_HEADER = 100_000_000  # safetensors refuses longer ones
_WIDEST = 1 << 16  # characters of a string array; a wider claim is not believed, only its content

_TAGS = {"bool": "BOOL", "float16": "F16", "float32": "F32", "float64": "F64"}
_TAGS |= {f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)}
_TAGS |= {f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)}

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# -- the container -----------------------------------------------------------------------------
def write(
    path: PathLike, kind: str, meta: Mapping[str, object], arrays: Mapping[str, ArrayLike]
) -> Path:
    """Write arrays (numbers, truth values or strings, of any shape) and JSON-able meta to a file.

    The same content gives the same bytes.
    """
    data = to_bytes(kind, meta, arrays, str(path))
    with atomic_write(path) as file:
        file.write(data)
    return Path(path)


def to_bytes(
    kind: str,
    meta: Mapping[str, object],
    arrays: Mapping[str, ArrayLike],
    name: str = "the container",
) -> bytes:
    """The bytes that `write` writes, to store elsewhere; name: for messages."""
    from safetensors.numpy import save

    tensors, strings = _sorted_out(arrays)
    text = _description(kind, meta, strings)
    tensors[_SUM] = _checksum(text, tensors)
    data: bytes = save(tensors, {_TEXT: text})
    if int.from_bytes(data[:8], "little") > _LONGEST_HEADER:
        raise BadInput(f"{name}: more than {_LONGEST_HEADER:,} bytes of text and names")
    return data


def read(path: PathLike, kind: str | None = None) -> tuple[Json, dict[str, Array]]:
    """(meta, arrays) of a file of this kind, or of any kind; BadFile where that cannot be."""
    with _file_errors(path, "read"), open_plain(path) as file:
        text = _text(path, file)
        described = _understood(path, text, kind)
        file.seek(0)
        data = file.read()
    return _opened(path, text, described, data)


def from_bytes(
    data: bytes, kind: str | None = None, name: str = "the container"
) -> tuple[Json, dict[str, Array]]:
    """(meta, arrays) of what `to_bytes` made; BadFile where that cannot be."""
    text = _text(name, io.BytesIO(data))
    return _opened(name, text, _understood(name, text, kind), data)


def _opened(
    path: PathLike, text: str, described: Json, data: bytes
) -> tuple[Json, dict[str, Array]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors: dict[str, Array] = load(data)
        expected = tensors.pop(_SUM)
        intact = bool(np.array_equal(expected, _checksum(text, tensors)))
        strings = {name: _strings(packed) for name, packed in described["strings"].items()}
        meta: Json = dict(described["meta"])
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFile(f"{path}: the file is damaged ({error})") from error
    if not intact:
        raise BadFile(f"{path}: the file is damaged (its checksum does not match)")
    return meta, tensors | strings


def header(path: PathLike) -> Json:
    """{"format", "dokl", "kind"} of a file, from its first bytes: cheap, and not yet verified."""
    with _file_errors(path, "read"), open_plain(path) as file:
        described = _understood(path, _text(path, file), None)
    return {key: described[key] for key in ("format", "dokl", "kind")}


def _sorted_out(arrays: Mapping[str, ArrayLike]) -> tuple[dict[str, Array], Json]:
    """Numbers as contiguous little-endian arrays; strings as JSON, which has no offsets to err."""
    tensors: dict[str, Array] = {}
    strings: Json = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        if name.startswith(("dokl.", "__")):
            raise BadInput(f"the name {name!r} is reserved: array names do not begin so")
        if array.dtype.kind == "U":
            width = array.dtype.itemsize // 4
            flat = array.ravel().tolist()
            strings[name] = {"shape": list(array.shape), "width": width, "values": flat}
        elif array.dtype.name in _TAGS:
            tensors[name] = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        else:
            raise BadInput(f"array {name!r} of type {array.dtype} cannot be written to a file")
    return tensors, strings


def _strings(packed: Json) -> Array:
    values, shape = packed["values"], tuple(packed["shape"])
    if not all(isinstance(value, str) for value in values):
        raise ValueError("a string array holds something else")
    longest = max(map(len, values), default=0)
    width = max(1, longest, min(int(packed["width"]), _WIDEST))
    if len(values) * width > max(_WIDEST, 16 * sum(map(len, values))):  # more than it has letters
        width = max(1, longest)
    return np.array(values, dtype=f"U{width}").reshape(shape)


def _description(kind: str, meta: Mapping[str, object], strings: Json) -> str:
    from dokl import __version__

    content = {"format": FORMAT, "dokl": __version__, "kind": kind}
    try:
        return json.dumps(
            {**content, "meta": dict(meta), "strings": dict(strings)},
            allow_nan=False,  # no JSON; readers in other languages would stumble
            default=_plain,
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"this cannot be written as JSON: {error}") from None


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is neither text, number, list nor dictionary")


def _checksum(text: str, tensors: Mapping[str, Array]) -> Array:
    """SHA-256 of the description and of every array with its name, type and shape: (32,)."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        shape = ",".join(map(str, array.shape))
        digest.update(f"\0{name}\0{_TAGS[array.dtype.name]}\0{shape}\0".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest(), np.uint8)


def _text(path: PathLike, file: IO[bytes]) -> str:
    """The description, read before anything else: a foreign file may be of any size."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size == 0:
        raise BadFile(f"{path}: the file is empty")
    length, start = int.from_bytes(file.read(8), "little"), file.read(1)
    if size < 9:
        raise BadFile(f"{path}: the file is truncated to {size} bytes, or not one of dokl's")
    if start != b"{" or length > _LONGEST_HEADER:
        raise BadFile(f"{path}: this is not a file of dokl's")
    if size < 8 + length:
        raise BadFile(f"{path}: the file is truncated, it ends after {size:,} bytes")
    try:
        entries = json.loads(start + file.read(length - 1))
        text = entries.pop("__metadata__", {}).get(_TEXT)
        end = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        cut = bool(size < end)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise BadFile(f"{path}: the file is damaged ({error})") from error
    if not isinstance(text, str):
        raise BadFile(f"{path}: this is a safetensors file, but not one of dokl's")
    if cut:
        raise BadFile(f"{path}: the file is truncated, {size:,} bytes are left of {end:,}")
    return text


def _understood(path: PathLike, text: str, kind: str | None) -> Json:
    """The description, once it is clear that this version can read the file."""
    from dokl import __version__

    try:
        described: Json = json.loads(text)
        version, by, holds = described["format"], described["dokl"], described["kind"]
        newer = bool(version > FORMAT)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadFile(f"{path}: the file is damaged (its description: {error})") from error
    if newer:
        raise BadFile(
            f"{path}: written by a newer dokl, {by}, in file format {version}; this is dokl "
            f"{__version__}, which reads format {FORMAT}: upgrade with pip install -U dokl"
        )
    if kind is not None and holds != kind:
        raise BadFile(f"{path}: this is a file of kind {holds!r}, and not a {kind!r}")
    return described


# -- numbers that a file has -------------------------------------------------------------------
MOST = 1_000_000  # of anything that is counted in settings; sizes of arrays are compared with these


def whole(name: str, value: object, low: int = 0, high: int | None = None) -> int:
    """A whole number from low to high, or BadInput.

    >>> whole("D", -5, 1, 20)
    Traceback (most recent call last):
    dokl.base.errors.BadInput: D is -5: a whole number from 1 to 20 is expected
    """
    if (
        not isinstance(value, int | np.integer)
        or isinstance(value, bool)
        or not (low <= value and (high is None or value <= high))
    ):
        bounds = f"from {low}" + ("" if high is None else f" to {high}")
        raise BadInput(f"{name} is {_shown(value)}: a whole number {bounds} is expected")
    return int(value)


def real(
    name: str, value: object, low: float = 0.0, above: bool = False, infinite: bool = False
) -> float:
    """A finite number, at least low or above it, or BadInput. infinite: it may be that, too."""
    number = math.nan
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        with suppress(OverflowError):  # a whole number of hundreds of digits
            number = float(value)
    good = number > low or (number == low and not above)  # NaN is neither
    if not good or (number == math.inf and not infinite):
        bound = f"above {low:g}" if above else f"of at least {low:g}"
        raise BadInput(f"{name} is {_shown(value)}: a finite number {bound} is expected")
    return number


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 50 else text[:47] + "..."


# -- reading what is a file --------------------------------------------------------------------
_KINDS = {
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_plain(path: PathLike) -> IO[bytes]:
    """A file that is read whole, or more than once; BadFile for a pipe, a device or a socket.

    Opening a pipe that nobody writes to would wait for ever, and a device may have no end.
    OSError where there is no such file, where it is a folder, or without permission.
    """
    return open(path, "rb", opener=_descriptor)


def read_bytes(path: PathLike) -> bytes:
    """All of a plain file; errors as those of `open_plain`."""
    with open_plain(path) as file:
        return file.read()


def read_text(path: PathLike, encoding: str = "utf-8") -> str:
    """All of a plain file as text with "\\n" at the ends of lines; errors as of `open_plain`."""
    with open_plain(path) as file, io.TextIOWrapper(file, encoding=encoding) as text:
        return text.read()


def read_named_text(path: PathLike, wanted: str, encoding: str = "utf-8") -> str:
    """All of a text file that somebody named, `wanted`; BadInput says why it cannot be read."""
    try:
        return read_text(path, encoding)
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a directory: name {wanted}") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


def _descriptor(path: str, flags: int) -> int:
    try:
        number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has none
        mode = os.fstat(number).st_mode
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket cannot be opened at all
            raise
        number, mode = -1, os.stat(path).st_mode
    if number < 0 or stat.S_IFMT(mode) in _KINDS:
        if number >= 0:
            os.close(number)
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise BadFile(f"{path}: this is {kind}, a file is expected: save it as one first")
    return number


# -- writing whole or not at all ---------------------------------------------------------------
@contextmanager
def atomic_write(path: PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """A file to write to ("wb", or "w" for UTF-8 text) that takes its place when all is well.

    Whatever fails or interrupts, an earlier file stays as it was and nothing else is left. Links
    are followed, and an earlier file's permissions are kept. Pipes and devices, which have no
    earlier content, are written to directly.
    """
    place = _place(path)
    how: Json = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    if os.path.exists(place) and not os.path.isfile(place):
        with _file_errors(path, "written", _FULL), open(place, mode, **how) as file:
            yield file
        return
    part = place.with_name(f".{place.name[:32]}.{secrets.token_hex(4)}.part")
    try:
        with _file_errors(path, "written", _FULL):
            with _file_errors(path, "written"):
                file = open(part, mode.replace("w", "x"), **how)  # noqa: SIM115
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        with _file_errors(path, "written"):
            if os.path.exists(place):
                shutil.copymode(place, part)
            os.replace(part, place)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    _sync(place.parent)


def check_new(path: Path, overwrite: bool, advice: str = "--overwrite replaces it") -> None:
    """Refuse at once a file that could not, or should not, be written in the end."""
    if path.is_dir():
        raise BadInput(f"{path}: this is a folder, a file is expected")
    if path.exists() and not overwrite:
        raise BadInput(f"{path} exists: {advice}")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.absolute().parent}, make it first")


def atomic_text(path: PathLike, text: str) -> Path:
    """Write a text in UTF-8, whole or not at all."""
    with atomic_write(path, "w") as file:
        file.write(text)
    return Path(path)


def _place(path: PathLike) -> Path:
    """Where the file really goes, refused early where it cannot."""
    place = Path(os.path.realpath(path))
    if os.path.isdir(place):
        raise BadFile(f"{path}: this is a folder, a file is expected")
    if not os.path.isdir(place.parent):
        raise BadFile(f"{path}: there is no folder {place.parent}, or no permission to open it")
    # A rename would succeed where the folder allows it, against the wish of a read-only file.
    if os.path.exists(place) and not os.access(place, os.W_OK):
        raise BadFile(f"{path}: no permission, the file cannot be written")
    return place


def _sync(folder: Path) -> None:
    """Make the new name last, too; where folders cannot be synced the content still is."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def _file_errors(path: PathLike, done: str, only: Collection[int] | None = None) -> Iterator[None]:
    """Errors of the system as one clear message; with `only`, just those (others are not ours)."""
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        raise BadFile(f"{path}: {_reason(error, done)}") from error


def _reason(error: OSError, done: str) -> str:
    if error.errno in _FULL:
        return "the disk is full, or a quota is used up; an earlier file is as it was"
    return {
        errno.ENOENT: "there is no such file",
        errno.ENOTDIR: "there is no such file, a part of the path is no folder",
        errno.EISDIR: "this is a folder, a file is expected",
        errno.EACCES: f"no permission, the file cannot be {done}",
        errno.EPERM: f"no permission, the file cannot be {done}",
    }.get(error.errno or 0, f"the file cannot be {done} ({error.strerror or error})")
