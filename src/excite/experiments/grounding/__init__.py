"""Text-to-region association (paper, section 4.3): run, scores, report, page."""
