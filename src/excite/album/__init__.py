"""One question asked of many pictures, with files as answers; stopped half-way, it goes on where it was."""

from excite.album.album import Album
from excite.album.arguments import split_arguments
from excite.album.question import Question

__all__ = ["Album", "Question", "split_arguments"]
