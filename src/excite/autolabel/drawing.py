"""Pictures that say who drew them, so that nobody else's is ever overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from excite.errors import ExciteError
from excite.io.files import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["draw", "is_drawn"]


def draw(picture: Image.Image, path: Path) -> Path:
    """Write a picture as PNG that says who drew it; level 3 is quicker than the usual 6 and as small."""
    if path.exists() and not is_drawn(path):
        raise ExciteError(f"{str(path)!r} is there already and was not drawn by excite: choose another --out")
    about = PngInfo()
    about.add_text("Software", "excite")
    return atomic_write(path, lambda file: picture.save(file, format="PNG", pnginfo=about, compress_level=3))


def is_drawn(photo: Path) -> bool:
    """Whether excite itself has drawn this picture."""
    try:
        with Image.open(photo, formats=["PNG"]) as picture:
            return picture.info.get("Software") == "excite"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return False
