"""The experiments of the paper, over one loop that can be stopped, resumed and shared out."""

POINTING_METHODS = "excite,c-mwp,mwp,center"
GROUNDING_METHODS = "excite,c-mwp,mwp,grad,guided,cam,center"  # not lrp, which is slow
LOCALIZATION_METHODS = "grad,deconv,lrp,cam,grad-cam,mwp,c-mwp,extent"
HELD_OUT = 0.2
"""The share of the images on which thresholds are chosen."""
