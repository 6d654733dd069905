"""What both proposers of OpenCV need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import ExciteError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["corners", "opencv"]


def opencv() -> Any:
    """The package ``cv2``, if it has what proposals need.

    Raises:
        ExciteError: It is not installed, or without its extra modules.

    Example:
        >>> hasattr(opencv(), "ximgproc")
        True
    """
    try:
        import cv2
    except ImportError:
        raise ExciteError("these proposals need OpenCV: pip install 'excite[proposals]'") from None
    if not hasattr(cv2, "ximgproc"):
        raise ExciteError(
            "these proposals need OpenCV's extra modules: pip install 'excite[proposals]', no other OpenCV"
        )
    return cv2


def corners(rectangles: Any) -> NDArray[np.float32]:
    """OpenCV's x, y, width, height as half-open boxes.

    Example:
        >>> corners([[1, 2, 3, 4]]).tolist()
        [[1.0, 2.0, 4.0, 6.0]]
    """
    boxes = np.asarray(rectangles, np.float32).reshape(-1, 4).copy()
    boxes[:, 2:] += boxes[:, :2]
    return boxes
