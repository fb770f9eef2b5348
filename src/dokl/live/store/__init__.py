"""What a node must not forget, in one SQLite file: see `journal`."""

from dokl.live.store.accept import JournalLoss, accept_loss
from dokl.live.store.audit import AuditLog, audit_path
from dokl.live.store.copies import Copied, StoreRestored, copy_store, restore_store
from dokl.live.store.failures import RowsMissing, StoreFailed
from dokl.live.store.journal import Store, read_offset, read_saved
from dokl.live.store.snapshots import (
    Rollback,
    StoredSnapshot,
    find_snapshot,
    go_back,
    stored_snapshots,
)
from dokl.live.store.transaction import CROWDED, KeyReused, TooManyWaiting, Transaction

__all__ = [
    "AuditLog",
    "CROWDED",
    "Copied",
    "KeyReused",
    "JournalLoss",
    "StoredSnapshot",
    "Rollback",
    "RowsMissing",
    "Store",
    "StoreFailed",
    "StoreRestored",
    "TooManyWaiting",
    "Transaction",
    "accept_loss",
    "audit_path",
    "copy_store",
    "find_snapshot",
    "go_back",
    "stored_snapshots",
    "read_offset",
    "read_saved",
    "restore_store",
]
