"""What experiments compare unless they are told otherwise; here, so that commands can say it without heavy imports."""

from __future__ import annotations

__all__ = ["GROUNDING_METHODS", "HELD_OUT", "LOCALIZATION_METHODS", "POINTING_METHODS"]

POINTING_METHODS = "excite,c-mwp,mwp,center"
GROUNDING_METHODS = "excite,c-mwp,mwp,grad,guided,cam,center"  # lrp can be asked for, and is slow
LOCALIZATION_METHODS = "grad,deconv,lrp,cam,grad-cam,mwp,c-mwp,extent"

HELD_OUT = 0.2
"""The share of the pictures on which thresholds are chosen."""
