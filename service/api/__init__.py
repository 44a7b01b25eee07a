"""The HTTP service: a catalog's similarity search for programs and for the page."""

from .server import address, ends_in_time, listen, make_app, run_server, set_up_process
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
