"""Who may join: the network's own authority, its files, and what can be wrong with them."""

from dokl.agents.certificates.authority import (
    NODE_DAYS,
    PARTS,
    Authority,
    expires,
    hosts,
    load_certificate,
    load_key,
    node_files,
)

__all__ = [
    "NODE_DAYS",
    "PARTS",
    "Authority",
    "expires",
    "hosts",
    "load_certificate",
    "load_key",
    "node_files",
]
