"""The files behind the data sets: their hashes, where the public has them, and how to get one.

A file is known by two hashes: of the packed file as it is usually passed around, and of its
content, since the same content is packed differently by every tool. One of them must match.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dokl.base.errors import BadInput
from dokl.base.progress import progress
from dokl.paper.datasets import unpack

VARIABLE = "DOKL_DATA"
SECONDS = 60  # of silence before a server is given up
# What a server, or what it sends, may do wrong.
_FETCH_ERRORS = (
    OSError,  # urllib's errors are among them
    EOFError,
    ValueError,
    KeyError,
    http.client.HTTPException,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Download:
    """A public address, and how to get our content from what lies there."""

    url: str
    content: Callable[[bytes], bytes] = unpack.plain


@dataclass(frozen=True)
class DataFile:
    """name: gzip's, as kept in a folder; sha256: of that file; content: of what is in it."""

    name: str
    sha256: str
    content: str
    sources: tuple[Download, ...]


def _mnist(name: str, sha256: str, content: str) -> DataFile:
    mirrors = (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    )
    return DataFile(name, sha256, content, tuple(Download(mirror + name) for mirror in mirrors))


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_UCI = "https://archive.ics.uci.edu/static/public/"

FILES: dict[str, tuple[DataFile, ...]] = {
    "adult": (
        DataFile(
            "a9a.gz",
            "b301f3e87350539f3ebc751d07b4691a8c66f0bf38c1d179c86bbf5e2d9623b2",
            "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
            (Download(_LIBSVM + "a9a"),),
        ),
        DataFile(
            "a9a.t.gz",
            "92967561181c73a60149cc8221b936eb746573fda8cbf483115d673f42b26c3f",
            "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
            (Download(_LIBSVM + "a9a.t"),),
        ),
    ),
    "banana": (
        DataFile(
            "banana.csv.gz",
            "24ee7cd319d1ff08ca870514f7edf2b17220ce0c8c31d4a61d6ab18a04cb121b",
            "6ed22e66bbf85067a0f674aefd6ca27302b70afb4cd9c1ab74f403270de2a596",
            (
                Download(
                    "https://raw.githubusercontent.com/online-ml/river/main/river/datasets/banana.zip",
                    unpack.banana_zip,
                ),
                Download(
                    "https://leon.bottou.org/_media/papers/lasvm-banana.tar.bz2", unpack.banana_tar
                ),
            ),
        ),
    ),
    "waveform": (
        DataFile(
            "waveform_uci.csv.gz",
            "931fbe10e08e75075bbde8e6db5a4a737366b7b5577c0be1e164f49199f420d8",
            "6e48c0571b5576c58e51fc40b29c7b325062fb4ba1f5bbbcb817a4de0c84732f",
            (
                Download(
                    _UCI + "107/waveform+database+generator+version+1.zip", unpack.waveform_zip
                ),
            ),
        ),
    ),
    "mnist": (
        _mnist(
            "train-images-idx3-ubyte.gz",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        _mnist(
            "train-labels-idx1-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        _mnist(
            "t10k-images-idx3-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        _mnist(
            "t10k-labels-idx1-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "beijing": (
        DataFile(
            "beijing_air.csv.gz",
            "b1924e93dadf5fe4470938e2cd37f698c62e9eaeaac2f7c942c687c3413b02ed",
            "afbb5861182a64e807fb2fed5c05cd599191dd088292e2de7784b99dbf062e1b",
            (Download(_UCI + "501/beijing+multi+site+air+quality+data.zip", unpack.beijing_zip),),
        ),
    ),
}


def cache_folder() -> Path:
    """Where fetched files are kept: the place the system has for that."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dokl"


def contents(
    name: str, data_dir: str | os.PathLike[str] | None = None, show_progress: bool | None = None
) -> list[bytes]:
    """The contents of a data set's files, checked: from `data_dir` or the folder in DOKL_DATA if
    one is given, and only from there; otherwise from the cache, and at last from the public.
    """
    folder = data_dir if data_dir is not None else os.environ.get(VARIABLE) or None
    if folder is not None:
        return [_from_folder(file, Path(folder)) for file in FILES[name]]
    return [_from_cache(file) or _from_public(file, show_progress) for file in FILES[name]]


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _checked(file: DataFile, raw: bytes, where: str) -> bytes:
    """The content, if one of the hashes is right."""
    found = _sha256(raw)
    try:
        content = unpack.plain(raw)
    except _FETCH_ERRORS:
        content = b""
    if found == file.sha256 or _sha256(content) == file.content:
        return content
    raise BadInput(
        f"{where} is not the file it should be: its sha256 is {found}, expected {file.sha256} "
        f"(or {file.content} for its content unpacked). Remove it and get it again."
    )


def _from_folder(file: DataFile, folder: Path) -> bytes:
    plain = folder / file.name.removesuffix(".gz")
    for path in (folder / file.name, plain):
        if path.is_file():
            return _checked(file, path.read_bytes(), str(path))
    raise BadInput(
        f"there is no {file.name} in {folder}. Put it there (or its content as {plain.name}): "
        f"sha256 {file.sha256}, unpacked {file.content}; from {_urls(file)}. Or name another "
        f"folder with --data-dir or {VARIABLE}; or neither, and it is fetched and kept in "
        f"{cache_folder()}."
    )


def _urls(file: DataFile) -> str:
    return " or ".join(source.url for source in file.sources)


def _from_cache(file: DataFile) -> bytes | None:
    path = cache_folder() / file.name
    try:
        return _checked(file, path.read_bytes(), str(path))
    except (OSError, BadInput):  # absent or damaged: it will be fetched again
        return None


def _from_public(file: DataFile, show_progress: bool | None) -> bytes:
    reasons = []
    for source in file.sources:
        try:
            content = source.content(fetch(source.url, file.name, show_progress))
            content = _checked(file, content, source.url)
        except (*_FETCH_ERRORS, BadInput) as error:
            reasons.append(f"{source.url}: {error}")
            continue
        _keep(cache_folder() / file.name, content)
        return content
    raise BadInput(
        f"{file.name} could not be fetched ({'; '.join(reasons)}). On a machine without a network, "
        f"get the file elsewhere (sha256 {file.sha256}, unpacked {file.content}), put it in a "
        f"folder and name that folder with --data-dir, or in the variable {VARIABLE}."
    )


def fetch(url: str, label: str, show_progress: bool | None = None) -> bytes:
    """What lies at a web address, up to a limit."""
    if not url.startswith(("https://", "http://")):
        raise ValueError("not a web address")
    request = urllib.request.Request(url, headers={"User-Agent": "dokl"})
    parts, size = [], 0
    with urllib.request.urlopen(request, timeout=SECONDS) as reply:
        total = int(reply.headers.get("Content-Length") or 0) or None
        with progress(total, f"fetching {label}", show_progress, unit="bytes") as bar:
            while part := reply.read(1 << 16):
                parts.append(part)
                size += len(part)
                bar.advance(len(part))
                if size > unpack.MOST:
                    raise ValueError(f"more than {unpack.MOST} bytes")
    if total is not None and size != total:
        raise EOFError(f"ended after {size} of {total} bytes")
    return b"".join(parts)


def _keep(path: Path, content: bytes) -> None:
    """Write whole or not at all; a cache that cannot be written is no reason to fail."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(gzip.compress(content, mtime=0))
        os.replace(file.name, path)
    except OSError:
        return
