"""An adapter's tensors and settings to ΔW, module by module."""

from .adapter import Adapter, read_adapter

__all__ = ["Adapter", "read_adapter"]
