"""Finding image files and reading them as upright eight-bit RGB."""

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
