"""What a service says of itself: Swagger UI for people, `llms.txt` for language models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...questions.face.meaning import HOW_TO_READ
from .answers import PageFiles, Problem
from .settings import PREFIX


class ApiDocs:
    """The pages, loaded when they are first asked for: Swagger UI is large."""

    def answer(self, name: str, request: Request) -> Response:
        """A file of the page; a `Problem` for a name that is none."""
        own = self._own if name in self._own else self._swagger
        return own.answer(name, request)

    @cached_property
    def _own(self) -> PageFiles:
        return PageFiles(files(__package__.rpartition(".")[0]) / "api_docs")

    @cached_property
    def _swagger(self) -> PageFiles:
        try:
            return PageFiles(files("fastapi_swagger") / "resources")
        except ModuleNotFoundError as err:
            detail = "this page needs fastapi-swagger: pip install 'deltadex[serve]'"
            raise Problem(404, "not-found", detail) from err


ABOUT = f"""# deltadex

> A vector database of fine-tuned models: it finds models that were trained on the same data, by
> what changed in their weights. This is a service over one catalog.

{HOW_TO_READ}
Models are named by their ids, letter by letter; `base` is needed only if there are several
families. 202 means: ask again after `Retry-After` seconds. `deltadex mcp --url` serves the same to
assistants, and `deltadex.connect(url)` to Python.

## Documents

- [OpenAPI](api/v1/openapi.json): every request, answer and limit
- [Requests](api/v1/docs): the same as a page
- [Families](api/v1/families): what this catalog holds

## Requests

"""


def llms_txt(document: Mapping[str, Any]) -> str:
    """The requests of an OpenAPI document, a line for each, below what deltadex is."""
    return ABOUT + "".join(_lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            names = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"]
            query = f"?{'&'.join(f'{name}=' for name in names)}" if names else ""
            says = operation["description"].split("\n\n")[0].replace("\n", " ").rstrip(".")
            token = "; with the token" if "security" in operation else ""
            yield f"- `{method.upper()} {path.removeprefix(f'{PREFIX}/')}{query}`: {says}{token}\n"
