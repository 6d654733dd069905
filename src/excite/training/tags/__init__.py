"""The training of a tag classifier: from a corpus of pictures with tags to a folder that every command takes."""
