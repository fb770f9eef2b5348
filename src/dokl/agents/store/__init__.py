"""What a node must not forget, in one SQLite file: see `journal`."""

from dokl.agents.store.database import StoreFailed
from dokl.agents.store.journal import Store, read_offset, read_saved
from dokl.agents.store.transaction import KeyReused, TooManyWaiting, Transaction

__all__ = [
    "KeyReused",
    "Store",
    "StoreFailed",
    "TooManyWaiting",
    "Transaction",
    "read_offset",
    "read_saved",
]
