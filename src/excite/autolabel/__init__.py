"""Boxes for one's own images from image-level labels, in files to train detectors on; and batches of attention maps."""

from excite.autolabel.formats import FORMATS, Detection, Document, ImageDetections, find_format, to_supervision
from excite.autolabel.run import AutoLabeler, BoxQuery
from excite.errors import renamed

__all__ = [
    "FORMATS",
    "AutoLabeler",
    "BoxQuery",
    "Detection",
    "Document",
    "ImageDetections",
    "find_format",
    "to_supervision",
]

__getattr__ = renamed(  # deprecated since 0.2
    __name__, {"Boxing": "AutoLabeler", "Question": "BoxQuery", "Found": "Detection", "Boxed": "ImageDetections"}
)
