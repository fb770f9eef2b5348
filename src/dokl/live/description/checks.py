"""What a name, an address, a word or a number in a network description may be."""

from __future__ import annotations

import ipaddress
import math
import re

from dokl.base.errors import BadInput, UnknownName

# Names become keys of the network, common names of certificates, and names of files.
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


# -- names and addresses -----------------------------------------------------------------------
def check_name(name: str, what: str = "node name") -> str:
    """The name, if it can be one."""
    if not NAME.fullmatch(name):
        raise BadInput(f"{what} {name!r}: use 1 to 64 of the letters A-Z a-z, digits, _ and -")
    if what == "node name" and name.lower() == "ca":
        raise BadInput(f"{what} {name!r}: the certificate authority has this name already")
    return name


def host_port(address: str) -> tuple[str, int]:
    """Host and port of an address.

    >>> host_port("127.0.0.1:7447"), host_port("[::1]:7447")
    (('127.0.0.1', 7447), ('::1', 7447))
    """
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    plain = bare == host and ":" in host
    usable = re.fullmatch(r"[A-Za-z0-9._:%-]+", bare) and re.fullmatch(r"[0-9]{1,5}", port)
    if not (colon and usable) or plain or not 0 < int(port) < 65536:
        raise BadInput(f"address {address!r} is not HOST:PORT, like 10.0.0.7:7447 or [::1]:7447")
    return bare, int(port)


def is_loopback(address: str) -> bool:
    """Whether an address HOST:PORT stays on its machine."""
    host, _ = host_port(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# -- values ------------------------------------------------------------------------------------
def one_of(section: str, key: str, value: str, known: tuple[str, ...]) -> None:
    """Whether a word is one of those that are known."""
    if value not in known:
        raise UnknownName(f"[{section}] {key}", value, known)


def at_least(section: str, given: object, *keys: str, low: float = 0) -> None:
    """Whether numbers of a section are finite, and not below low."""
    for key in keys:
        value = getattr(given, key)
        if not (math.isfinite(value) and value >= low):
            raise BadInput(f"[{section}] {key} must be finite and at least {low}, got {value!r}")
