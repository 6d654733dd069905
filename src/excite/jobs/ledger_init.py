"""Answers that survive a kill: each is written down once, and what is written down is not done again."""

from excite.jobs.book import Book, Entry
from excite.jobs.lines import Ledger
from excite.jobs.results import open_ledger

__all__ = ["Book", "Entry", "Ledger", "open_ledger"]
