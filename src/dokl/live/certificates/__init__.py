"""Who may join: the network's own authority, its files, and what can be wrong with them."""

from dokl.live.certificates.authority import (
    CA_DAYS,
    NODE_DAYS,
    PARTS,
    TOKENS,
    Authority,
    expires,
    hosts,
    load_authorities,
    load_certificate,
    load_key,
    node_files,
)

__all__ = [
    "CA_DAYS",
    "NODE_DAYS",
    "PARTS",
    "TOKENS",
    "Authority",
    "expires",
    "hosts",
    "load_authorities",
    "load_certificate",
    "load_key",
    "node_files",
]
