"""Small networks for the transport's tests, and a node of one in a process of its own.

python peer.py FOLDER NAME   says every 50 ms hello and theta; prints what it sees
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

from dokl.live.certificates import Authority, node_files
from dokl.live.description import About, AgreedInputs, Model, Network, Node
from dokl.live.jobs import places
from dokl.live.transports.zenoh import ZenohTransport


def free_addresses(n):
    """Addresses on loopback that nobody uses. The system gives their ports to no connection."""
    return list(islice(places.free_addresses("127.0.0.1"), n))


def network(folder, addresses, links, routes=None, *, secure=True, D=100_000):
    """Nodes by name and address, linked; D = 100,000 is a theta of 400 kB."""
    about = About("lab", links, "mtls" if secure else "insecure-loopback")
    nodes = {name: Node(address) for name, address in addresses.items()}
    parts = {"nodes": nodes, "routes": routes or {}, "path": Path(folder) / "lab.toml"}
    return Network(about, Model(D=D), AgreedInputs.plain(2), **parts)


def certify(made, names=None, authority=None):
    """Write certificates into the network's folder; gives the authority."""
    authority = authority or Authority.new(made.about.name)
    made.folder.mkdir(exist_ok=True)
    files = authority.files()
    for name in names or made.names:
        files |= node_files(made, name, authority, 30)
    for name, content in files.items():
        (made.folder / name).write_bytes(content)
    return authority


def write(made):
    """What a process needs to make the same network."""
    content = {
        "addresses": {name: node.address for name, node in made.nodes.items()},
        "links": made.about.links,
        "routes": made.routes,
        "secure": made.secure,
    }
    (made.path.parent / "peer.json").write_text(json.dumps(content))


def start(made, name):
    """A process that is this node."""
    write(made)
    words = [sys.executable, __file__, str(made.path.parent), name]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def main(folder, name):
    given = json.loads(Path(folder, "peer.json").read_text())
    links = tuple(tuple(link) for link in given["links"])
    made = network(folder, given["addresses"], links, given["routes"], secure=given["secure"])
    transport = ZenohTransport(made, name)
    transport.open()
    print("open", flush=True)
    for step in range(10_000):
        transport.send("hello", f"hello {name} {step}".encode())
        transport.send("theta", f"theta {name} {step}".encode())
        transport.events()
        transport.receive()
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
