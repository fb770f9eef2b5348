"""Settings of Zenoh: links, certificates, and who may send what, from the network description.

Pure functions. The settings were found by measuring: gossip would connect peers beyond the
given links, shared memory loses messages under load, default socket buffers hold seconds of
stale vectors on a slow link, and without the access table a neighbour with a good certificate
could speak in another's name.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable

from dokl.base.errors import BadFile, BadInput
from dokl.live.certificates import load_certificate, load_key
from dokl.live.description import Network, host_port, is_loopback
from dokl.live.transports import KINDS
from dokl.live.transports.guard import HERE, LinkGuard

LEASE_MS = 2000  # a neighbour that hangs is noticed after this time
ACCEPT_MS = 4000  # for a handshake
OPEN_MS = 4000  # for whom we dialled to answer; by default 10 s, in which it is not dialled again
# Of a large message the end can wait in TLS's own buffer until something else is written to the
# link, which the next keep-alive does at the latest: so there are many of them, every 100 ms.
_KEEP_ALIVES = 20  # in the time of a lease
_SOCKET = "#so_sndbuf=65536;so_rcvbuf=65536"
_ROOM = 1_000_000  # above the largest message: Zenoh's own bound, so that ours can count it

_WATCHING = ("declare_liveliness_subscriber", "liveliness_query")


# -- keys --------------------------------------------------------------------------------------
def key(network: Network, kind: str, name: str) -> str:
    """Where a node says its "theta", its "hello", and that it is "alive"."""
    return f"dokl/{network.about.name}/{kind}/{name}"


def pull_key(network: Network, name: str, asker: str) -> str:
    """Where a node answers one neighbour: a key for each, so that nobody asks for another."""
    return f"dokl/{network.about.name}/pull/{name}/{asker}"


# -- the configuration -------------------------------------------------------------------------
def configuration(
    network: Network, name: str, max_bytes: int, guard: LinkGuard | None = None
) -> dict[str, object]:
    """{key: value} of a node's Zenoh session; max_bytes: the largest message that is taken.

    guard: what listens at the node's address; Zenoh itself listens behind it.
    """
    protocol = "tls" if network.secure else "tcp"
    dials = network.dials(name)
    listens = network.node(name).binds if guard is None else f"{HERE}:{guard.inner}"
    _check_addresses(network, name, dials.values())
    found: dict[str, object] = {
        "mode": "peer",
        "listen/endpoints": [_endpoint(protocol, listens)],
        "listen/exit_on_failure": True,
        "connect/endpoints": [_endpoint(protocol, address) for address in dials.values()],
        "connect/timeout_ms": -1,  # 0 would mean: try once
        "connect/exit_on_failure": False,
        "connect/retry": {
            "period_init_ms": 200,
            "period_max_ms": 2000,
            "period_increase_factor": 2,
        },
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/unicast/accept_timeout": ACCEPT_MS,
        "transport/unicast/open_timeout": OPEN_MS,
        "transport/link/protocols": [protocol],
        "transport/link/tx/lease": LEASE_MS,
        "transport/link/tx/keep_alive": _KEEP_ALIVES if network.secure else 4,
        "transport/link/rx/max_message_size": max_bytes + _ROOM,  # by default a gigabyte
        "transport/shared_memory/enabled": False,
    }
    if network.secure:
        found["transport/link/tls"] = certificates(network, name, guard)
        found["access_control"] = access_table(network, name)
    return found


def certificates(network: Network, name: str, guard: LinkGuard | None = None) -> dict[str, object]:
    """Both sides of a link show a certificate of the network's authority; a guard's word counts."""
    ca, certificate, private = (str(path) for path in network.certificate_files(name))
    believed = {"root_ca_certificate": ca}
    if guard is not None:
        believed = {"root_ca_certificate_base64": b64encode(guard.authorities).decode()}
    return {
        **believed,
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
        "listen_certificate": certificate,
        "listen_private_key": private,
        "connect_certificate": certificate,
        "connect_private_key": private,
    }


def check(network: Network, name: str, max_bytes: int) -> None:
    """BadInput, as long as nothing is changed, where a session could not open by these settings.

    Zenoh's own words for a missing file, or for a key of another certificate, would not help.
    """
    configuration(network, name, max_bytes)
    if not network.secure:
        return
    ca, certificate, private = network.certificate_files(name)
    load_certificate(ca)
    if load_certificate(certificate).public_key() != load_key(private).public_key():
        raise BadFile(f"{private}: this key does not belong to {certificate.name} beside it")


def _endpoint(protocol: str, address: str) -> str:
    host_port(address)  # the address enters a configuration: refuse what is none
    return f"{protocol}/{address}{_SOCKET}"


def _check_addresses(network: Network, name: str, dialled: Iterable[str]) -> None:
    if network.secure:
        return
    for address in (network.node(name).binds, *dialled):
        if not is_loopback(address):
            raise BadInput(
                f"{network.path}: node {name!r} has no certificates at {address}, "
                "which is not on loopback: security = 'insecure-loopback' is for loopback only"
            )


# -- who may send what --------------------------------------------------------------------------
def access_table(network: Network, name: str) -> dict[str, object]:
    """Everything is denied but this: each neighbour speaks as itself, and asks for itself.

    A neighbour is known by the common name of its certificate. Rules match exact keys, so a
    subscription to everything is denied too. The table is read when a session opens.
    """
    rules = {peer: _rules(network, name, peer) for peer in network.neighbours(name)}
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": [rule for each in rules.values() for rule in each],
        "subjects": [{"id": peer, "cert_common_names": [peer]} for peer in rules],
        "policies": [
            {"subjects": [peer], "rules": [rule["id"] for rule in each]}
            for peer, each in rules.items()
        ],
    }


def _rules(network: Network, name: str, peer: str) -> list[dict[str, object]]:
    return [
        {
            "id": f"{peer}-{flow}-{number}",
            "permission": "allow",
            "flows": [flow],
            "messages": list(messages),
            "key_exprs": keys,
        }
        for flow, speaker, hearer in (("ingress", peer, name), ("egress", name, peer))
        for number, (messages, keys) in enumerate(_allowed(network, speaker, hearer))
    ]


def _allowed(network: Network, speaker: str, hearer: str) -> list[tuple[Iterable[str], list[str]]]:
    """(kinds of Zenoh messages, exact keys) that may travel from speaker to hearer."""
    offered, wanted = ([key(network, k, who) for k in KINDS] for who in (speaker, hearer))
    return [
        (["put"], offered),
        (["liveliness_token"], [key(network, "alive", speaker)]),
        (["reply", "declare_queryable"], [pull_key(network, speaker, hearer)]),
        (["declare_subscriber"], wanted),
        (_WATCHING, [key(network, "alive", hearer)]),
        (["query"], [pull_key(network, hearer, speaker)]),
    ]
