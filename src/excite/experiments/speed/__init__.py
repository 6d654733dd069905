"""What a map costs, in forward passes and in memory."""
