"""What all questions share on the command line: options, the screen, progress, files of tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
