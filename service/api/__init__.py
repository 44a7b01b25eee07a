"""The HTTP service: a catalog's similarity search for programs and for the page."""

from .searchers import set_up_process
from .server import address, ends_in_time, listen, make_app, run_server
from .service import Service
from .settings import ServiceSettings

__all__ = [
    "Service",
    "ServiceSettings",
    "address",
    "ends_in_time",
    "listen",
    "make_app",
    "run_server",
    "set_up_process",
]
