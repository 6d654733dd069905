"""Pictures with messy tags: read, cleaned as in the paper's appendix, and turned into a dictionary to learn."""
