"""Output layers for other concepts, trained on features that stay as they are."""
