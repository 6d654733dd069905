"""Who does the work: this process, several processes, or a Ray cluster of many machines.

All give the same answers in the same order; what is done for each task, and what is written down, is not their matter.
"""

from excite.jobs.executor import ENGINES, Crew
from excite.jobs.jobs import Job, Outcome, Team, attempt

__all__ = ["ENGINES", "Crew", "Job", "Outcome", "Team", "attempt"]
