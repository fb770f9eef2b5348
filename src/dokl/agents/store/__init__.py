"""What a node must not forget, in one SQLite file: see `journal`."""

from dokl.agents.store.database import StoreFailed
from dokl.agents.store.journal import Store, saved, stored_offset
from dokl.agents.store.transaction import KeyReused, TooManyWaiting, Transaction

__all__ = [
    "KeyReused",
    "Store",
    "StoreFailed",
    "TooManyWaiting",
    "Transaction",
    "saved",
    "stored_offset",
]
