"""Finding image files, and reading them as upright eight-bit RGB, whatever their orientation, depth or inks."""

import glob
import logging
import os
import stat
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from excite.errors import ImageError, one_line

Array = NDArray[Any]

PICTURE_SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"}
    | {".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
"""The suffixes that `find_images` takes from a folder, in any case."""

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that are read; some others of Pillow start external programs."""

CHANNELS = (1, 3, 4)  # grey, RGB, RGB with opacity
ORIENTATION_TAG = 0x0112  # the EXIF entry of the orientation: 1 is upright
TURNS = "FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_270 TRANSVERSE ROTATE_90"
UPRIGHT = {number: Image.Transpose[name] for number, name in enumerate(TURNS.split(), start=2)}  # by orientation
SIDEWAYS = range(5, 9)  # orientations whose stored width is the height
MOST_PIXELS = {"AVIF": 60_000_000, "JPEG2000": 30_000_000, "WEBP": 50_000_000}  # decoders that take much more memory
STRIP = 2**20  # pixels that are converted at a time
FREE = {  # photographs inside scikit-image, with free licences
    "chelsea.png": "a cat",
    "coffee.png": "a cup of coffee",
    "astronaut.png": "an astronaut",
    "rocket.jpg": "a rocket",
}

logging.getLogger("PIL").addHandler(logging.NullHandler())  # an application's own handlers still apply

_OPENING = threading.Lock()  # filters of warnings belong to the whole process


def find_images(patterns: str | Sequence[str]) -> list[Path]:
    """The images of file names, folders and patterns, each once, in the order of the patterns and then by name.

    A named file is taken whatever its suffix. A folder means all images in it and below, by their suffix (see
    `PICTURE_SUFFIXES`), without hidden ones and without following links to other folders. A pattern may hold ``*``,
    ``?``, ``[...]`` and ``**`` (any number of folders); of its matches, images and folders are taken.
    """
    names = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
    if not names:
        raise ImageError("no images were named: give at least one file, folder or pattern such as 'photos/*.jpg'.")
    found: dict[str, Path] = {}
    for name in names:
        matches = list(_matches(os.fspath(name)))
        if not matches:
            raise ImageError(f"no images found for {name!r}: check the name, or that the folder holds images.")
        for path in matches:
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def free_photographs() -> dict[Path, str]:
    """Free photographs and their titles: those of scikit-image, or none where it is not installed."""
    package = find_spec("skimage")  # not imported, which takes a second
    if package is None or package.origin is None:
        return {}
    return {Path(package.origin).parent / "data" / name: title for name, title in FREE.items()}


def file_state(path: Path) -> tuple[str, int, int]:
    """Identifies the content of a file: its resolved path, modification time and size."""
    try:
        state = path.stat()
    except OSError as error:
        raise ImageError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    return str(path.resolve()), state.st_mtime_ns, state.st_size


def is_picture_argument(argument: str) -> bool:
    """Whether an argument means images rather than a concept: by its suffix, or as a path (``cat/``) or pattern."""
    return Path(argument).suffix.lower() in PICTURE_SUFFIXES or "/" in argument or glob.has_magic(argument)


def _matches(name: str) -> Iterator[Path]:
    """The images of one name, folder or pattern, in order."""
    path = Path(name)
    if path.exists() and not path.is_dir():
        yield path
        return
    matches = [path] if path.is_dir() else map(Path, sorted(glob.glob(name, recursive=True)))  # noqa: PTH207 - takes absolute patterns too
    for match in matches:
        if match.is_dir():
            yield from _pictures_below(match)
        elif match.suffix.lower() in PICTURE_SUFFIXES:
            yield match


def _pictures_below(folder: Path) -> Iterator[Path]:
    """All images in a folder and below by name, without hidden files and folders."""

    def refuse(error: OSError) -> None:
        reason = f"{error.strerror}; check its permissions."
        raise ImageError(f"the folder {error.filename!r} cannot be read: {reason}") from error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(inner for inner in folders if not inner.startswith("."))
        for file in sorted(files):
            if not file.startswith(".") and Path(file).suffix.lower() in PICTURE_SUFFIXES:
                yield Path(parent, file)


def read_image(source: str | os.PathLike[str] | Image.Image | Array | torch.Tensor) -> Image.Image:
    """Read an image as upright eight-bit RGB.

    * Rotated by its EXIF orientation.
    * Of an animation or of several pages, the first (of an opened `PIL.Image.Image`, the current one).
    * Transparent pixels are put on white.
    * CMYK is converted by the image's own ink profile, or plainly where it has none. The profile of an RGB image is
      not applied: classifiers were trained without.
    * 16-bit grey is scaled to 8 bits (0..65535 to 0..255). 32-bit integers likewise if they lie in 0..65535,
      otherwise from their minimum..maximum.
    * Floating-point TIFF is scaled from 0..1 if it lies there, otherwise from its minimum..maximum.
    * Arrays are ``[H, W]``, ``[H, W, 1]``, ``[H, W, 3]`` or ``[H, W, 4]`` and tensors ``[H, W]``, ``[1, H,
      W]``, ``[3, H, W]`` or ``[4, H, W]``, of uint8, uint16, bool, or floating point within 0..1.

    Pillow's guard against decompression bombs stays on, and its warning is an error here. The result is a new image
    without metadata; an ImageError has the reason and the remedy.

    Example:
        >>> read_image(np.zeros((4, 6), dtype=np.uint8)).size
        (6, 4)
    """
    if isinstance(source, Image.Image):
        return _decoded(source, "the image", own=False)
    if isinstance(source, torch.Tensor):
        return _from_array(_channels_last(source.detach().cpu()), "the tensor")
    if isinstance(source, np.ndarray):
        return _from_array(source, "the array")
    if isinstance(source, str | os.PathLike):
        return _from_file(Path(os.fsdecode(source)))[0]
    raise ImageError(f"{type(source).__name__} is not an image: pass a file name, a PIL image, an array or a tensor.")


Size = tuple[int, int]


def read_reduced(path: Path, least: Size | None) -> tuple[Image.Image, Size]:
    """As `read_image`, from a file, with the upright size of the whole image; a large JPEG may be decoded smaller.

    It is decoded at a half, a quarter or an eighth of its size, whichever is the smallest at which its longer and
    shorter side keep ``least`` pixels (None: whole) and which is in whole pixels: else its content would be stretched,
    if by less than a pixel. Other formats are always decoded whole.
    """
    return _from_file(path, least)


def reduced_size(whole: Size, least: Size) -> Size:
    """The size at which a JPEG may be decoded in place of the whole one: see `read_reduced`.

    Example:
        >>> reduced_size((4032, 3024), (1600, 832)), reduced_size((4031, 3024), (1600, 832))
        ((2016, 1512), (4031, 3024))
    """
    longest, shortest = least
    for part in (8, 4, 2):
        size = whole[0] // part, whole[1] // part
        if whole == (size[0] * part, size[1] * part) and max(size) >= longest and min(size) >= shortest:
            return size
    return whole


def decode_image(content: bytes, name: str = "the image", *, most_pixels: int | None = None) -> Image.Image:
    """As `read_image`, from the bytes of a file; ``most_pixels`` is a stricter limit than Pillow's own."""
    image = _opened(BytesIO(content), name)
    if most_pixels is not None and image.width * image.height > most_pixels:
        raise ImageError(
            f"{name} has {image.width} x {image.height} pixels, more than {most_pixels:,}: make it smaller."
        )
    return _decoded(image, name)


def picture_format(content: bytes, name: str = "the image") -> str:
    """The format of a file by its first bytes; an ImageError where it is none of those that are read, or a bomb."""
    return str(_opened(BytesIO(content), name).format)


def readable_formats() -> list[str]:
    """The formats that are read, by Pillow's names; older versions of Pillow know fewer."""
    Image.init()
    return [known for known in FORMATS if known in Image.OPEN]


def _from_file(path: Path, least: Size | None = None) -> tuple[Image.Image, Size]:
    """Read a file, after checking that it is a regular one; see `read_reduced`."""
    name = repr(str(path))
    try:
        about = path.stat()
    except FileNotFoundError as error:
        raise ImageError(f"there is no file {name}: check the name and the folder.") from error
    except (OSError, ValueError) as error:
        raise ImageError(f"{name} cannot be reached: {_reason(error)}; check its name and permissions.") from error
    if stat.S_ISDIR(about.st_mode):
        raise ImageError(f"{name} is a folder: name an image in it, or use find_images to list them all.")
    if not stat.S_ISREG(about.st_mode):
        raise ImageError(f"{name} is not a plain file but a pipe or a device: save the image to a file first.")
    if about.st_size == 0:
        raise ImageError(f"{name} is empty (0 bytes): copy or download it again.")
    try:
        with path.open("rb") as file:
            image = _opened(file, name)
            whole = image.size
            if least is not None and image.format in {"JPEG", "MPO"}:
                image.draft(image.mode, reduced_size(whole, least))
            picture, small = _decoded(image, name), image.size
            if small == whole:
                return picture, picture.size
            return picture, whole[::-1] if image.getexif().get(ORIENTATION_TAG, 1) in SIDEWAYS else whole
    except OSError as error:
        raise ImageError(f"{name} cannot be opened: {_reason(error)}; check its permissions.") from error


def _opened(file: BinaryIO, name: str) -> Image.Image:
    """Open with Pillow, with a strict guard against decompression bombs."""
    try:
        with _quietly():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(file, formats=readable_formats())
    except UnidentifiedImageError as error:
        raise ImageError(
            f"{name} is not an image excite can read, or it is cut off: convert it to PNG or JPEG."
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = f"{Image.MAX_IMAGE_PIXELS:,}"
        raise ImageError(
            f"{name} has more pixels than the limit of {limit} (a guard against decompression bombs): "
            "make it smaller, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it."
        ) from error
    except Exception as error:
        raise _broken(name, error) from error


def _decoded(image: Image.Image, name: str, *, own: bool = True) -> Image.Image:
    """Decode all pixels and convert them to upright RGB, with at most two images in memory."""
    if image.width == 0 or image.height == 0:
        raise ImageError(f"{name} has no pixels ({image.width} x {image.height}): both sides must be at least 1.")
    most = MOST_PIXELS.get(image.format or "", image.width * image.height)
    if image.width * image.height > most:
        raise ImageError(
            f"{name} has {image.width} x {image.height} pixels, and decoding more than {most:,} as {image.format} "
            "takes gigabytes: make it smaller, or save it as JPEG or PNG."
        )
    try:
        may_warn = image.format in {"PNG", "TIFF"} or getattr(image, "is_animated", False)
        with _quietly() if may_warn else nullcontext():
            image.load()
        turn = _turn(image, name)
        plain = _as_rgb(image, name)
        if own and plain is not image:
            image.close()
        if turn is not None:
            plain = plain.transpose(turn)
        elif plain is image:
            plain = image.copy()
    except ImageError:
        raise
    except Exception as error:
        raise _broken(name, error) from error
    plain.info = {}  # or the orientation would be applied again
    return plain


@contextmanager
def _quietly() -> Iterator[None]:
    """Without Pillow's warnings about oddities in a file; one thread at a time."""
    with _OPENING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _broken(name: str, error: Exception) -> ImageError:
    return ImageError(f"{name} is damaged or cut off ({_reason(error)}): copy, download or save it again.")


def _reason(error: Exception) -> str:
    """The message of an error of Pillow or the system, in one line."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(said.split()) or type(error).__name__


def _turn(image: Image.Image, name: str) -> Image.Transpose | None:
    """The rotation to upright by the EXIF data; formats that rotate themselves when decoded have none left."""
    try:
        with _OPENING, warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always")
            orientation = image.getexif().get(ORIENTATION_TAG)
            doubt = _reason(Exception(doubts[0].message)) if doubts else ""
    except Exception as error:  # noqa: BLE001 - broken metadata is no reason to refuse an image
        orientation, doubt = None, _reason(error)
    if orientation is None and doubt:
        warnings.warn(one_line(f"{name} has broken EXIF data ({doubt}) and is taken to be upright."), stacklevel=5)
    return UPRIGHT.get(orientation) if isinstance(orientation, int) else None


def _channels_last(tensor: torch.Tensor) -> Array:
    """A tensor as an array with its channels last."""
    shape = list(tensor.shape)
    if tensor.ndim == 4:
        raise ImageError(f"the tensor {shape} is a batch: pass one image at a time, such as images[0].")
    if tensor.ndim not in {2, 3} or (tensor.ndim == 3 and shape[0] not in CHANNELS):
        raise ImageError(f"the tensor {shape} is not an image: pass [3, H, W] or [1, H, W], permute it if need be.")
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    return np.asarray(tensor.numpy() if tensor.ndim == 2 else tensor.permute(1, 2, 0).numpy())


def _from_array(array: Array, name: str) -> Image.Image:
    """An image from an array, with or without channels."""
    if array.ndim not in {2, 3} or (array.ndim == 3 and array.shape[2] not in CHANNELS):
        raise ImageError(f"{name} {list(array.shape)} is not an image: pass [H, W], [H, W, 1], [H, W, 3] or [H, W, 4].")
    if array.size == 0:
        raise ImageError(f"{name} has no pixels {list(array.shape)}: both sides must be at least 1.")
    eight = _eight_bits(array, name)
    grey = eight.ndim == 3 and eight.shape[2] == 1
    image = Image.fromarray(np.ascontiguousarray(eight[:, :, 0] if grey else eight))
    plain = _as_rgb(image, name)
    return plain.copy() if plain is image else plain  # it may share its memory with the array


def _eight_bits(array: Array, name: str) -> NDArray[np.uint8]:
    """Values as 0..255, by their type; floats have to lie in 0..1."""
    kind, bytes_each = array.dtype.kind, array.dtype.itemsize
    if kind == "u" and bytes_each == 1:
        return array
    if kind == "u" and bytes_each == 2:
        return np.rint(array / 257).astype(np.uint8)
    if kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    if kind != "f":
        raise ImageError(f"{name} holds {array.dtype}: convert it to uint8 (0..255), uint16 or floats in 0..1.")
    if not np.isfinite(array).all():
        raise ImageError(f"{name} holds NaN or infinity: replace them by numbers in 0..1.")
    if array.min() < 0 or array.max() > 1:
        span = f"{array.min():.4g}..{array.max():.4g}"
        raise ImageError(f"{name} holds floats in {span}: bring them to 0..1 first, undoing any normalisation.")
    return np.rint(array.astype(np.float64) * 255).astype(np.uint8)


def _as_rgb(image: Image.Image, name: str) -> Image.Image:
    """A decoded image of any mode as RGB, with at most one more in memory; one that is RGB is returned itself."""
    if image.mode == "CMYK":
        return _from_inks(image)
    if image.mode == "F" or image.mode.startswith("I"):
        return _from_deep_grey(image, name)
    if image.has_transparency_data:
        return _on_white(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """The image in strips of its whole width, each with its first row, to save memory."""
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
    """CMYK as RGB; Pillow has already undone Adobe's inversion."""
    from PIL import ImageCms

    if not (content := image.info.get("icc_profile")):
        return image.convert("RGB")
    profile = ImageCms.ImageCmsProfile(BytesIO(content))
    if profile.profile.xcolor_space.strip() != "CMYK":
        return image.convert("RGB")  # no profile of inks
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
