"""Corpora of tagged images: reading, statistics, and the cleaning of the paper's appendix."""
