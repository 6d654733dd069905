"""Searching a folder of photos by words."""

from excite.search.photos import Changes, PhotoIndex
from excite.search.query import Answer, Match, Question, read_question

__all__ = ["Answer", "Changes", "Match", "PhotoIndex", "Question", "read_question"]
