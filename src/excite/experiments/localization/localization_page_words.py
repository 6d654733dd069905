"""What the page of localisation calls the ways to find a box."""

from __future__ import annotations

__all__ = ["ALPHA", "LEVELS", "PIECES", "WAYS"]

ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
TIMES = "\N{MULTIPLICATION SIGN}"
LEVELS = {
    f"{ALPHA} {TIMES} mean": ("paper", "largest"),
    f"t {TIMES} max": ("max",),
    f"t {TIMES} range": ("max-largest", "any"),
}
"""What a pixel has to be above, and the rules of which this is so."""

PIECES = {
    "paper": "around all",
    "largest": "largest piece",
    "max": "around all",
    "max-largest": "largest piece",
    "any": "best piece",
}
"""What of all that is above is boxed."""

WAYS = {rule: f"{level}, {PIECES[rule]}" for level, rules in LEVELS.items() for rule in rules}
"""Both together, for each rule."""
