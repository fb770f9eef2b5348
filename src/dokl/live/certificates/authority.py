"""The network's own certificate authority: who may join, in files that only their owner can read.

One folder holds `ca.pem` and `ca.key`, and of every node `NAME.pem`, `NAME.key`, `NAME.token` (who
has it may send samples) and `NAME.read.token` (who has it may only ask). A node needs `ca.pem` and
its own four files; `ca.key` stays with the operator of the network. The common name of a
certificate is the node's name: access control goes by it.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dokl.base.errors import BadFile, BadInput, MissingExtra
from dokl.base.files import read_bytes
from dokl.live.description.checks import host_port, is_loopback

if TYPE_CHECKING:
    from types import ModuleType

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import (
        Certificate,
        CertificateBuilder,
        GeneralName,
        KeyUsage,
        Name,
    )

    from dokl.live.description import Network

T = TypeVar("T")

CA_DAYS, NODE_DAYS = 3650, 365
# Clocks of nodes differ: a certificate that is valid from now on is refused by a slow one.
SKEW = timedelta(hours=1)
TOKENS = ("token", "read.token")  # one to write and read with, one that only reads
PARTS = ("pem", "key", *TOKENS)


@dataclass(frozen=True)
class Authority:
    """A certificate authority: its certificate and its key, objects of `cryptography`."""

    certificate: Certificate
    key: EllipticCurvePrivateKey

    @classmethod
    def new(cls, network_name: str, days: int = CA_DAYS) -> Authority:
        """A fresh one, good for this network only."""
        return cls._signing_itself(_name(f"dokl {network_name}"), _new_key(), days)

    @classmethod
    def _signing_itself(cls, name: Name, key: EllipticCurvePrivateKey, days: int) -> Authority:
        x509, _, _ = _tools()
        usage = _usage(key_cert_sign=True, crl_sign=True)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = _builder(name, name, key, key, days).add_extension(constraints, critical=True)
        return cls(_signed(builder.add_extension(usage, critical=True), key), key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """That of a folder of certificates; BadFile where a part is missing or damaged."""
        if not (folder / "ca.key").exists():
            raise BadFile(f"{folder / 'ca.key'}: not here; do this where the network was made")
        made = cls(load_certificate(folder / "ca.pem"), load_key(folder / "ca.key"))
        if made.certificate.public_key() != made.key.public_key():
            raise BadFile(f"{folder / 'ca.key'}: this key does not belong to ca.pem beside it")
        return made

    def renewed(self, days: int = CA_DAYS) -> Authority:
        """The same authority with new dates: what it has issued stays good, by either of them."""
        return self._signing_itself(self.certificate.subject, self.key, days)

    def issue(
        self, name: str, hosts: list[str], days: int = NODE_DAYS, until: datetime | None = None
    ) -> dict[str, bytes]:
        """Certificate and a new key of a node, as {"pem": ..., "key": ...}, not beyond `until`."""
        x509, _, _ = _tools()
        ends = self.certificate.not_valid_after_utc
        if ends <= datetime.now(UTC):
            raise BadInput(f"the authority's certificate ran out on {ends:%Y-%m-%d}")
        ends = ends if until is None else min(ends, until)
        key = _new_key()
        both = x509.oid.ExtendedKeyUsageOID
        uses = x509.ExtendedKeyUsage([both.SERVER_AUTH, both.CLIENT_AUTH])
        builder = (
            _builder(_name(name), self.certificate.subject, key, self.key, days, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(uses, critical=False)
            .add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        )
        return {"pem": pem(_signed(builder, self.key)), "key": pem(key)}

    def files(self) -> dict[str, bytes]:
        """Both parts as they lie in the folder."""
        return {"ca.pem": pem(self.certificate), "ca.key": pem(self.key)}


def hosts(network: Network, name: str) -> list[str]:
    """All hosts that neighbours may dial this node by; localhost where one is on loopback."""
    node = network.nodes[name]
    routes = [to for way, to in network.routes.items() if way.endswith(f"->{name}")]
    addresses = [a for a in (node.address, node.listen, node.http, *routes) if a is not None]
    found = [str(_ip(host) or host) for host in (host_port(each)[0] for each in addresses)]
    if any(map(is_loopback, addresses)):
        found += ["localhost", "127.0.0.1"]
    return [host for host in dict.fromkeys(found) if host not in ("0.0.0.0", "::")]


def node_files(network: Network, name: str, authority: Authority, days: int) -> dict[str, bytes]:
    """All that is new for a node: {file name: content}."""
    made = authority.issue(name, hosts(network, name), days)
    made |= {part: secrets.token_urlsafe(32).encode() + b"\n" for part in TOKENS}
    return {f"{name}.{part}": made[part] for part in PARTS}


# -- reading -----------------------------------------------------------------------------------
def load_certificate(path: Path) -> Certificate:
    """A certificate from a PEM file; BadFile where that cannot be."""
    x509, _, _ = _tools()
    found: Certificate = _loaded(path, "certificate", x509.load_pem_x509_certificate)
    return found


def load_authorities(path: Path) -> list[Certificate]:
    """All certificates of a `ca.pem`, newest first: several while an authority is replaced."""
    x509, _, _ = _tools()
    found: list[Certificate] = _loaded(path, "certificate", x509.load_pem_x509_certificates)
    return found


def load_key(path: Path) -> EllipticCurvePrivateKey:
    """A private key from a PEM file."""
    _, _, serialization = _tools()
    load = serialization.load_pem_private_key
    key: EllipticCurvePrivateKey = _loaded(path, "key", lambda data: load(data, None))
    return key


def _loaded(path: Path, what: str, load: Callable[[bytes], T]) -> T:
    try:
        return load(read_bytes(path))
    except FileNotFoundError:
        raise BadFile(f"{path}: there is no such file") from None
    except OSError as error:
        raise BadFile(f"{path}: cannot be read ({error.strerror})") from None
    except BadFile:
        raise
    except (ValueError, TypeError):
        raise BadFile(f"{path}: this is no {what} in PEM form") from None


def expires(network: Network, name: str) -> datetime | None:
    """When the certificate of a node runs out; None where the network has none."""
    if not network.secure:
        return None
    return load_certificate(network.certificate_files(name)[1]).not_valid_after_utc


# -- cryptography ------------------------------------------------------------------------------
def _tools() -> tuple[ModuleType, ModuleType, ModuleType]:
    """The modules x509, hashes and serialization of `cryptography`."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
    except ImportError:
        raise MissingExtra("a live network", "live") from None
    return x509, hashes, serialization


def _new_key() -> EllipticCurvePrivateKey:
    _tools()
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def pem(thing: Certificate | EllipticCurvePrivateKey) -> bytes:
    """A certificate, or a private key in PKCS#8 without a password, as PEM."""
    _, _, s = _tools()
    if hasattr(thing, "private_bytes"):
        plain = s.NoEncryption()
        return bytes(thing.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, plain))
    return bytes(thing.public_bytes(s.Encoding.PEM))


def _name(common: str) -> Name:
    x509, _, _ = _tools()
    made: Name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common[:64])])
    return made


def _usage(**on: bool) -> KeyUsage:
    x509, _, _ = _tools()
    kinds = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    usage: KeyUsage = x509.KeyUsage(**{kind: on.get(kind, False) for kind in kinds})
    return usage


def _builder(
    subject: Name, issuer: Name, key: EllipticCurvePrivateKey, signer: EllipticCurvePrivateKey,
    days: int, latest: datetime | None = None,
) -> CertificateBuilder:  # fmt: skip
    """What every certificate has: names, serial, dates (not past `latest`), key identifiers."""
    x509, _, _ = _tools()
    now = datetime.now(UTC)
    ends = now + timedelta(days=days)
    its, signers = key.public_key(), signer.public_key()
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signers)
    builder: CertificateBuilder = (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=its)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(ends if latest is None else min(ends, latest))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(its), critical=False)
        .add_extension(by, critical=False)
    )
    return builder


def _signed(builder: CertificateBuilder, key: EllipticCurvePrivateKey) -> Certificate:
    _, hashes, _ = _tools()
    return builder.sign(key, hashes.SHA256())


def _alternatives(names: list[str]) -> list[GeneralName]:
    x509, _, _ = _tools()
    addresses = {name: _ip(name) for name in names}
    return [x509.IPAddress(ip) if ip else x509.DNSName(name) for name, ip in addresses.items()]


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """A host as an address, without its zone; None where it is a name."""
    try:
        return ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return None
