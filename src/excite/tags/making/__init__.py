"""Corpora whose truth is known."""
