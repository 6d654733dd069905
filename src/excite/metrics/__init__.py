"""What an answer is worth, given the truth: pure functions."""
