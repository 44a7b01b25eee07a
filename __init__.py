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
    from .questions.doctor import doctor
    from .questions.face.database import Database, open
    from .results import Table
    from .service.client.remote import connect

__version__ = "0.3.0"

_PLACES = {
    "Database": ".questions.face.database",
    "Table": ".results",
    "connect": ".service.client.remote",
    "doctor": ".questions.doctor",
    "open": ".questions.face.database",
}

__all__ = ["Database", "Table", "__version__", "connect", "doctor", "errors", "open"]


def __getattr__(name: str) -> object:
    """A public name, loaded when it is first used: importing deltadex loads nothing else."""
    if name == "errors":
        value: object = import_module(".errors", __name__)
    elif name in _PLACES:
        value = getattr(import_module(_PLACES[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
