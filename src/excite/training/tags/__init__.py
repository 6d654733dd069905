"""The training of a tag classifier: from a corpus of images with tags to a folder that every command takes."""
