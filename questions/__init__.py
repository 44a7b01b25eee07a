"""Every question is a file or a folder: its options, its answer, how it is shown, its command."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
