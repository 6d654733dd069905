"""Conversion of text files and captions to Parquet corpora."""
