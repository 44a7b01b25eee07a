"""Services as others reach them: uvicorn on a port of this machine, in a thread."""

import threading
from contextlib import contextmanager

import uvicorn

from deltadex.service.api.server import address, listen, make_app
from deltadex.service.api.service import Service
from deltadex.service.api.settings import ServiceSettings

TOKEN = "0123456789abcdef-token"


@contextmanager
def listening(db, *, app=None, **settings):
    """The address of a ready service over a catalog; `app` wraps what answers."""
    settings = ServiceSettings(
        **{"db": db, "port": 0, "warm": False, "max_seconds": 600.0, **settings}
    )
    with listen(settings) as socket, Service(settings) as service:
        assert service.freshness.ready.wait(60.0)
        made = make_app(service)
        with running(made if app is None else app(made), socket):
            yield address(settings, socket)


@contextmanager
def running(app, socket):
    """The app, answering on a socket that listens."""
    config = uvicorn.Config(app, lifespan="off", log_level="critical", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(30.0)
