"""What each term of an embedding is worth: predictions from every subset of the terms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
