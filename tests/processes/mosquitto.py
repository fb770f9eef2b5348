"""Mosquitto as a process: a broker that keeps what is not acknowledged through its own restarts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress

from brokers import PASSWORD, USER
from lab import wait_for
from servers import found


class Mosquitto:
    """A broker on a port of loopback, with a password, that saves with every change.

    tls: paths of the authority, a certificate and its key; clients must show one of the authority.
    """

    def __init__(self, port, folder, tls=None):
        self.port, self._program = port, found("mosquitto")
        self.log, self._config = folder / "mosquitto.log", folder / "mosquitto.conf"
        self.saved = folder / "mosquitto.db"
        passwords = folder / "mosquitto.passwords"
        made = [found("mosquitto_passwd"), "-b", "-c", passwords, USER, PASSWORD]
        subprocess.run(list(map(str, made)), check=True, capture_output=True)
        lines = [
            "user root" if os.geteuid() == 0 else "", f"listener {port} 127.0.0.1",
            "allow_anonymous false", f"password_file {passwords}",
            "persistence true", f"persistence_location {folder}/", "autosave_on_changes true",
            "autosave_interval 1", f"log_dest file {self.log}", "log_type all",
        ]  # fmt: skip
        if tls:
            ca, certificate, key = tls
            lines += [f"cafile {ca}", f"certfile {certificate}", f"keyfile {key}"]
            lines += ["require_certificate true"]
        self._config.write_text("\n".join(lines) + "\n")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.kill()

    def start(self):
        command = [self._program, "-c", str(self._config)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(self._listens, "Mosquitto listens", 10)

    def _listens(self):
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def save(self):
        """Let it write what it has confirmed to its disk: Mosquitto confirms before it saves."""
        before = self._file()
        self.process.send_signal(signal.SIGUSR1)
        wait_for(lambda: self._file() != before, "Mosquitto has saved", 30)

    def _file(self):
        """Every save replaces the file."""
        with suppress(FileNotFoundError):
            found = self.saved.stat()
            return found.st_ino, found.st_mtime_ns

    def kill(self):
        """As a power cut would: kill -9."""
        self.process.kill()
        self.process.wait(10)
        self.process = None

    def delivered(self, client, again=False):
        """How many messages it has sent to a client, or those of them that it sent again."""
        mark = f"Sending PUBLISH to {client} ({'d1' if again else 'd'}"
        return self.log.read_text().count(mark)
