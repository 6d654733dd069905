"""The experiments of the paper, over one loop that can be stopped, resumed and shared out.

Here are only their defaults, for the help of the commands: nothing else is imported before an experiment runs.
"""

POINTING_METHODS = "excite,c-mwp,mwp,center"
GROUNDING_METHODS = "excite,c-mwp,mwp,grad,guided,cam,center"  # not lrp, which is slow
LOCALIZATION_METHODS = "grad,deconv,lrp,cam,grad-cam,mwp,c-mwp,extent"
HELD_OUT = 0.2
"""The share of the images on which thresholds are chosen."""
