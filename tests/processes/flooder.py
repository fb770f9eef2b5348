"""Somebody without a certificate who opens connections, and does little with them.

python flooder.py HOST PORT COUNT KIND   says "there" when all are open, ends when stdin does

KIND: close (at once), idle, hello (the first message of a handshake, then nothing), fail (that
message, then gone), head (half the head of a request), body (half the body of one).
"""

from __future__ import annotations

import resource
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

HEAD = b"GET /status HTTP/1.1\r\nHost: 127."
BODY = (
    b"POST /samples HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 500\r\n\r\n[{"
)


@contextmanager
def flood(address, count, kind):
    """A flood as long as the block lasts; `address` is HOST:PORT."""
    host, _, port = address.rpartition(":")
    words = [sys.executable, __file__, host.replace("0.0.0.0", "127.0.0.1"), port, str(count), kind]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == "there"
        yield
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def client_hello():
    """The first message of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    said, heard = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(heard, said, server_hostname="localhost").do_handshake()
    return said.read()


def main(host, port, count, kind):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    says = {"hello": client_hello(), "fail": client_hello(), "head": HEAD, "body": BODY}
    held = []
    for _ in range(int(count)):
        try:
            made = socket.create_connection((host, int(port)), timeout=2)
            made.sendall(says.get(kind, b""))
        except OSError:  # a face that is full may well refuse
            time.sleep(0.001)
            continue
        if kind in ("close", "fail"):
            made.close()
        else:
            held.append(made)
    print("there", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
