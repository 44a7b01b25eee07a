"""Where exported vectors are: a collection of a Qdrant server, or a folder of Qdrant Edge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ...errors import RequestError

DEFAULT_PORT = 6333
API_KEY = "QDRANT_API_KEY"
"""The environment variable of the API key: an address is printed and noted, a key is not."""

FORMS = "edge:DIR or qdrant://HOST[:PORT]/COLLECTION[?https=1]"
_MAX_NAME = 255
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


@dataclass(frozen=True, slots=True)
class EdgeTarget:
    """A folder that Qdrant Edge, the engine within this process, reads and writes."""

    folder: Path

    def __str__(self) -> str:
        return f"edge:{self.folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTarget:
    """A collection of a server."""

    host: str
    port: int
    collection: str
    https: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        ending = "?https=1" if self.https else ""
        return f"qdrant://{host}:{self.port}/{quote(self.collection, safe='')}{ending}"


Target = EdgeTarget | ServerTarget


def is_target(text: str) -> bool:
    """Whether a text is meant as a target."""
    return text.startswith(("edge:", "qdrant:"))


def parse_target(text: str) -> Target:
    """The target that a text names.

    Raises:
        RequestError: it names none; the message does not repeat a text that may hold a key.
    """
    if text.startswith("edge:"):
        folder = text.removeprefix("edge:")
        if not folder:
            raise RequestError("edge: needs a folder: edge:DIR")
        return EdgeTarget(Path(folder).expanduser().absolute())
    if not text.startswith("qdrant://"):
        raise RequestError(f"not a target of vectors: give {FORMS}")
    if "@" in text:
        raise RequestError(
            f"the address of a Qdrant server holds no key: set {API_KEY} in the environment"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise RequestError(f"not the address of a collection: give {FORMS}") from None
    collection = unquote(parts.path.strip("/"))
    if not host or not collection or "/" in collection or collection in (".", ".."):
        raise RequestError(f"the address needs a host and a collection: {FORMS}")
    if len(collection) > _MAX_NAME or not collection.isprintable():
        raise RequestError(
            f"a collection's name has up to {_MAX_NAME} printable characters: give another one"
        )
    unknown = set(options) - {"https"}
    https = options.get("https", ["0"])[-1].lower()
    if unknown or parts.fragment or https not in (*_YES, *_NO):
        raise RequestError(
            f"the only option of a Qdrant address is https=1; the key is in {API_KEY}"
        )
    return ServerTarget(host=host, port=port, collection=collection, https=https in _YES)
