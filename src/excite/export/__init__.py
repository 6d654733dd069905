"""Export: the network with its forward and top-down pass in one ONNX or torch.export file.

Nothing is imported here: `excite.compile` needs only a part of it, and torch's tracing takes half a second to import.
"""

INPUTS, OUTPUTS = ("picture", "signal"), ("map", "output")  # the names in every file
