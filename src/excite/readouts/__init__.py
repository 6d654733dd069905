"""Readouts of a map ``[h, w]`` of any size over an image of ``(width, height)``: point, box, overlay, figures.

Example:
    >>> import torch
    >>> from excite.readouts.point import maximum_point
    >>> maximum_point(torch.eye(3), size=(3, 3))
    (0, 0)
"""
