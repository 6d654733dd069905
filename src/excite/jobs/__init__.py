"""Long runs over many tasks: the executors that run them, and the stores that keep their results."""

from excite.jobs.executor import ENGINES, Executor, Job, Outcome, Runner, attempt
from excite.jobs.results import Entry, JsonLinesStore, ResultStore

__all__ = [
    "ENGINES", "Entry", "Executor", "Job", "JsonLinesStore", "Outcome", "ResultStore", "Runner", "attempt",
]  # fmt: skip
