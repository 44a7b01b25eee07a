"""Whether a measure of stored studies goes with a column that the user gives."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
