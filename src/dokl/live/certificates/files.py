"""Files of certificates on the disk: private, and written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dokl.base.errors import BadFile, BadInput
from dokl.base.files import read_bytes

SUFFIXES = (".pem", ".key", ".token")


@contextmanager
def new_folder(folder: Path, content: dict[str, bytes], overwrite: bool = False) -> Iterator[None]:
    """A folder with these files, which stays if the block ends well.

    If it does not, or if anything fails before, the folder is not there; or, where one was and
    overwrite allows that, it is there as it was.
    """
    part, old = _beside(folder), _beside(folder)
    if os.path.lexists(folder):
        _check_replaceable(folder, overwrite)
    placed = False
    try:
        with _clear_errors(folder):
            part.mkdir(mode=0o700)
            for name, data in content.items():
                _write_new(part / name, data)
            if folder.exists():
                os.rename(folder, old)
            os.rename(part, folder)
            placed = True
        yield
    except BaseException:
        if placed:
            _remove(folder)
        if old.exists():
            os.rename(old, folder)
        raise
    finally:
        _remove(part)
    _remove(old)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:32]}.{secrets.token_hex(4)}.part")


def _check_replaceable(folder: Path, overwrite: bool) -> None:
    """Only what is a folder of certificates and nothing else may be replaced."""
    if not overwrite:
        raise BadInput(f"{folder} exists: --overwrite replaces it, and all its keys")
    strange = [] if not folder.is_dir() else [p for p in folder.iterdir() if not _is_ours(p)]
    if strange or not folder.is_dir() or folder.is_symlink():
        what = f"{strange[0].name} is in it" if strange else "it is no folder"
        raise BadInput(f"{folder} is not replaced: {what}, and that is not a certificate")


def _is_ours(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.is_file()


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@contextmanager
def _clear_errors(folder: Path) -> Iterator[None]:
    """Errors of the system as one clear message."""
    try:
        yield
    except OSError as error:
        raise BadFile(f"{folder}: cannot be written ({error.strerror or error})") from error


@contextmanager
def replace_files(folder: Path, content: dict[str, bytes | None]) -> Iterator[None]:
    """Files of a folder get new content (None: they go), which stays if the block ends well.

    All new ones lie ready before the first takes its place. Whatever fails, the files are as they
    were.
    """
    before = {name: _bytes(folder / name) for name in content}
    try:
        with _clear_errors(folder):
            _put(folder, content)
        yield
    except BaseException:
        with suppress(OSError):
            _put(folder, before)
        raise


def _put(folder: Path, content: dict[str, bytes | None]) -> None:
    parts = {name: _beside(folder / name) for name, data in content.items() if data is not None}
    try:
        for name, part in parts.items():
            _write_new(part, content[name] or b"", _mode(name))
        for name, part in parts.items():
            os.replace(part, folder / name)
        for name in content.keys() - parts.keys():
            (folder / name).unlink(missing_ok=True)
    finally:
        _unlink(parts.values())


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _bytes(path: Path) -> bytes | None:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None


def _mode(name: str) -> int:
    return 0o644 if name.endswith(".pem") else 0o600


def _write_new(path: Path, data: bytes, mode: int | None = None) -> None:
    """A file that nobody else could read at any moment; synced."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(path, _mode(path.name) if mode is None else mode)
