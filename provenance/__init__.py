"""Where a model comes from: its base, its parents, its lineage, what was edited."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
