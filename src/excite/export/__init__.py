"""Maps without this library: the network and the whole way down in one file."""

from excite.export.export import Exported, export

__all__ = ["Exported", "export"]
