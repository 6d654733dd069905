"""What a map costs, in forward passes and in memory, beside other packages."""
