"""How a network's states change from layer to layer, and what tells the layers apart."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
