"""Pictures: which files are some, and what a person sees in them."""

from excite.images.finding import PICTURE_SUFFIXES, file_state, find_images, is_picture_argument
from excite.images.reading import decode_image, picture_format, read_image, readable_formats

__all__ = [
    "PICTURE_SUFFIXES",
    "decode_image",
    "file_state",
    "find_images",
    "is_picture_argument",
    "picture_format",
    "read_image",
    "readable_formats",
]
