"""The eigenvalues of WᵀW, of updates and of weights, and the power laws of their tails."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
