"""Boxes for one's own pictures, from what is known of each picture as a whole, in files that detectors train on."""

from excite.autolabel.document import Boxed, Document, Found
from excite.autolabel.formats import FORMATS, find_format
from excite.autolabel.question import Question
from excite.autolabel.run import Boxing

__all__ = ["FORMATS", "Boxed", "Boxing", "Document", "Found", "Question", "find_format"]
