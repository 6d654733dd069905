"""Localisation of dominant objects (paper, section 4.2): run, scores, report, page."""
