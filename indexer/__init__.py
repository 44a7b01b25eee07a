"""Weights to fingerprints: a family's members, their updates, the run over all of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
