"""The catalog (DuckDB), which is the source of truth, and the index derived from it (FAISS)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
