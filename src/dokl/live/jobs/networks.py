"""`dokl network`: look at a description, and change who is in it, certificates along with it.

An edit keeps the comments of the file. It is read again before it is written: what comes out must
be what was meant, or nothing is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dokl.base.errors import BadFile, BadInput, MissingExtra
from dokl.base.files import atomic_text
from dokl.live.certificates import (
    CA_DAYS,
    NODE_DAYS,
    PARTS,
    TOKENS,
    Authority,
    expires,
    load_authorities,
    load_certificate,
    node_files,
)
from dokl.live.certificates.authority import pem
from dokl.live.certificates.checks import issued_by, problems
from dokl.live.certificates.files import replace_files
from dokl.live.description import Network, Node, check_name, is_loopback, parse, read
from dokl.live.description.inspection import layout_problems, nonsense
from dokl.live.description.text import inputs_text
from dokl.live.jobs.inputs import changed_columns
from dokl.live.jobs.places import next_address
from dokl.live.store import AuditLog, audit_path
from dokl.network.graphs import faulty_tolerated
from dokl.tables.jobs.topology import facts


def show(path: Path) -> dict[str, Any]:
    """The description as data, with its fingerprint."""
    network = read(path)
    found = asdict(network)
    found["path"] = str(path)
    found["network"] = found.pop("about")
    found["inputs"]["fingerprint"] = network.fingerprint
    return {"fingerprint": network.fingerprint, "d": network.d, "m": network.m, **found}


def check(path: Path, name: str | None = None) -> dict[str, Any]:
    """What there is to know about a network, and all its problems.

    name: look at the certificate of this node only.
    """
    network = read(path, strict=False)
    if name is not None:
        network.node(name)
    wrong = problems(network, name)
    ends = {node: _expires(network, node) for node in network.names}
    broken = bool(nonsense(network))
    stood = {} if broken else tolerated(network)
    return {
        "network": network.about.name,
        "fingerprint": None if broken else network.fingerprint,
        "map": network.model.map,
        "security": network.about.security,
        "authority": _authority(network),
        "links": len(network.links),
        "lambda_2": None if broken else lambda_2(network),
        "nodes": {
            node: {
                "address": place.address,
                "listen": place.binds,
                "http": place.http,
                "neighbours": list(network.neighbours(node)),
                "faulty_tolerated": stood.get(node),
                "certificate_expires": ends[node],
            }
            for node, place in network.nodes.items()
        },
        "revoked": list(network.about.revoked),
        "problems": wrong,
        "remarks": [] if broken else remarks(network, stood),
    }


def tolerated(network: Network) -> dict[str, int]:
    """How many faulty neighbours each node tolerates; none where all are mixed alike."""
    if network.exchange.mixing == "mean" or network.exchange.mode == "off":
        return dict.fromkeys(network.names, 0)
    return dict(zip(network.names, faulty_tolerated(_graph(network)).tolist(), strict=True))


def remarks(network: Network, stood: dict[str, int]) -> list[str]:
    """What is not wrong, and still worth a thought before the network is used."""
    policy = network.exchange
    auto = policy.clip == "auto" and policy.mixing == "ios" and policy.mode != "lockstep"
    safe = auto or policy.clip not in (0.0, "auto")
    open_ = [name for name in stood if not stood[name] and network.neighbours(name)]
    if safe or not open_ or policy.mode == "off" or network.model.squares:
        return []
    more = f" and {len(open_) - 4} more" if len(open_) > 4 else ""
    return [
        f"{', '.join(open_[:4])}{more} can leave no neighbour out, and none is clipped: a faulty "
        'one can lead them anywhere. In [exchange], mixing = "ios" and clip = "auto" prevent that, '
        "by push or pull"
    ]


def _graph(network: Network) -> Any:
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(network.names)
    graph.add_edges_from(network.links)
    return graph


def lambda_2(network: Network) -> float | None:
    """Second largest eigenvalue of the Metropolis weights; None for a single node."""
    graph = _graph(network)
    return facts(graph, "metropolis")["lambda_2"] if len(graph) > 1 else None


def _authority(network: Network) -> str | None:
    """A few digits of the authority's certificate, to compare between hosts."""
    if not network.secure:
        return None
    try:
        return hashlib.sha256((network.folder / "ca.pem").read_bytes()).hexdigest()[:16]
    except OSError:  # `problems` reports it
        return None


def _expires(network: Network, name: str) -> str | None:
    try:
        ends: datetime | None = expires(network, name)
    except BadFile:  # `problems` reports it
        return None
    return None if ends is None else ends.isoformat()


# -- changes -----------------------------------------------------------------------------------
def add_node(
    path: Path,
    name: str,
    links: Iterable[str],
    address: str | None = None,
    http: str | None = None,
    days: int = NODE_DAYS,
) -> tuple[Network, tuple[str, ...]]:
    """A new node, its links and its certificate; returns the network and who must reload."""
    network, links = read(path), tuple(dict.fromkeys(links))
    check_name(name)
    if name in network.about.revoked:
        raise BadInput(f"node {name!r} was revoked, its old key may still exist: choose a new name")
    if name in network.nodes:
        raise BadInput(f"node {name!r} is in {path} already")
    for other in links:
        network.node(other)
    node = _place(network, address, http)
    about = replace(network.about, links=(*network.about.links, *((name, to) for to in links)))
    wanted = replace(network, about=about, nodes={**network.nodes, name: node})
    _refuse(wanted)
    content = _made(wanted, [name], days)
    _save(wanted, _edited(path, lambda file: _insert(file, name, node, links)), content)
    AuditLog(audit_path(path))("add-node", name, links=links, address=node.address)
    return wanted, links


def _place(network: Network, address: str | None, http: str | None) -> Node:
    """Addresses of a new node; on loopback, where all others are, they follow the highest there."""
    nodes = network.nodes.values()
    links = [a for node in nodes for a in (node.address, node.listen) if a]
    faces = [node.http for node in nodes if node.http]
    taken = [each for each in (*links, *faces, address, http) if each]
    if address is None:
        if not all(is_loopback(node.address) for node in nodes):
            raise BadInput("where is the new node? Give --address HOST:PORT")
        address = next_address(links, taken, "--address")
    if http is None and faces:
        http = next_address(faces, [*taken, address], "--http")
    return Node(address, None, http)


def remove_node(path: Path, name: str, revoke: bool = False) -> tuple[Network, tuple[str, ...]]:
    """Without a node; revoke: and its name never comes back. Returns network and who reloads."""
    network = read(path)
    neighbours = () if name in network.about.revoked else network.neighbours(name)
    if not revoke and name in network.about.revoked:
        raise BadInput(f"node {name!r} is revoked in {path}")
    if set(network.names) <= {name}:
        raise BadInput(f"{name!r} is the only node of {path}")
    wanted = network.without([name])
    if revoke:
        revoked = tuple(dict.fromkeys((*network.about.revoked, name)))
        wanted = replace(wanted, about=replace(wanted.about, revoked=revoked))
    gone: dict[str, bytes | None] = {}
    if network.secure:
        gone = {f"{name}.{part}": None for part in PARTS}
    _save(wanted, _edited(path, lambda file: _delete(file, name, revoke)), gone)
    AuditLog(audit_path(path))("revoke" if revoke else "remove-node", name)
    return wanted, neighbours


def renew(
    path: Path, names: Iterable[str] = (), days: int = NODE_DAYS
) -> tuple[Network, tuple[str, ...]]:
    """New keys and certificates of these nodes, of all if none is named, by the same authority."""
    network = read(path)
    if not network.secure:
        raise BadInput(f"{path}: security is 'insecure-loopback', there are no certificates")
    chosen = tuple(dict.fromkeys(names)) or network.names
    for name in chosen:
        network.node(name)
    content = _made(network, chosen, days, keep_tokens=True)
    with replace_files(network.folder, content):
        pass
    AuditLog(audit_path(path))("renew", nodes=chosen, days=days)
    return network, chosen


def renew_authority(path: Path, way: str = "dates", days: int = CA_DAYS) -> Network:
    """A new certificate of the authority.

    way: "dates" for the same key, so that all it has issued stays good; "key" for a new one, which
    stands in ca.pem before those that are still believed; "last" to believe the newest alone.
    """
    network = read(path)
    if not network.secure:
        raise BadInput(f"{path}: security is 'insecure-loopback', there are no certificates")
    authority = Authority.load(network.folder)
    believed = load_authorities(network.folder / "ca.pem")
    if way == "last":
        _check_issued(network, authority)
        content: dict[str, bytes | None] = {"ca.pem": authority.files()["ca.pem"]}
    elif way == "key":
        made = Authority.new(network.about.name, days)
        content = dict(made.files())
        content["ca.pem"] = b"".join([made.files()["ca.pem"], *map(pem, believed)])
    else:
        made = authority.renewed(days)
        content = {"ca.pem": b"".join([made.files()["ca.pem"], *map(pem, believed[1:])])}
    with replace_files(network.folder, content):
        pass
    AuditLog(audit_path(path))("renew authority", way=way)
    return network


def _check_issued(network: Network, authority: Authority) -> None:
    """Refuse to drop an authority whose certificates are still in use."""
    for name in network.names:
        certificate = load_certificate(network.certificate_files(name)[1])
        if not issued_by(certificate, authority.certificate):
            raise BadInput(
                f"{name}.pem is of the earlier authority: dokl network renew {network.path} first, "
                "and copy the new files to every node"
            )


def _made(
    network: Network, names: Iterable[str], days: int, keep_tokens: bool = False
) -> dict[str, bytes | None]:
    """Files of these nodes; a token that is there is kept, if wanted."""
    if not network.secure:
        return {}
    authority = Authority.load(network.folder)
    content: dict[str, bytes | None] = {}
    for name in names:
        content |= node_files(network, name, authority, days)
        for part in TOKENS if keep_tokens else ():
            if (network.folder / f"{name}.{part}").exists():
                del content[f"{name}.{part}"]
    return content


def change_columns(
    path: Path,
    add: Iterable[str] = (),
    drop: Iterable[str] = (),
    levels: Mapping[str, tuple[str, ...]] | None = None,
) -> Network:
    """Other columns of a network that shares rows; the earlier ones go into [[earlier]].

    add: as in `dokl network new --columns`; one that is there with another kind is replaced.
    """
    network = read(path)
    if not network.model.rows:
        raise BadInput(
            f"{path}: columns are changed where rows are shared: vectors and sums are made of "
            "their columns, so begin another network (dokl network new)"
        )
    inputs = changed_columns(network.inputs, tuple(add), tuple(drop), dict(levels or {}))
    wanted = replace(network, inputs=replace(inputs, fingerprint=None), earlier=())
    if wanted.fingerprint == network.fingerprint:
        raise BadInput(f"{path}: these are its columns already")
    both = (*network.former, network)
    earlier = tuple(each.inputs for each in both if each.fingerprint != wanted.fingerprint)
    wanted = replace(wanted, earlier=earlier)
    _refuse(wanted)
    _save(wanted, _edited(path, lambda file: _exchange_inputs(file, wanted)), {})
    AuditLog(audit_path(path))("columns", add=tuple(add), drop=tuple(drop))
    return wanted


# -- editing the file --------------------------------------------------------------------------
def _edited(path: Path, change: Any) -> str:
    """The text of the file after a change, comments and order as they were."""
    try:
        import tomlkit
    except ImportError:
        raise MissingExtra("a live network", "live") from None
    file = tomlkit.parse(path.read_text(encoding="utf-8"))
    change(file)
    return tomlkit.dumps(file)


def _insert(file: Any, name: str, node: Node, links: Iterable[str]) -> None:
    import tomlkit

    table = tomlkit.table()
    for key, value in asdict(node).items():
        if value is not None:
            table[key] = value
    table.add(tomlkit.nl())
    file["nodes"][name] = table
    for other in links:
        file["network"].setdefault("links", []).append([name, other])


def _exchange_inputs(file: Any, network: Network) -> None:
    import tomlkit

    made = tomlkit.parse(inputs_text(network))
    file.pop("earlier", None)
    file["inputs"] = made["inputs"]
    if network.earlier:
        file["earlier"] = made["earlier"]


def _delete(file: Any, name: str, revoke: bool) -> None:
    links = file["network"].get("links", [])
    for i in reversed(range(len(links))):
        if name in links[i]:
            del links[i]
    file["nodes"].pop(name, None)
    for way in [way for way in file.get("routes", {}) if name in way.split("->")]:
        del file["routes"][way]
    file.get("sources", {}).pop(name, None)
    if revoke and name not in file["network"].get("revoked", []):
        file["network"].setdefault("revoked", []).append(name)


def _refuse(network: Network) -> None:
    wrong = layout_problems(network)
    if wrong:
        raise BadInput("; ".join(wrong))


def _save(wanted: Network, edited: str, content: dict[str, bytes | None]) -> None:
    """Files of certificates and the description, both or none."""
    found = parse(edited, wanted.path)
    same = [
        [each.about, each.nodes, each.routes, each.fingerprint, len(each.earlier)]
        for each in (found, wanted)
    ]
    if same[0] != same[1]:
        raise BadInput(f"{wanted.path} is written in a way that cannot be edited: do it by hand")
    with ExitStack() as stack:
        if content:
            stack.enter_context(replace_files(wanted.folder, content))
        atomic_text(wanted.path, edited)
