"""The public face of deltadex: a catalog as a `Database`, whose results are tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
