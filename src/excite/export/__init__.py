"""Export: the network with its forward and top-down pass in one ONNX or torch.export file."""

from excite.export.export import Exported, export

__all__ = ["Exported", "export"]
