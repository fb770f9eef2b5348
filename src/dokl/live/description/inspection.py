"""All errors in the description of a network, one line each.

`nonsense` is what no agent can start with; `layout_problems` adds what one should know before:
ports used twice, a network that falls apart. `certificates.checks.problems` adds certificates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dokl.base.errors import BadInput
from dokl.live.description.checks import NAME, host_port, is_loopback
from dokl.live.description.sections import Node
from dokl.network.sums.origins import most_bytes

if TYPE_CHECKING:
    from dokl.live.description.network import Network


MOST_ENTRY, MOST_ACCOUNT = 20_000_000, 1_000_000_000  # bytes of sums: one origin's, and all
ANYWHERE = ("0.0.0.0", "::")  # hosts to listen at, not to dial


def layout_problems(network: Network) -> list[str]:
    """Everything but certificates."""
    further = (_ports, _nowhere, _exposed, _lonely, _revoked)
    return nonsense(network) + [text for look in further for text in look(network)]


def reachable(network: Network) -> bool:
    """Whether addresses and routes can be read at all: certificates are made out for them."""
    return not [*_addresses(network), *_routes(network)]


def nonsense(network: Network) -> list[str]:
    """What makes a description unusable: names, addresses, links, model and fingerprint."""
    looks = (_names, _links, _addresses, _routes, _sources, _model)
    return [text for look in looks for text in look(network)]


def _names(network: Network) -> Iterator[str]:
    """Not every disk distinguishes A.key from a.key."""
    known: dict[str, str] = {}
    for name in network.names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            yield f"[nodes.{name}] and [nodes.{other}] differ only in capitals: rename one"


# -- who talks to whom -------------------------------------------------------------------------
def _links(network: Network) -> Iterator[str]:
    known = {*network.nodes, *network.about.revoked}
    seen: set[frozenset[str]] = set()
    for a, b in network.about.links:
        for end in sorted({a, b} - known):
            yield f"[network] links: {_pair(a, b)} names {end!r}, and there is no [nodes.{end}]"
        if a == b:
            yield f"[network] links: {_pair(a, b)} links a node with itself"
        if frozenset((a, b)) in seen:
            yield f"[network] links: {_pair(a, b)} is listed twice"
        seen.add(frozenset((a, b)))


def _pair(a: str, b: str) -> str:
    return f'["{a}", "{b}"]'


def _addresses(network: Network) -> Iterator[str]:
    for name, node in network.nodes.items():
        for key in ("address", "listen", "http"):
            wrong = _wrong_address(getattr(node, key))
            if wrong:
                yield f"[nodes.{name}] {key}: {wrong}"


def _wrong_address(address: str | None) -> str | None:
    try:
        if address is not None:
            host_port(address)
    except BadInput as error:
        return str(error)
    return None


def _routes(network: Network) -> Iterator[str]:
    linked = {frozenset(link) for link in network.about.links}
    for way, address in network.routes.items():
        ends = way.split("->")
        if len(ends) != 2 or not all(map(NAME.fullmatch, ends)):
            yield f'[routes] {way!r} is not "FROM->TO" with two node names'
        elif frozenset(ends) not in linked:
            yield f"[routes] {way!r}: these two are not linked in [network] links"
        elif f"{ends[1]}->{ends[0]}" in network.routes and ends[0] < ends[1]:
            yield f"[routes] {way!r} has a route back, too: only one side of a link dials"
        if _wrong_address(address):
            yield f"[routes] {way!r}: {_wrong_address(address)}"


def _sources(network: Network) -> Iterator[str]:
    for name in network.sources:
        if name not in network.nodes:
            yield f"[sources.{name}]: there is no [nodes.{name}]"
    known: dict[tuple[str, str, tuple[str, ...]], str] = {}
    for name, source in network.sources.items():
        client = source.client_of(network.about.name, name)
        other = known.setdefault((source.kind, client, source.brokers), name)
        if source.kind == "mqtt" and other != name:
            yield (
                f"[sources.{name}] and [sources.{other}] are both client {client!r} of "
                f"{source.where}, which would shut out one for the other: leave client out"
            )


def _lonely(network: Network) -> Iterator[str]:
    """Parts of the network that no link joins."""
    parts: list[frozenset[str]] = [frozenset({name}) for name in network.names]
    for link in network.links:
        apart = [part for part in parts if not part & {*link}]
        parts = [*apart, frozenset().union(*(part for part in parts if part & {*link}))]
    if len(parts) > 1:
        _, small = min((len(part), sorted(part)) for part in parts)
        alone = ", ".join(small)
        yield f"the links make {len(parts)} separate networks; {alone} cannot reach the others"


def _revoked(network: Network) -> Iterator[str]:
    for name in network.about.revoked:
        others = sorted({end for link in network.about.links if name in link for end in link})
        others = [end for end in others if end != name]
        if others:
            yield f"[network] revoked {name!r} is still linked with {', '.join(others)}"


# -- ports -------------------------------------------------------------------------------------
def _ports(network: Network) -> Iterator[str]:
    """Ports that two want on one machine, at the same host or one of them at all hosts."""
    used: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for name, node in network.nodes.items():
        if _wrong_address(node.address) or _wrong_address(node.binds):
            continue
        machine = _machine(name, node)
        for key, address in (("listens", node.binds), ("has its HTTP interface", node.http)):
            if address is not None and not _wrong_address(address):
                use = _host(address), f"{name} {key}"
                used.setdefault((machine, host_port(address)[1]), []).append(use)
    for (_, port), uses in used.items():
        hosts = list(dict.fromkeys(host for host, _ in uses))
        for host in [host for host in hosts if host in ANYWHERE][:1] or hosts:
            there = [who for at, who in uses if at == host or host in ANYWHERE]
            if len(there) > 1:
                yield f"{host}:{port} is used twice: {' and '.join(there)} there"
    dialled = Counter(node.address for node in network.nodes.values())
    for address, times in dialled.items():
        if times > 1:
            both = [name for name, node in network.nodes.items() if node.address == address]
            yield f"{', '.join(both)} are all dialled at {address}: each node needs its own address"


def _machine(name: str, node: Node) -> str:
    """Where a node runs: where it is dialled, unless a router passes that on to another port."""
    passed_on = host_port(node.binds)[1] != host_port(node.address)[1]
    return name if passed_on and not is_loopback(node.address) else _host(node.address)


def _host(address: str) -> str:
    host = host_port(address)[0].lower()
    return "127.0.0.1" if host == "localhost" else host


def _nowhere(network: Network) -> Iterator[str]:
    """Addresses to listen at, which neighbours would dial: no certificate is made out for them."""
    for name in network.names:
        for peer, address in network.dials(name).items():
            if not _wrong_address(address) and host_port(address)[0] in ANYWHERE:
                yield (
                    f"{name} would dial {peer} at {address}, which is no place to go to: say where "
                    f'it is reached, and where it binds by [nodes.{peer}] listen = "{address}"'
                )


def _exposed(network: Network) -> Iterator[str]:
    if network.secure:
        return
    for way, address in network.routes.items():
        if not _wrong_address(address) and not is_loopback(address):
            yield f"[routes] {way!r}: {address} is not on loopback, as 'insecure-loopback' must be"
    for name, node in network.nodes.items():
        for key in ("address", "listen", "http"):
            address = getattr(node, key)
            if address and not _wrong_address(address) and not is_loopback(address):
                yield (
                    f"[nodes.{name}] {key} {address} is not on loopback, and security is "
                    "'insecure-loopback': anyone could join"
                )


# -- what is learned ---------------------------------------------------------------------------
def _model(network: Network) -> Iterator[str]:
    if network.model.rows:
        yield from _row_sharing(network)
        yield from _earlier(network)
        return
    if network.earlier:
        yield "[[earlier]] is for share = 'rows': vectors and sums are made of their own columns"
    learned = network.model.map is not None
    made = (lambda: network.agreed_map) if learned else network.recipe
    attempts: list[Callable[[], object]] = [made, network.loss, network.schedule]
    wrong = [text for attempt in attempts if (text := _failure(attempt))]
    yield from (text if "[" in text else f"[model] {text}" for text in wrong)
    if not wrong and network.model.squares:
        yield from _sums(network)
    if network.inputs.in_order and not network.model.squares:
        what = "lags are" if network.inputs.lags else "horizon is"
        yield f"[inputs] {what} for method = 'squares' in [model]: --method squares"
    written = network.inputs.fingerprint
    if not wrong and written is not None and written != network.fingerprint:
        yield (
            f"[inputs] fingerprint is {written}, and this content comes to {network.fingerprint}: "
            "kernel, sigma, D, seed, variant, scaling or labels were changed after it was "
            "written. Undo that; or, if all nodes get the change and start over, correct the line"
        )


def _row_sharing(network: Network) -> Iterator[str]:
    """What sharing rows cannot do, or would take too much room for."""
    if network.exchange.mode not in ("push", "off"):
        yield f"[exchange] mode {network.exchange.mode!r}: rows are pushed, take 'push' or 'off'"
    size = 8 * (network.d + network.m) * network.exchange.kept_rows * len(network.names)
    if size > MOST_ACCOUNT:
        yield (
            f"[exchange] kept_rows = {network.exchange.kept_rows}: rows of {len(network.names)} "
            f"origins take {size / 1e9:.1f} GB at every node: keep fewer"
        )
    written = network.inputs.fingerprint
    if written is not None and written != network.fingerprint:
        yield (
            f"[inputs] fingerprint is {written}, and this content comes to {network.fingerprint}: "
            "columns, labels or scaling were changed after it was written. Undo that, and change "
            "columns by 'dokl network columns', which keeps the earlier ones in [[earlier]]"
        )


def _earlier(network: Network) -> Iterator[str]:
    """Earlier columns whose rows can be none of now."""
    now = network.inputs
    for former in network.former:
        then, written = former.inputs, former.inputs.fingerprint
        agreed = [(each.target, each.task, each.labels, each.ahead) for each in (then, now)]
        if agreed[0] != agreed[1]:
            yield (
                f"[[earlier]] {then.fingerprint or former.fingerprint} has another target, labels "
                "or horizon than [inputs]: its rows cannot be mapped. Begin another network"
            )
        if written is not None and written != former.fingerprint:
            yield (
                f"[[earlier]] fingerprint is {written}, and this content comes to "
                f"{former.fingerprint}: rows of it would not be known. Undo the change"
            )


def _sums(network: Network) -> Iterator[str]:
    """What method "squares" cannot do, or would take too much room for."""
    if network.exchange.mode not in ("push", "off"):
        yield f"[exchange] mode {network.exchange.mode!r}: sums are pushed, take 'push' or 'off'"
    if network.model.D > MOST_ENTRY:
        yield "[model] D is beyond what a message can hold: take fewer features"
        return
    size = most_bytes(network.m, network.model.D)
    if size > MOST_ENTRY:
        yield (
            f"[model] D = {network.model.D}: sums of {size / 1e6:.1f} MB an origin, and at most "
            f"{MOST_ENTRY / 1e6:g} are sent: take fewer features, or method = 'gradient'"
        )
    if size * len(network.names) > MOST_ACCOUNT:
        yield (
            f"sums of {len(network.names)} origins with D = {network.model.D} take "
            f"{size * len(network.names) / 1e9:.1f} GB at every node: take fewer features"
        )


def _failure(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except BadInput as error:
        return str(error)
    return None
