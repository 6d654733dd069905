"""Metrics: pure functions of predictions and annotations."""
