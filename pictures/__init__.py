"""Pictures: what all share, and those of lineages, data sets and maps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
