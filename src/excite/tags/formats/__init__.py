"""Corpora that are no Parquet yet: text files and captions."""
