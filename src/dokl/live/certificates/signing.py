"""Entries signed by their origin: neighbours relay them, and must not be able to change them.

A sealed entry is: u16 length of the origin's certificate (DER), u16 length of the signature, both,
and the entry. The certificate must be of the network's authority and made out to the origin; so a
node needs no others' certificates beforehand. Without certificates (insecure-loopback) both lengths
are 0, and everybody is believed.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from dokl.base.errors import BadInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
    from cryptography.x509 import Certificate

_LENGTHS = struct.Struct("<HH")
LONGEST = 8192  # bytes of a certificate and a signature


class Seals:
    """What signs this node's entries and checks those of others."""

    def __init__(self, files: tuple[Path, Path, Path] | None = None) -> None:
        """files: the authority's certificate, this node's, and its key; None: no seals."""
        self._key: EllipticCurvePrivateKey | None = None
        self._certificate = b""
        self._authorities: list[Certificate] = []
        self._believed: dict[bytes, tuple[str, CertificatePublicKeyTypes]] = {}
        if files is not None:
            from cryptography.hazmat.primitives.serialization import Encoding

            from dokl.live.certificates import load_authorities, load_certificate
            from dokl.live.certificates.authority import load_key

            self._authorities = load_authorities(files[0])
            self._certificate = load_certificate(files[1]).public_bytes(Encoding.DER)
            self._key = load_key(files[2])

    def seal(self, entry: bytes) -> bytes:
        """An entry of this node's own, sealed."""
        signature = b""
        if self._key is not None:
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.hazmat.primitives.hashes import SHA256

            signature = self._key.sign(entry, ec.ECDSA(SHA256()))
        return (
            _LENGTHS.pack(len(self._certificate), len(signature))
            + self._certificate
            + signature
            + entry
        )

    def opened(self, sealed: bytes) -> tuple[str | None, bytes]:
        """Who sealed it (None: anybody), and the entry; BadInput where the seal is broken."""
        certificate, signature, entry = seal_and_entry(sealed)
        if self._key is None:
            return None, entry
        if not (certificate and signature):
            raise BadInput("its seal is missing, or no seal")
        name, key = self._known(certificate)
        self._verify(key, signature, entry)
        return name, entry

    def made(self, sealed: bytes) -> bool:
        """Whether it has the seal of the certificate that this node shows now."""
        return seal_and_entry(sealed)[0] == self._certificate

    def _known(self, der: bytes) -> tuple[str, CertificatePublicKeyTypes]:
        """Whose certificate it is, once its authority is found to be ours."""
        if der in self._believed:
            return self._believed[der]
        from cryptography import x509
        from cryptography.x509.oid import NameOID

        from dokl.live.certificates.checks import issued_by

        try:
            certificate = x509.load_der_x509_certificate(der)
            (common,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except ValueError:
            raise BadInput("the certificate in its seal cannot be read") from None
        if not any(issued_by(certificate, authority) for authority in self._authorities):
            raise BadInput(
                f"its seal is of a certificate of {common.value!r} that no authority in ca.pem has "
                "issued: give that node its new certificate, and reload or start it"
            )
        if len(self._believed) >= 1024:
            self._believed.clear()
        self._believed[der] = str(common.value), certificate.public_key()
        return self._believed[der]

    def _verify(self, key: CertificatePublicKeyTypes, signature: bytes, entry: bytes) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise InvalidSignature
            key.verify(signature, entry, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise BadInput("its signature does not fit") from None


def seal_and_entry(sealed: bytes) -> tuple[bytes, bytes, bytes]:
    """Certificate, signature and entry, none of them checked; BadInput where lengths are wrong."""
    if len(sealed) < _LENGTHS.size:
        raise BadInput("there is no seal")
    first, second = _LENGTHS.unpack_from(sealed)
    end = _LENGTHS.size + first
    if first + second > LONGEST or len(sealed) < end + second:
        raise BadInput("its seal is missing, or no seal")
    return sealed[_LENGTHS.size : end], sealed[end : end + second], sealed[end + second :]
