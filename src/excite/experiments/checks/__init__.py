"""Checks of the maps of a classifier that need images without annotations: mass, values, randomisation, removal ..."""
