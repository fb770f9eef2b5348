"""Who there is in a live network, and where: names, links, addresses and free ports."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dokl.base.errors import BadInput, listed
from dokl.live.description import Node, check_name, host_port, is_loopback
from dokl.tables.jobs.topology import is_file_of_edges, links_from_file, topology

# Below those that the system gives to outgoing connections, so they are still free later.
PORTS = range(12_000, 32_000)
FIRST_PORT = 7447
FIRST_FACE = 8081
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Places:
    """A request: a graph, the number of nodes or their names ({name: address, or None}), ports."""

    graph: str = "ring"
    nodes: int | None = None
    named: Mapping[str, str | None] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1
    host: str = "127.0.0.1"
    base_port: int | None = None
    http_host: str = "127.0.0.1"
    http_base_port: int | None = None


def placed(wish: Places) -> tuple[dict[str, Node], tuple[tuple[str, str], ...]]:
    """Nodes with their addresses, and the links between them."""
    names, links = _graph(wish)
    strange = [name for name in wish.named if name not in names]
    if strange:
        raise BadInput(f"node {strange[0]!r} is not in the graph, whose nodes are {listed(names)}")
    addresses = _addresses(wish, names)
    faces = _ports(wish.http_host, _first_face(wish, addresses), set(addresses.values()))
    http = {name: next(faces) for name in names}
    return {name: Node(addresses[name], None, http[name]) for name in names}, links


def _first_face(wish: Places, addresses: Mapping[str, str]) -> int | None:
    """On real hosts ports that people can remember; what is free here says nothing of them."""
    here = all(is_loopback(address) for address in addresses.values())
    return FIRST_FACE if wish.http_base_port is None and not here else wish.http_base_port


def _graph(wish: Places) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    """Names, and links of the wished graph."""
    if is_file_of_edges(wish.graph):
        if wish.parameters:
            raise BadInput(f"a file of edges takes no parameter {next(iter(wish.parameters))!r}")
        graph = links_from_file(Path(wish.graph))
        names = [check_name(str(name)) for name in graph.nodes]
        if wish.nodes not in (None, len(names)):
            raise BadInput(f"{wish.graph} names {len(names)} nodes, and not {wish.nodes}")
        return names, tuple((str(a), str(b)) for a, b in graph.edges)
    names = _names(wish)
    graph = topology(wish.graph, len(names), wish.seed, dict(wish.parameters))
    pairs = (sorted(edge) for edge in graph.edges)
    return names, tuple((names[a], names[b]) for a, b in sorted(pairs))


def _names(wish: Places) -> list[str]:
    """The given names, or a, b, c ...; n1, n2 ... where letters do not suffice."""
    if wish.named:
        if wish.nodes not in (None, len(wish.named)):
            raise BadInput(f"{len(wish.named)} nodes are named, and --nodes is {wish.nodes}")
        return [check_name(name) for name in wish.named]
    if wish.nodes is None:
        raise BadInput("how many nodes are there? Give --nodes N, --node NAME, or a file of edges")
    numbered = [f"n{i + 1}" for i in range(wish.nodes)]
    return list(LETTERS[: wish.nodes]) if wish.nodes <= len(LETTERS) else numbered


def _addresses(wish: Places, names: list[str]) -> dict[str, str]:
    ports = _ports(wish.host, wish.base_port, {to for to in wish.named.values() if to})
    return {name: wish.named.get(name) or next(ports) for name in names}


def _ports(host: str, base: int | None, taken: Collection[str]) -> Iterator[str]:
    """Addresses on a host: from a first port on, or whichever are free on this machine."""
    shown = f"[{host}]" if ":" in host else host
    if base is None and is_loopback(f"{shown}:1"):
        yield from free_addresses(host, taken)
    first = FIRST_PORT if base is None else base
    for port in range(first, 65536):
        if f"{shown}:{port}" not in taken:
            yield f"{shown}:{port}"
    raise BadInput(f"there are not enough ports from {first} on")


def free_addresses(host: str, taken: Collection[str] = ()) -> Iterator[str]:
    """Addresses on a host of this machine where nobody listens now, each once."""
    shown, used = f"[{host}]" if ":" in host else host, {host_port(each)[1] for each in taken}
    for _ in range(100_000):
        port = PORTS.start + secrets.randbelow(len(PORTS))
        if port not in used and _is_free(host, port):
            used.add(port)
            yield f"{shown}:{port}"
    raise BadInput(f"no port is free on {host}")


def next_address(like: Collection[str], taken: Collection[str], option: str) -> str:
    """The next loopback address after the highest port of these, one where nobody listens now."""
    highest, used = max(host_port(each)[1] for each in like), {host_port(each)[1] for each in taken}
    for port in range(highest + 1, 65536):
        if port not in used and _is_free("127.0.0.1", port):
            return f"127.0.0.1:{port}"
    raise BadInput(f"no port above {highest} is free here: give {option} HOST:PORT")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
