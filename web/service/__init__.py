"""The HTTP service: a catalog's similarity search for programs and for the page."""

from .app import make_app
from .process import keep_memory
from .server import address, listen, run_server
from .service import Service
from .settings import ServiceSettings

__all__ = [
    "Service",
    "ServiceSettings",
    "address",
    "keep_memory",
    "listen",
    "make_app",
    "run_server",
]
