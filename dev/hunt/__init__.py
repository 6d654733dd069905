"""Looks for answers that are silently wrong: odd networks beside plain twins, and torch's functions beside matrices."""
