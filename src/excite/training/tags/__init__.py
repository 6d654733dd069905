"""Tag classifiers: from a corpus of tagged images to a model folder that every command accepts."""
