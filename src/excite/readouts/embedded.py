"""Pictures and files inside a text: a page or a notebook is then one file, and nothing is fetched for it."""

import base64
import io

from PIL import Image

__all__ = ["data_address", "jpeg"]


def data_address(kind: str, content: bytes) -> str:
    """Content as an address of its own.

    Example:
        >>> data_address("text/plain", b"cat")
        'data:text/plain;base64,Y2F0'
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def jpeg(picture: Image.Image, quality: int) -> bytes:
    """A picture as a JPEG file, as small as it gets.

    Example:
        >>> Image.open(io.BytesIO(jpeg(Image.new("L", (40, 20)), 80))).size
        (40, 20)
    """
    file = io.BytesIO()
    picture.convert("RGB").save(file, format="JPEG", quality=quality, optimize=True)
    return file.getvalue()
