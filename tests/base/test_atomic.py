"""Writes that happen whole or not at all, whatever fails or interrupts."""

import errno
import os
import resource
import stat
import subprocess
import sys

import numpy as np
import pytest

from dokl import files
from dokl.base.errors import BadFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.safetensors"


@pytest.fixture
def written(path):
    """An earlier file."""
    return files.write(path, "example", {"n": 1}, {"x": np.arange(10.0)})


def leftovers(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".part"))


def raising(error):
    def fail(*args, **kwargs):
        raise error

    return fail


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt(), MemoryError()], ids=repr)
def test_a_failed_write_leaves_the_old_file(written, monkeypatch, call, error):
    before = written.read_bytes()
    monkeypatch.setattr(call, raising(error))
    with pytest.raises(BadFile if error is FULL else type(error)) as caught:
        files.write(written, "example", {}, {"x": np.arange(1000.0)})
    assert error is not FULL or "the disk is full" in str(caught.value)
    monkeypatch.undo()
    assert written.read_bytes() == before
    assert os.listdir(written.parent) == [written.name]


def test_a_body_that_fails_leaves_the_old_file(path):
    files.atomic_text(path, "old")
    with pytest.raises(ZeroDivisionError), files.atomic_write(path, "w") as file:
        file.write(str(file.write("new") / 0))
    assert path.read_text() == "old"
    assert leftovers(path.parent) == []


def test_errors_of_the_body_are_its_own(path):
    with pytest.raises(BrokenPipeError), files.atomic_write(path):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    with pytest.raises(FileNotFoundError, match="other"), files.atomic_write(path):
        raise FileNotFoundError(errno.ENOENT, "No such file", "other")


def test_text_is_written_as_it_is(path):
    assert files.atomic_text(path, "größe\r\n1\n") == path
    assert path.read_bytes() == "größe\r\n1\n".encode()


CRASH = """
import os, sys
import numpy as np
from dokl import files
os.fsync = lambda number: os._exit(9)
files.write(sys.argv[1], "example", {}, {"x": np.arange(1000.0)})
"""


def test_a_process_that_dies_in_the_middle(written):
    before = written.read_bytes()
    done = subprocess.run([sys.executable, "-c", CRASH, str(written)], check=False, timeout=300)
    assert done.returncode == 9
    assert written.read_bytes() == before
    assert files.read(written)[0] == {"n": 1}


FILL = """
import sys
import numpy as np
from dokl import files
from dokl.base.errors import BadFile
path = sys.argv[1] + "/model"
files.write(path, "example", {"n": 1}, {})
try:
    files.write(path, "example", {"n": 2}, {"x": np.arange(100_000.0)})
except BadFile as error:
    print(error)
print(files.read(path))
print(__import__("os").listdir(sys.argv[1]))
"""
SMALL_DISK = ["unshare", "--map-root-user", "--mount", "sh", "-c"]


def small_disk(folder):
    """A command that runs another one with a real disk of 64 kB there, None without the right."""
    mount = 'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"'
    prefix = [*SMALL_DISK, mount, str(folder)]
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False, timeout=60)
    except FileNotFoundError:
        return None
    return prefix if tried.returncode == 0 else None


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


@pytest.mark.parametrize("how", ["disk", "limit"])
def test_a_disk_that_is_really_full(tmp_path, how):
    prefix = small_disk(tmp_path) if how == "disk" else None
    done = subprocess.run(
        [*(prefix or []), sys.executable, "-c", FILL, str(tmp_path)],
        preexec_fn=None if prefix else limited,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0].startswith(f"{tmp_path}/model: the disk is full")
    assert lines[1:] == ["({'n': 1}, {})", "['model']"]


def test_permissions_follow_the_umask(path):
    before = os.umask(0o027)
    try:
        files.atomic_text(path, "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_permissions_of_an_earlier_file_are_kept(path):
    path.touch(0o600)
    files.atomic_text(path, "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_links_are_followed(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path.name)
    files.atomic_text(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(path):
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        files.atomic_text(path, "through")
        assert os.read(end, 100) == b"through"
    finally:
        os.close(end)
    assert path.is_fifo()


def test_a_full_device():
    with pytest.raises(BadFile, match="/dev/full: the disk is full"):
        files.atomic_text("/dev/full", "x")


def test_a_long_name_needs_no_longer_one(tmp_path):
    path = tmp_path / ("n" * 255)
    files.atomic_text(path, "x")
    assert path.read_text() == "x"
    with pytest.raises(BadFile, match="cannot be written"):
        files.atomic_text(tmp_path / ("n" * 256), "x")


def test_writing_where_nothing_can_be_written(path, tmp_path, monkeypatch):
    with pytest.raises(BadFile, match="this is a folder"):
        files.atomic_text(tmp_path, "x")
    with pytest.raises(BadFile, match=r"there is no folder .*nowhere, or no permission"):
        files.atomic_text(tmp_path / "nowhere" / "x", "x")
    path.write_text("old")
    monkeypatch.setattr("os.access", lambda *args: False)
    with pytest.raises(BadFile, match="no permission, the file cannot be written"):
        files.atomic_text(path, "x")
    monkeypatch.undo()
    monkeypatch.setattr("os.replace", raising(PermissionError(errno.EACCES, "denied")))
    with pytest.raises(BadFile, match="no permission, the file cannot be written"):
        files.atomic_text(path, "x")
    assert path.read_text() == "old"


def test_a_picture_that_cannot_be_drawn_leaves_the_old_one(path):
    from dokl.tables.report import save_picture

    class Figure:
        def savefig(self, file, **settings):
            file.write(b"half a picture")
            raise MemoryError

    path = path.with_suffix(".png")
    path.write_text("old")
    with pytest.raises(MemoryError):
        save_picture(Figure(), path)
    assert path.read_text() == "old"
    assert leftovers(path.parent) == []
