"""`dokl agent backup` and `restore`: a node's journal as one file, and back."""

from __future__ import annotations

from pathlib import Path

from dokl.base.errors import BadInput
from dokl.base.files import check_new
from dokl.live.description import read
from dokl.live.jobs.agents import earlier_identities, identity, state_folder
from dokl.live.store import (
    AuditLog,
    Copied,
    StoreRestored,
    audit_path,
    copy_store,
    restore_store,
)
from dokl.live.store.folder import private_folder


def backup(
    description: Path, name: str, to: Path, folder: Path | None = None, overwrite: bool = False
) -> Copied:
    """Copy the journal of node `name` as it is at one moment; its agent may run."""
    network = read(description)
    network.node(name)
    path = (folder or state_folder(description)) / f"{name}.db"
    if not path.exists():
        raise BadInput(f"{path.parent}: there is no journal of {name!r} here (--state?)")
    check_new(to, overwrite)
    if not to.parent.is_dir():
        raise BadInput(f"{to.parent}: there is no such folder")
    found = copy_store(path, identity(network, name), to, earlier_identities(network, name))
    AuditLog(audit_path(path))("backup", name, file=str(to), rows=found.rows)
    return found


def restore(
    description: Path, name: str, copy: Path, folder: Path | None = None, overwrite: bool = False
) -> StoreRestored:
    """Let node `name` go on from a copy; its agent must not run."""
    network = read(description)
    network.node(name)
    if not copy.is_file():
        raise BadInput(f"{copy}: there is no such file")
    path = private_folder(folder or state_folder(description)) / f"{name}.db"
    owner = identity(network, name), overwrite, earlier_identities(network, name)
    found = restore_store(copy, path, *owner)
    about = {"rows": found.rows, "lost": found.lost, "incarnation": found.incarnation}
    AuditLog(audit_path(path))("restore", name, file=str(copy), **about)
    return found
