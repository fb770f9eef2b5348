"""Who we are to a broker, and how it shows who it is: from the environment, never from a file that
all nodes share.

For MQTT (Kafka: DOKL_KAFKA_...)::

    DOKL_MQTT_USERNAME, DOKL_MQTT_PASSWORD     or DOKL_MQTT_PASSWORD_FILE, a file with it
    DOKL_MQTT_TLS                              on or off; on by default, off for loopback
    DOKL_MQTT_CA                               authority of the broker; the system's otherwise
    DOKL_MQTT_CERTIFICATE, DOKL_MQTT_KEY       our own, where the broker wants one
    DOKL_KAFKA_MECHANISM                       of SASL: SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dokl.base.errors import BadInput, UnknownName
from dokl.base.files import open_plain, read_text
from dokl.live.description import is_loopback

_FILES = ("CA", "CERTIFICATE", "KEY")
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


@dataclass(frozen=True)
class BrokerAccess:
    """What the environment says; the password is never shown."""

    tls: bool
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    mechanism: str = "SCRAM-SHA-512"

    def context(self) -> ssl.SSLContext | None:
        """For TLS that checks the broker's certificate and name; None where there is no TLS."""
        if not self.tls:
            return None
        try:
            made = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                made.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise BadInput(
                f"certificates of the broker's connection cannot be used ({error}): look at "
                "DOKL_..._CA, DOKL_..._CERTIFICATE and DOKL_..._KEY"
            ) from None
        return made


def broker_access(
    kind: str, brokers: Sequence[str], environment: Mapping[str, str] | None = None
) -> BrokerAccess:
    """What the environment says of brokers of a kind, "mqtt" for one; BadInput where it cannot be.

    >>> broker_access("mqtt", ["10.0.0.7:8883"], {"DOKL_MQTT_USERNAME": "a"}).tls
    True
    """
    found = os.environ if environment is None else environment
    start = f"DOKL_{kind.upper()}_"
    given = {k[len(start) :]: v for k, v in found.items() if v and k.startswith(start)}
    files = {name: given.get(name) for name in _FILES}
    for name, path in files.items():
        try:
            if path is not None:
                open_plain(path).close()  # a pipe would be waited for
        except OSError:
            raise BadInput(f"{start}{name} is {path}, and no such file can be read") from None
    if (files["KEY"] or files["CERTIFICATE"]) and not (files["KEY"] and files["CERTIFICATE"]):
        raise BadInput(f"{start}CERTIFICATE and {start}KEY belong together: set both, or none")
    password = _password(start, given)
    if password is not None and "USERNAME" not in given:
        raise BadInput(f"{start}PASSWORD is set, and {start}USERNAME is not: set both, or none")
    tls = _tls(start, given, brokers)
    if not tls and any(files.values()):
        raise BadInput(f"{start}CA and the like are set, and there is no TLS: {start}TLS=on")
    mechanism = given.get("MECHANISM", MECHANISMS[0])
    if mechanism not in MECHANISMS:
        raise UnknownName(f"{start}MECHANISM", mechanism, MECHANISMS)
    who = given.get("USERNAME"), password
    return BrokerAccess(tls, *who, files["CA"], files["CERTIFICATE"], files["KEY"], mechanism)


def _tls(start: str, given: Mapping[str, str], brokers: Sequence[str]) -> bool:
    wanted = given.get("TLS", "").lower()
    if wanted not in ("", "on", "off"):
        raise BadInput(f"{start}TLS must be on or off, got {wanted!r}")
    if wanted:
        return wanted == "on"
    asked = any(name in given for name in _FILES)
    return asked or not all(map(is_loopback, brokers))


def _password(start: str, given: Mapping[str, str]) -> str | None:
    path = given.get("PASSWORD_FILE")
    if path is None:
        return given.get("PASSWORD")
    if "PASSWORD" in given:
        raise BadInput(f"{start}PASSWORD and {start}PASSWORD_FILE are both set: one is enough")
    try:
        return read_text(path).strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{start}PASSWORD_FILE: {path} cannot be read ({error})") from None
