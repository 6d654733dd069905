"""Where the evidence peaks: the answer of the pointing game."""

from torch import Tensor

from excite.readouts.upsample import Mode, checked_map, upsample

__all__ = ["maximum_point", "peak"]


def maximum_point(values: Tensor, size: tuple[int, int], mode: Mode = "bicubic") -> tuple[int, int] | None:
    """The pixel of the image with the most evidence: the plain argmax of the stretched map.

    A map without any positive value points nowhere, and says so: counting the corner that an argmax happens
    to return there as a pointing would credit a method for maps that hold nothing. Of several equal maxima
    the first is taken, rows from the top, pixels from the left.

    Args:
        values: the map, ``[h, w]``.
        size: ``(width, height)`` of the image.
        mode: how the map is stretched over the image.

    Returns:
        ``(x, y)`` with ``0 <= x < width`` and ``0 <= y < height``, or ``None`` when no value of the map is
        positive.

    Raises:
        ExciteError: the map holds NaN or infinity, or is not a plane, or the size makes no sense.

    Example:
        >>> import torch
        >>> maximum_point(torch.tensor([[0.0, 1.0, 0.0]]), size=(9, 1))
        (4, 0)
    """
    stretched = upsample(values, size, mode)
    return None if checked_map(values).max() <= 0 else peak(stretched)


def peak(stretched: Tensor) -> tuple[int, int]:
    """The same for a map that is as large as its image and has evidence somewhere.

    Example:
        >>> import torch
        >>> peak(torch.eye(3).flip(0)[:2])
        (2, 0)
    """
    y, x = divmod(int(stretched.argmax()), stretched.shape[1])
    return x, y
