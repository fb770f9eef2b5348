"""Brokers for tests: amqtt in a thread, and one by the letter of MQTT 3.1.1 that delivers again.

python brokers.py PORT FOLDER   amqtt as a process, which can be killed; ends when stdin does
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path

from amqtt.broker import Broker

USER, PASSWORD = "hill", "not in lab.toml"
PLAIN_AUTH = "amqtt.plugins.authentication.FileAuthPlugin"
logging.getLogger("amqtt").setLevel(logging.CRITICAL)


class Amqtt:
    """A real broker on a port of loopback; users and their passwords are checked, if there are any.

    tls: paths of a certificate and its key.
    """

    def __init__(self, port, folder, tls=None):
        self.port, self._folder = port, folder
        self._config = {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
            "plugins": {PLAIN_AUTH: {"password_file": str(self._passwords())}},
        }
        if tls:
            certificate, key = map(str, tls)
            self._config["listeners"]["default"] |= {
                "ssl": True, "certfile": certificate, "keyfile": key,
            }  # fmt: skip

    def _passwords(self):
        from pwdlib.hashers.argon2 import Argon2Hasher

        path = self._folder / "passwords"
        hashed = Argon2Hasher(time_cost=1, memory_cost=64, parallelism=1).hash(PASSWORD)
        path.write_text(f"{USER}:{hashed}\n")
        return path

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        # It leaves tasks behind whose clients are gone; nobody asks what became of them.
        self._loop.set_exception_handler(lambda *_: None)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.broker = self._do(self._made())
        self._do(self.broker.start())
        return self

    async def _made(self):
        return Broker(self._config)

    def __exit__(self, *_):
        self._do(self.broker.shutdown())
        self._do(self._cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _cancel(self):
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=2) if left else None

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(15)

    def has(self, client):
        """Whether a client is connected: what this broker sends to one that is dead is lost."""
        return self.broker._sessions[client][0].transitions.state == "connected"


class ByTheLetter(threading.Thread):
    """One client's broker: what is not acknowledged is delivered again, marked DUP, with the next
    connection. `publish` hands it messages; `acknowledged` are those that the client has confirmed.
    What the client says itself is counted in `heard`, and never confirmed.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.waiting, self.acknowledged, self.sent_again, self.heard = {}, [], 0, 0
        self._mid, self._client, self._lock = 0, None, threading.RLock()
        self.subscribed = threading.Event()

    def publish(self, topic, body):
        with self._lock:
            self._mid += 1
            self.waiting[self._mid] = (topic, body)
            self._deliver(self._mid, again=False)

    def _deliver(self, mid, again):
        topic, body = self.waiting[mid]
        rest = struct.pack("!H", len(topic)) + topic.encode() + struct.pack("!H", mid) + body
        self._send(0x3A if again else 0x32, rest)
        self.sent_again += again

    def _send(self, kind, rest):
        size, left = b"", len(rest)
        while True:
            left, digit = divmod(left, 128)
            size += bytes([digit | (0x80 if left else 0)])
            if not left:
                break
        if self._client is not None:
            with suppress(OSError):
                self._client.sendall(bytes([kind]) + size + rest)

    def cut(self):
        """Lose the connection."""
        with self._lock:
            self.subscribed.clear()
            if self._client is not None:
                self._client.shutdown(socket.SHUT_RDWR)

    def run(self):
        known = False
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client, suppress(OSError, EOFError, struct.error):
                client.settimeout(30)
                self._serve(client, client.makefile("rb"), known)
            self._client, known = None, True

    def _serve(self, client, stream, known):
        while True:
            head = _exactly(stream, 1)[0]
            size = shift = 0
            while True:
                digit = _exactly(stream, 1)[0]
                size |= (digit & 127) << shift
                shift += 7
                if digit < 128:
                    break
            rest, kind = _exactly(stream, size) if size else b"", head >> 4
            with self._lock:
                if kind == 1:
                    self._client = client
                    self._send(0x20, bytes([known, 0]))
                    for mid in list(self.waiting):
                        self._deliver(mid, again=True)
                elif kind == 8:
                    self._send(0x90, rest[:2] + b"\x01")
                    self.subscribed.set()
                elif kind == 3:
                    self.heard += 1
                elif kind == 4:
                    self.acknowledged.append(self.waiting.pop(struct.unpack("!H", rest)[0], None))
                elif kind == 12:
                    self._send(0xD0, b"")
                elif kind == 14:
                    return

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        self.join(5)


def _exactly(stream, n):
    data = stream.read(n)
    if len(data) < n:
        raise EOFError
    return data


def main(port, folder):
    with Amqtt(int(port), Path(folder)):
        print("there", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
