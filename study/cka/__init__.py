"""How alike the layers of two networks represent the same tokens, up to a rotation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
