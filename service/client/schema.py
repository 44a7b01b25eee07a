"""The schemas of a service's answers, by its OpenAPI document, and what is wrong with an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS: Mapping[str, tuple[type[Any], ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


DEEPEST = 64
"""References that lead to one another."""

MOST_LOOKED_AT = 100
"""Entries of a list: the columns of a map have a hundred thousand."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as pydantic writes them; `document` has what it refers to."""

    declared: Mapping[str, Any]
    document: Mapping[str, Any]

    def fault(self, value: Any) -> str:
        """What is wrong with a value, with its place; nothing where its keys are there and have
        their types."""
        try:
            return self._fault(value, self.declared, "answer")
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            return "its schema is none"

    def _fault(self, value: Any, schema: Mapping[str, Any], at: str) -> str:
        schema = resolved(self.document, schema)
        if options := schema.get("anyOf"):
            faults = [self._fault(value, one, at) for one in options]
            return "" if "" in faults else f"{at}: {_shown(value)} is none of what may stand there"
        if not _is_kind(value, schema.get("type")):
            return f"{at}: {_shown(value)} is no {schema['type']}"
        faults = []
        if isinstance(value, dict):
            faults = [f"{at}: no {key}" for key in schema.get("required", ()) if key not in value]
            declared = schema.get("properties", {})
            faults += [
                self._fault(value[key], declared[key], f"{at}.{key}")
                for key in declared
                if key in value
            ]
        elif isinstance(value, list) and "items" in schema:
            entries = enumerate(value[:MOST_LOOKED_AT])
            faults = [self._fault(one, schema["items"], f"{at}[{n}]") for n, one in entries]
        return next(filter(None, faults), "")


def resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a schema refers to; `ValueError` where references lead in a circle."""
    for _ in range(DEEPEST):
        if "$ref" not in schema:
            return schema
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    raise ValueError("references lead in a circle")


def _is_kind(value: Any, kind: str | None) -> bool:
    if kind is None or kind not in KINDS:
        return True
    return isinstance(value, KINDS[kind]) and (not isinstance(value, bool) or kind == "boolean")


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:39]}…"
