"""Readouts: a map becomes a point, a box, or an image to look at.

One pure function per file; each takes a map ``[h, w]`` of any size and the ``(width, height)`` of the
original image:

* ``upsample``: the map at the image's own size,
* ``point``: where the evidence peaks,
* ``box``: the tightest box around strong evidence,
* ``overlay``: the map drawn over the image (``colours`` holds its colours),
* ``figure``: several images side by side with captions,
* ``notebook``: what a notebook shows for a map,
* ``save``: files that are either whole or not there.

Example:
    >>> import torch
    >>> from excite.readouts.point import maximum_point
    >>> maximum_point(torch.eye(3), size=(3, 3))
    (0, 0)
"""
