"""Questions to a catalog: nearest models, retrieval precision, explanations, maps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
