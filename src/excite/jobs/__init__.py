"""Who does the work: this process, several processes, or a Ray cluster of many machines.

All give the same answers in the same order; what is done for each task, and what is written down, is not their matter.
"""

from excite.jobs.executor import ENGINES, Crew, Job, Outcome, Team, attempt
from excite.jobs.results import Book, Entry, Ledger, open_ledger

__all__ = ["ENGINES", "Book", "Crew", "Entry", "Job", "Ledger", "Outcome", "Team", "attempt", "open_ledger"]
