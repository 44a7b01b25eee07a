"""The page's files: those that are there at the start, and no others."""

from __future__ import annotations

from importlib.resources import files
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response

from .problems import Problem
from .replies import Packed

INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
}


class PageFiles:
    """Files by name, in memory; a name that is not among them is not looked for on the disk."""

    def __init__(self) -> None:
        self._files: dict[str, Packed] = {}
        folder = files(__package__.rpartition(".")[0]) / "page"
        if not folder.is_dir():
            return
        for file in folder.iterdir():
            media_type = MEDIA_TYPES.get(PurePosixPath(file.name).suffix)
            if media_type is not None and file.is_file():
                self._files[file.name] = Packed.of(file.read_bytes(), media_type)

    def answer(self, name: str, request: Request) -> Response:
        """The file of that name.

        Raises:
            Problem: 404.
        """
        if name not in self._files:
            raise Problem(404, "not-found", "no such file; the API is under /api/v1")
        return self._files[name].response(request)
