"""`dokl watch` from another machine: no keys, only the description, the authority and tokens."""

import json
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from lab import free_ports, wait_for

DOKL = (sys.executable, "-m", "dokl")


@pytest.fixture
def elsewhere():
    """An address of this machine that is not on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return probe.getsockname()[0]


@contextmanager
def agents(folder, host):
    """Two of them, at this address."""
    first, second, face = sorted(free_ports(3))  # b has the port after the last
    places = [f"--node=a={host}:{first}", f"--node=b={host}:{second}", "--graph", "complete"]
    faces = ["--http-host", host, "--http-base-port", str(face)]
    model = ["--inputs", "2", "--components", "20", "--sigma", "1", "--quiet"]
    made = [*DOKL, "network", "new", "lab.toml", *places, *faces, *model]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    running = []
    try:
        for name in "ab":
            words = [*DOKL, "agent", "lab.toml", "--name", name, "--log", f"{name}.log"]
            running.append(subprocess.Popen(words, cwd=folder))
        yield
    finally:
        for each in running:
            each.kill()
            each.wait(10)


def watch(folder):
    words = [*DOKL, "watch", "lab.toml", "--json", "--every", "0.2"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {node["name"]: node for node in json.loads(done.stdout)["nodes"]}


def test_it_needs_the_description_the_authority_and_the_reading_tokens(tmp_path, elsewhere):
    with agents(tmp_path, elsewhere):
        far = tmp_path / "far"
        (far / "lab.certs").mkdir(parents=True)
        for each in ("lab.toml", "lab.certs/ca.pem", "lab.certs/a.read.token"):
            shutil.copyfile(tmp_path / each, far / each)
        wait_for(lambda: watch(far)["a"]["state"] == "up", "a is up", 60)
        wanted = "it needs the token in b.read.token beside the certificates (401)"
        wait_for(lambda: watch(far)["b"]["why"] == wanted, "b wants its token")
        shutil.copyfile(tmp_path / "lab.certs/b.read.token", far / "lab.certs/b.read.token")
        assert {node["state"] for node in watch(far).values()} == {"up"}
