"""The methods by the networks that they need."""

from excite import METHODS

FOR_ANY_NETWORK = [name for name, method in METHODS.items() if method.place != "attention"]
"""All but those that follow attention."""
