"""One probe for every model of a family: its profile, and its activation shifts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
