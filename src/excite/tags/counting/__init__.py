"""What a corpus is like: its frequencies, its words, its pictures."""
