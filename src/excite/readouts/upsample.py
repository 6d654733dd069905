"""A map at the size of the image it explains."""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from excite.errors import ExciteError

__all__ = ["Mode", "checked_map", "checked_size", "upsample"]

Mode = Literal["bicubic", "bilinear", "nearest"]
"""How values between the map's own pixels are found."""


def upsample(values: Tensor, size: tuple[int, int], mode: Mode = "bicubic") -> Tensor:
    """Stretch a map over its image, pixel areas on pixel areas (``align_corners=False``).

    The authors of the method resize their maps with cubic interpolation, so that is the default. Note that a
    cubic curve may overshoot: slightly below zero beside a steep peak, or slightly above the highest value.
    Where the image is *smaller* than the map, bicubic and bilinear first average the map down to it, so
    that no evidence falls between two pixels.

    Args:
        values: the map, ``[h, w]``.
        size: ``(width, height)`` of the image.
        mode: ``"bicubic"``, ``"bilinear"`` or ``"nearest"``.

    Returns:
        The map ``[height, width]``, in float32 or in the map's own precision where that is higher.

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
    """The map in at least float32, or an error: every readout wants finite numbers on a plane.

    Why so strict: an argmax or a mean over NaN gives an answer that looks like any other.

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
    """The ``(width, height)`` of an image as plain integers, or an error.

    Why: a size with a zero, a fraction or three numbers is most often an array's shape passed by mistake.

    Example:
        >>> checked_size((640, 480))
        (640, 480)
    """
    try:
        width, height = (int(side) for side in size)
        sensible = (width, height) == tuple(size) and width > 0 and height > 0
    except (TypeError, ValueError, OverflowError):
        sensible = False
    if not sensible:
        raise ExciteError(f"an image's size must be (width, height) in whole pixels, both at least 1, not {size!r}.")
    return width, height
