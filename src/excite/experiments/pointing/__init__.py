"""The Pointing Game (paper, section 4.1): run, scores, report, page."""
