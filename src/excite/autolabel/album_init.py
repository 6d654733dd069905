"""One question asked of many pictures, with files as answers; stopped half-way, it goes on where it was."""

from excite.autolabel.album_question import Question
from excite.autolabel.arguments import split_arguments
from excite.autolabel.batch import Album

__all__ = ["Album", "Question", "split_arguments"]
