"""What can be wrong with a network, its certificates included, in one line each."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dokl.base.errors import BadFile
from dokl.live.certificates.authority import (
    TOKENS,
    hosts,
    load_authorities,
    load_certificate,
    load_key,
)
from dokl.live.description.checks import is_loopback
from dokl.live.description.inspection import layout_problems, reachable

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from dokl.live.description import Network


def problems(network: Network, name: str | None = None) -> list[str]:
    """Everything wrong with a network, each in a line; empty when all is well.

    name: look at the certificate of this node only; others may not be on its machine.
    """
    found = layout_problems(network)
    if network.secure and reachable(network):
        found += certificate_problems(network, network.names if name is None else (name,))
    return found


def certificate_problems(network: Network, names: tuple[str, ...]) -> list[str]:
    """Of the authority and of these nodes. ca.key may be elsewhere, and had better be."""
    path = network.folder / "ca.pem"
    try:
        authorities = load_authorities(path)
    except BadFile as error:
        return [f"{error}: dokl network new makes certificates"]
    repair = f": dokl network renew {network.path} --authority, where ca.key is"
    found = [*_dates(path, authorities[0], repair), *_too_open(network.folder / "ca.key")]
    for name in names:
        found += [*_of_node(network, name, authorities), *_of_face(network, name)]
    return found


def _of_node(network: Network, name: str, authorities: list[Certificate]) -> Iterator[str]:
    _, at, key_at = network.certificate_files(name)
    try:
        certificate, key = load_certificate(at), load_key(key_at)
    except BadFile as error:
        yield f"{error}: {_renew(network, name)}, or copy it from there"
        return
    yield from _too_open(key_at)
    if not any(issued_by(certificate, authority) for authority in authorities):
        yield f"{at}: it was not made by the authority of this network, ca.pem"
        return
    if key.public_key() != certificate.public_key():
        yield f"{key_at}: this key does not belong to {at.name}: {_renew(network, name)}"
    common = certificate.subject.rfc4514_string()
    if common != f"CN={name}":
        yield f"{at}: it is made out to {common}, and not to CN={name}"
    yield from _dates(at, certificate, f": {_renew(network, name)}")
    missing = [host for host in hosts(network, name) if host not in _made_out_for(certificate)]
    if missing:
        yield (
            f"{at}: not made out for {', '.join(missing)}, which the description names: "
            f"{_renew(network, name)}"
        )


def _renew(network: Network, name: str) -> str:
    """What repairs a certificate."""
    return f"dokl network renew {network.path} --name {name}, where ca.key is"


def issued_by(certificate: Certificate, authority: Certificate) -> bool:
    """Whether an authority's key has signed it."""
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _made_out_for(certificate: Certificate) -> set[str]:
    """DNS names and addresses of a certificate, as text."""
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    addresses = found.get_values_for_type(x509.IPAddress)
    return {*found.get_values_for_type(x509.DNSName), *map(str, addresses)}


def _dates(path: Path, certificate: Certificate, advice: str = "") -> Iterator[str]:
    now = datetime.now(UTC)
    starts, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < starts:
        yield f"{path}: valid only from {starts:%Y-%m-%d %H:%M} UTC on; is the clock right?"
    if now >= ends:
        yield f"{path}: it ran out on {ends:%Y-%m-%d}{advice}"


def _of_face(network: Network, name: str) -> Iterator[str]:
    """A face that can be reached from elsewhere needs a token."""
    path, face = network.folder / f"{name}.token", network.nodes[name].http
    for part in TOKENS:
        yield from _too_open(network.folder / f"{name}.{part}")
    if face is not None and not is_loopback(face) and not path.is_file():
        yield (
            f"{path}: missing, and the HTTP interface {face} of {name} is open to others: copy "
            "it from where the network was made"
        )


def _too_open(path: Path) -> Iterator[str]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & 0o077:
        yield f"{path}: others can read it (mode {mode:o}): chmod 600 {path}"
