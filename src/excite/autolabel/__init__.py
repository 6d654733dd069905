"""Boxes for one's own images, from what is known of each image as a whole, in files that detectors train on."""

from excite.autolabel.formats import FORMATS, Boxed, Document, Found, find_format
from excite.autolabel.run import Boxing, Question

__all__ = ["FORMATS", "Boxed", "Boxing", "Document", "Found", "Question", "find_format"]
