"""`deltadex.connect`: a service, whose questions are sent there as they are."""

from __future__ import annotations

import os

from .connection import Connection, Sending
from .database import RemoteDatabase
from .operations import Operations
from .several import IN_STEPS

TIMEOUT_S = 600.0


def connect(url: str, *, token: str | None = None, timeout: float = TIMEOUT_S) -> RemoteDatabase:
    """Connect to the service at an address; its methods and results are those of `open`.

    What a service does not do raises `NotServed`: to index folders, to run models, to write files
    for others. It names models by their whole ids. An adapter that is a folder here, or is in
    memory, and a data set in one file are sent along.

    Args:
        url: Where the service is: `http://127.0.0.1:8321`.
        token: What changes and copies of the catalog need; None takes $DELTADEX_TOKEN.
        timeout: Seconds until an answer, with pauses of a busy service and jobs.

    Raises:
        ServiceError: no service of deltadex can be reached there.

    >>> with dx.connect(url) as family:
    ...     len(family.models())
    4
    """
    token = token or os.environ.get("DELTADEX_TOKEN") or None
    connection = Connection(url, token and token.strip(), timeout)
    try:
        document = connection.ask(Sending(path="openapi.json", tries=1))
        operations = Operations.parse(document, connection.url)
    except BaseException:
        connection.close()
        raise
    return RemoteDatabase(connection, operations, IN_STEPS)
