"""Agents that learn nothing: HTTP interfaces on loopback whose /status changes as a real one's
would.

Each can be killed and brought back, hung, and made to say anything.
"""

import json
import math
import socket
import subprocess
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAMES = ("a", "b", "c", "d")
HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e[red]"  # what an agent may say
RATE = 200.0  # samples a second
EXCHANGES = 10.0  # messages a second and neighbour
THETA_BYTES = 2000


def free_ports(n):
    """Ports that nobody listens on, all different."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class FakeLab:
    """A description on disk and a fake agent per node; `with FakeLab(...) as lab:`.

    links: pairs of names. The real thing is to have the same path, names, kill and revive.
    """

    def __init__(self, folder, names, links, kind="mse", learned=0):
        self.path, self.names, self.links = folder / "lab.toml", tuple(names), tuple(links)
        self.kind, self.learned = kind, learned
        ports = free_ports(2 * len(self.names))
        self.ports = dict(zip(self.names, ports, strict=False))
        self.path.write_text(_description(self.names, self.links, ports))
        self.agents = {name: FakeAgent(self, name) for name in self.names}

    def __enter__(self):
        for agent in self.agents.values():
            agent.start()
        return self

    def __exit__(self, *error):
        for agent in self.agents.values():
            agent.release()
            agent.stop()

    def kill(self, name):
        self.agents[name].stop()

    def revive(self, name):
        self.agents[name].start()

    def neighbours(self, name):
        return [b if a == name else a for a, b in self.links if name in (a, b)]


def _description(names, links, ports):
    listed = ", ".join(f'["{a}", "{b}"]' for a, b in links)
    nodes = "".join(
        f'[nodes.{name}]\naddress = "127.0.0.1:{dialled}"\nhttp = "127.0.0.1:{face}"\n'
        for name, face, dialled in zip(names, ports, ports[len(names) :], strict=False)
    )
    return (
        f'[network]\nname = "lab"\nsecurity = "insecure-loopback"\nlinks = [{listed}]\n'
        "[model]\nD = 50\n"
        '[inputs]\nnumeric = ["x1"]\nshift = [0.0]\ncount = [0.0]\ntotal = [0.0]\nsquare = [0.0]\n'
        f"{nodes}"
    )


class FakeAgent:
    """One face. changes: what its status says otherwise than it would, by key."""

    def __init__(self, lab, name):
        self.lab, self.name, self.server = lab, name, None
        self.changes, self.raw, self.asked = {}, None, []
        self.began, self.started, self.incarnation = time.monotonic(), 0.0, 0
        self.level = 0.006 + 0.02 * (zlib.crc32(name.encode()) % 100 / 100) ** 2
        self._go_on = threading.Event()
        self._go_on.set()

    def start(self):
        self.incarnation += 1
        self.started = time.monotonic()
        self.server = _Server(self)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        if self.server is not None:
            server, self.server = self.server, None
            server.shutdown()
            server.server_close()
            server.hang_up()

    @property
    def up(self):
        return self.server is not None

    def hang(self):
        """Take questions and answer none, as a stopped process."""
        self._go_on.clear()

    def release(self):
        self._go_on.set()

    def answer(self, headers):
        self.asked.append(dict(headers))
        self._go_on.wait()
        return self.raw if self.raw is not None else json.dumps(self.status()).encode()

    def status(self):
        now = time.monotonic()
        learned = int(self.lab.learned + RATE * (now - self.began))
        peers = {peer: self._peer(peer, now) for peer in self.lab.neighbours(self.name)}
        sent = int(
            EXCHANGES * THETA_BYTES * sum(p["up"] for p in peers.values()) * (now - self.started)
        )
        usual = {
            "dokl": "0.1.0", "network": "lab", "name": self.name, "fingerprint": "00ff" * 4,
            "incarnation": self.incarnation, "uptime_s": now - self.started, "samples": learned,
            "learned": learned, "error": self._error(learned), "neighbours": peers,
            "disagreement": 0.3 * (1 + learned / 200) ** -0.9 * (1 + 0.2 * self._ripple(learned)),
            "newest": self._newest(learned),
            "bytes_in": sent, "bytes_out": sent, "problems": [], "assumptions": self._assumptions(),
        }  # fmt: skip
        return usual | self.changes

    def _peer(self, peer, now):
        up = self.lab.agents[peer].up
        return {"up": up, "age_s": 0.04 + 0.06 * abs(self._ripple(now * 7)), "received": 1}

    def _assumptions(self):
        silent = [peer for peer in self.lab.neighbours(self.name) if not self.lab.agents[peer].up]
        why = "its weight 0.25 is back at self, the graph is not the described one"
        return [f"neighbour {peer!r} is down: {why}" for peer in silent]

    def _error(self, learned):
        steps = [learned * i // 60 for i in range(1, 61)] if learned > 60 else []
        curve = [[n, self._error_at(n)] for n in dict.fromkeys(steps)]
        return {"kind": self.lab.kind, "recent": self._error_at(learned), "curve": curve}

    def _newest(self, learned):
        """Predicted is the curve, measured is beside it; every tenth lies outside of 90 %."""
        rows = []
        for n in range(max(1, learned - 99), learned + 1):
            said = 2.0 * math.sin(n / 15) - 0.5
            off = 0.5 if n % 10 == 0 else 0.25 * math.sin(3.7 * n)
            rows.append([n, said + off, said, said - 0.4, said + 0.4])
        return {"target": "power", "coverage": 0.9, "rows": rows}

    def _error_at(self, n):
        return (self.level + 0.6 * (1 + n / 60) ** -0.8) * (1 + 0.12 * self._ripple(n))

    def _ripple(self, n):
        return math.sin(n / 37 + 900 * self.level) * math.cos(n / 101 + 50 * self.level)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, agent):
        self.agent, self.open = agent, []
        super().__init__(("127.0.0.1", agent.lab.ports[agent.name]), _Handler)

    def process_request(self, request, client_address):
        self.open = [each for each in self.open if each.fileno() >= 0]
        self.open.append(request)
        super().process_request(request, client_address)

    def hang_up(self):
        """As a killed process: connections that are kept open end too."""
        for each in self.open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request, client_address):
        """Whoever asked has gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.server.agent.answer(self.headers)
        self.send_response(200 if self.path == "/status" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *message):
        """Quiet."""


def ring_with_chords(names, step=5):
    """Links of a ring, and some across."""
    k = len(names)
    ring = [(names[i], names[(i + 1) % k]) for i in range(k)]
    across = [(names[i], names[(i + step) % k]) for i in range(0, k, 3)] if k > 2 * step - 3 else []
    return [*ring, *across]


def start_watch(*words, **how):
    """`dokl watch` as a process."""
    return subprocess.Popen([sys.executable, "-m", "dokl", "watch", *map(str, words)], **how)
