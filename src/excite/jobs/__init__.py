"""Who does the work: this process, several processes, or a Ray cluster of many machines.

All give the same answers in the same order; what is done for each task, and what is written down, is not their matter.
"""

from excite.jobs.executor import ENGINES, Executor, Job, Outcome, Runner, attempt
from excite.jobs.results import Entry, JsonLinesStore, ResultStore, open_results

__all__ = [
    "ENGINES",
    "Entry",
    "Executor",
    "Job",
    "JsonLinesStore",
    "Outcome",
    "ResultStore",
    "Runner",
    "attempt",
    "open_results",
]
