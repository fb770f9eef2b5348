"""Models, descriptions and checkpoints are plain files: pipes, devices and sockets are refused.

To open a pipe that nobody writes to waits for ever, so these tests would hang before the fix; a
timer ends them then.
"""

import os
import signal
import socket
from pathlib import Path

import numpy as np
import pytest

from commands import fails
from dokl import files
from dokl.base.errors import BadFile, BadInput
from dokl.live.certificates.authority import load_certificate, load_key
from dokl.live.sources.access import broker_access
from dokl.live.store.marks import mark_path, read_mark
from dokl.simulation.engines import mpi_checkpoints

KINDS = {"pipe": "a pipe (FIFO)", "socket": "a socket", "device": "a device"}


@pytest.fixture(autouse=True)
def no_waiting():
    """A call that hangs fails."""

    def late(signum, frame):
        raise AssertionError("it waits for somebody to write")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make(kind, path):
    """Something of a kind, at this path or where the system has it."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        folder = os.open(path.parent, os.O_RDONLY)  # paths of sockets have 108 bytes at most
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
    else:
        return Path("/dev/zero")
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [files.read, files.header, files.read_bytes, files.read_text])
def test_what_is_no_plain_file_is_refused(tmp_path, kind, read):
    path = make(kind, tmp_path / "it.dokl")
    with pytest.raises(BadFile) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: this is {KINDS[kind]}, a file is expected: save")


def test_a_link_to_a_file_is_read_and_one_to_a_pipe_is_not(tmp_path):
    written = files.write(tmp_path / "real.dokl", "example", {"n": 3}, {"x": np.arange(3.0)})
    (tmp_path / "link").symlink_to(written)
    assert files.read(tmp_path / "link", "example")[0] == {"n": 3}
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other").symlink_to(tmp_path / "pipe")
    with pytest.raises(BadFile, match="a pipe"):
        files.read(tmp_path / "other")


def test_texts_are_read_as_before(tmp_path):
    (tmp_path / "text").write_bytes("\ufeffä\r\nb\n".encode())
    assert files.read_text(tmp_path / "text", "utf-8-sig") == "ä\nb\n"
    assert files.read_bytes(tmp_path / "text")[:3] == b"\xef\xbb\xbf"


COMMANDS = {
    "inspect": ("inspect", "{}"),
    "inspect --json": ("inspect", "{}", "--json"),
    "predict": ("predict", "{}", "{}"),
    "evaluate": ("evaluate", "{}", "{}"),
    "export": ("export", "{}", "out.onnx"),
    "serve": ("serve", "{}"),
    "run": ("run", "{}"),
    "graph": ("graph", "{}"),
    "agent": ("agent", "{}", "--name", "a"),
    "agent, warm": ("agent", "lab.toml", "--name", "a", "--model", "{}"),
    "watch": ("watch", "{}", "--once"),
    "up": ("up", "{}"),
    "network check": ("network", "check", "{}"),
    "network show": ("network", "show", "{}"),
    "network add-node": ("network", "add-node", "{}", "x", "--link", "a"),
    "network renew": ("network", "renew", "{}"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_it_and_does_not_wait(tmp_path, monkeypatch, kind, command):
    monkeypatch.chdir(tmp_path)
    path = make(kind, tmp_path / "thing")
    words = [word.replace("{}", str(path)) for word in COMMANDS[command]]
    if "lab.toml" in words:
        Path("lab.toml").write_text(LAB)
    said = fails(*words, code=1)
    assert f"this is {KINDS[kind]}, a file is expected" in said
    assert str(path) in said


LAB = """
[network]
name = "lab"
security = "insecure-loopback"
[model]
D = 20
[inputs]
numeric = ["x"]
shift = [0.0]
count = [0.0]
total = [0.0]
square = [0.0]
[nodes.a]
address = "127.0.0.1:7001"
"""


@pytest.mark.parametrize("command", ["inspect", "run", "graph"])
def test_a_folder_is_named_as_one(tmp_path, command):
    said = fails(command, tmp_path)
    assert "this is a folder" in said or "is a directory" in said


# -- files that are not named on the command line ------------------------------------------------
def test_certificates_keys_marks_and_passwords(tmp_path):
    pipe = make("pipe", tmp_path / "pipe")
    for load in (load_certificate, load_key):
        with pytest.raises(BadFile, match="a pipe"):
            load(pipe)
    for name in ("PASSWORD_FILE", "CA"):
        with pytest.raises(BadFile, match="a pipe"):
            broker_access("mqtt", ["10.0.0.7:8883"], {f"DOKL_MQTT_{name}": str(pipe)})
    os.mkfifo(mark_path(tmp_path / "a.db"))
    with pytest.raises(BadFile, match="a pipe"):
        read_mark(tmp_path / "a.db")


def test_the_manifest_of_a_checkpoint(tmp_path):
    with pytest.raises(BadInput, match="a pipe"):
        mpi_checkpoints._understood(make("pipe", tmp_path / "manifest.json"), {})
