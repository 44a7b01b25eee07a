"""What a service says of itself: Swagger UI for people, `llms.txt` for language models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from ...questions.face.meaning import HOW_TO_READ
from .answers import PageFiles, Problem
from .settings import PREFIX


def docs_files() -> PageFiles:
    """The pages, Swagger UI's files among them; a `Problem` where these are not installed."""
    try:
        swagger = files("fastapi_swagger") / "resources"
    except ModuleNotFoundError as err:
        detail = "this page needs fastapi-swagger: pip install 'deltadex[serve]'"
        raise Problem(404, "not-found", detail) from err
    return PageFiles(swagger, files(__package__.rpartition(".")[0]) / "api_docs")


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
