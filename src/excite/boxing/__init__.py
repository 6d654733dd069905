"""Boxes for one's own pictures, from what is known of each picture as a whole, in files that detectors train on."""

from excite.boxing.document import Boxed, Document, Found
from excite.boxing.formats import FORMATS, find_format
from excite.boxing.making import Boxing
from excite.boxing.question import Question

__all__ = ["FORMATS", "Boxed", "Boxing", "Document", "Found", "Question", "find_format"]
