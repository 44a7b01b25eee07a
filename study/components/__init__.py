"""What hidden states are made of, and which parts of a network a fine-tune edited."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
