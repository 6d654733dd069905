"""Pictures of any kind of numbers as eight-bit RGB, with no more than one of them in memory beside the first."""

from collections.abc import Iterator
from io import BytesIO

import numpy as np
from PIL import Image

from excite.errors import ImageError

__all__ = ["as_rgb"]

STRIP = 2**20  # pixels that are worked on at a time


def as_rgb(image: Image.Image, name: str) -> Image.Image:
    """A decoded picture of any mode as RGB, by what its numbers mean; one that is RGB already is given back itself.

    Args:
        image: the picture.
        name: what errors call it.

    Raises:
        ImageError: its numbers are none.

    Example:
        >>> as_rgb(Image.new("LA", (2, 2)), "a clear picture").getpixel((0, 0))
        (255, 255, 255)
    """
    if image.mode == "CMYK":
        return _from_inks(image)
    if image.mode == "F" or image.mode.startswith("I"):
        return _from_deep_grey(image, name)
    if image.has_transparency_data:
        return _on_white(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """The picture in pieces of its whole width, each with its first row: what is done to one takes little memory."""
    rows = max(1, STRIP // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _on_white(image: Image.Image) -> Image.Image:
    plain = Image.new("RGB", image.size)
    for top, strip in _strips(image):
        clear = strip.convert("RGBA")
        plain.paste(Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB"), (0, top))
    return plain


def _from_inks(image: Image.Image) -> Image.Image:
    """Printing inks as colours. Pillow has already undone the inversion that Adobe's programs store."""
    from PIL import ImageCms

    if not (content := image.info.get("icc_profile")):
        return image.convert("RGB")
    profile = ImageCms.ImageCmsProfile(BytesIO(content))
    if profile.profile.xcolor_space.strip() != "CMYK":
        return image.convert("RGB")  # a profile for another kind of picture says nothing about inks
    converted = ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"), outputMode="RGB")
    return converted if converted is not None else image.convert("RGB")


def _from_deep_grey(image: Image.Image, name: str) -> Image.Image:
    """Grey of more than eight bits, scaled; Pillow's own conversion would cut everything above 255."""
    spans = []
    for _, strip in _strips(image):
        values = np.asarray(strip)
        if not np.isfinite(values).all():
            raise ImageError(f"{name} holds NaN or infinity: replace them by numbers and save it again.")
        spans.append((float(values.min()), float(values.max())))
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    usual = 1 if image.mode == "F" else 65535
    if low >= 0 and high <= usual:
        low, high = 0, usual
    plain, key = Image.new("RGB", image.size), image.info.get("transparency")
    for top, strip in _strips(image):
        values = np.asarray(strip)
        scaled = values.astype(np.float64)
        scaled -= low
        scaled *= 255 / (high - low) if high > low else 0
        grey = np.rint(scaled, out=scaled).astype(np.uint8)
        if key is not None:
            grey[values == key] = 255  # white shows through
        plain.paste(Image.fromarray(grey).convert("RGB"), (0, top))
    return plain
