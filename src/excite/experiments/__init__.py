"""The experiments of the paper: one file each, over one loop that can be stopped, resumed and shared out."""
