"""Answers that survive a kill: each is written down once, and what is written down is not done again."""

from excite.ledger.book import Book, Entry
from excite.ledger.lines import Ledger
from excite.ledger.opening import open_ledger

__all__ = ["Book", "Entry", "Ledger", "open_ledger"]
