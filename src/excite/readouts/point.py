"""The maximum of a map: the answer of the Pointing Game."""

from torch import Tensor

from excite.readouts.overlay import Mode, checked_map, upsample


def maximum_point(values: Tensor, size: tuple[int, int], mode: Mode = "bicubic") -> tuple[int, int] | None:
    """The pixel of the image with the most evidence: the argmax of the upsampled map.

    A map without positive values has no point, because the argmax would be an arbitrary corner. Of several equal
    maxima the first in reading order is taken.

    Args:
        values: the map, ``[h, w]``.
        size: ``(width, height)`` of the image.
        mode: the interpolation of the map.

    Returns:
        ``(x, y)`` with ``0 <= x < width`` and ``0 <= y < height``, or ``None`` without positive values.

    Raises:
        ExciteError: the map holds NaN or infinity, or is not a plane, or the size is none.

    Example:
        >>> import torch
        >>> maximum_point(torch.tensor([[0.0, 1.0, 0.0]]), size=(9, 1))
        (4, 0)
    """
    upsampled = upsample(values, size, mode)
    return None if checked_map(values).max() <= 0 else peak(upsampled)


def peak(upsampled: Tensor) -> tuple[int, int]:
    """The same for a map at the size of its image with a positive value.

    Example:
        >>> import torch
        >>> peak(torch.eye(3).flip(0)[:2])
        (2, 0)
    """
    y, x = divmod(int(upsampled.argmax()), upsampled.shape[1])
    return x, y
