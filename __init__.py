"""deltadex: a vector database of fine-tuned models.

    import deltadex as dx

    db = dx.open("family.duckdb")
    db.index("gpt2", "adapters/", labels="labels.csv")
    db.find_similar("run-7", k=5)

`open` opens a catalog as a `Database`, whose methods are what the command line and the HTTP service
do; `connect` gives the same of a service; `doctor` checks a catalog's file; what they return is a
`Table`; what they raise is in `errors`.
"""

import lazy_loader

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
