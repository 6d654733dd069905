"""Readouts of a map ``[h, w]`` of any size over an image of ``(width, height)``: point, box, overlay, figures."""
