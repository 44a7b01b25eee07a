"""deltadex: a vector database of fine-tuned models.

    import deltadex as dx

    db = dx.open("family.duckdb")
    db.index("gpt2", "adapters/", labels="labels.csv")
    db.find_similar("run-7", k=5)

`open` opens a catalog as a `Database`, whose methods are what the command line and the HTTP service
do; `connect` gives the same of a service; `doctor` checks a catalog's file; what they return is a
`Table`; what they raise is in `errors`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import errors
    from .client import connect
    from .database import Database, Table, doctor, open

__version__ = "0.3.0"

__all__ = ["Database", "Table", "__version__", "connect", "doctor", "errors", "open"]


def __getattr__(name: str) -> object:
    """A public name, loaded when it is first used: importing deltadex loads nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "errors":
        value: object = import_module(".errors", __name__)
    else:
        room = ".client" if name == "connect" else ".database"
        value = getattr(import_module(room, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
