"""Boxes for one's own images from image-level labels, in files to train detectors on; and batches of attention maps."""

from excite.autolabel.formats import FORMATS, Detection, Document, ImageDetections, find_format
from excite.autolabel.run import AutoLabeler, BoxQuery

__all__ = ["FORMATS", "AutoLabeler", "BoxQuery", "Detection", "Document", "ImageDetections", "find_format"]
