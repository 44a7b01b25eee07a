"""An adapter's tensors and settings to ΔW, module by module.

An adapter of another method, or with the wrong tensors, is a `ModelError` with its code.
"""

from .adapter import Adapter as Adapter
from .adapter import read_adapter as read_adapter
