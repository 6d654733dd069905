"""A raw corpus made one worth learning from: the rules of the paper's appendix, and what goes past them."""
