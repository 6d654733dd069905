"""Cleaning of a corpus: the rules of the paper's appendix, and near duplicates."""
