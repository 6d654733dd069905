"""Searching a folder of photos by words."""

from excite.search.photos import Changes, PhotoIndex
from excite.search.query import Answer, Match, Question

__all__ = ["Answer", "Changes", "Match", "PhotoIndex", "Question"]
