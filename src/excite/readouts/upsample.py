"""A map resized to its image, and the checks of maps and sizes."""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from excite.errors import ExciteError

Mode = Literal["bicubic", "bilinear", "nearest"]
"""The interpolation."""


def upsample(values: Tensor, size: tuple[int, int], mode: Mode = "bicubic") -> Tensor:
    """Resize a map to its image, pixel areas on pixel areas (``align_corners=False``).

    Cubic interpolation is the default, as in the authors' code; it may overshoot a little beside a steep peak. Where
    the image is *smaller* than the map, bicubic and bilinear average the map down first, so that no evidence is lost.

    Args:
        values: the map, ``[h, w]``.
        size: ``(width, height)`` of the image.
        mode: the interpolation.

    Returns:
        The map ``[height, width]``, in float32 or in its own precision where that is higher.

    Raises:
        ExciteError: the map is not a finite, non-empty 2-D one, or the size or the mode makes no sense.

    Example:
        >>> upsample(torch.tensor([[0.0, 1.0]]), size=(4, 1), mode="nearest")
        tensor([[0., 0., 1., 1.]])
    """
    values = checked_map(values)
    width, height = checked_size(size)
    if mode not in get_args(Mode):
        raise ExciteError(f"there is no interpolation {mode!r}: use one of {', '.join(get_args(Mode))}.")
    batch = values[None, None]
    if mode == "nearest":
        return interpolate(batch, size=(height, width), mode="nearest-exact")[0, 0]
    # torch's own smoothing (antialias=True) mixes up rows when the image is one pixel wide, as of torch 2.13
    common = min(height, values.shape[0]), min(width, values.shape[1])
    batch = interpolate(batch, size=common, mode="area")
    return interpolate(batch, size=(height, width), mode=mode, align_corners=False)[0, 0]


def checked_map(values: Tensor) -> Tensor:
    """The map in at least float32; an error for what is no plane of finite numbers (an argmax over NaN looks valid).

    Example:
        >>> checked_map(torch.ones(2, 2, dtype=torch.float16)).dtype
        torch.float32
    """
    if not isinstance(values, Tensor):
        raise ExciteError(f"a map must be a torch.Tensor, not {type(values).__name__}: use torch.as_tensor(values).")
    if values.ndim != 2 or values.numel() == 0:
        raise ExciteError(
            f"a map must be a plane [h, w] with h, w >= 1, not {list(values.shape)}: pass one map at a time."
        )
    if values.is_complex():
        raise ExciteError("a map must hold real numbers, not complex ones: pass its absolute value or its real part.")
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    if not values.isfinite().all():
        raise ExciteError("the map holds NaN or infinity: look for the layer or the image that brought them in.")
    return values


def checked_size(size: tuple[int, int]) -> tuple[int, int]:
    """The ``(width, height)`` of an image as plain integers; an error for anything else, such as an array's shape.

    Example:
        >>> checked_size((640, 480))
        (640, 480)
    """
    try:
        width, height = map(int, size)
        sensible = (width, height) == tuple(size) and width > 0 and height > 0
    except (TypeError, ValueError, OverflowError):
        sensible = False
    if not sensible:
        raise ExciteError(f"an image's size must be (width, height) in whole pixels, both at least 1, not {size!r}.")
    return width, height
