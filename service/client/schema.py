"""The schemas of a service's answers, by its OpenAPI document, and what is wrong with an answer."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
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
"""References that lead to one another, and parts inside parts."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as pydantic writes them; `document` has what it refers to."""

    declared: Mapping[str, Any]
    document: Mapping[str, Any]

    def fault(self, value: Any) -> str:
        """What is wrong with a value, with its place; nothing where it keeps to the schema."""
        try:
            return next(self._faults(value, self.declared, "answer", 0), "")
        except (AttributeError, KeyError, TypeError, ValueError):
            return "its schema is none"

    def _faults(self, value: Any, schema: Mapping[str, Any], at: str, depth: int) -> Iterator[str]:
        schema = resolved(self.document, schema)
        if depth > DEEPEST:
            yield f"{at}: nested too deeply"
        elif options := schema.get("anyOf"):
            if all(any(self._faults(value, one, at, depth + 1)) for one in options):
                yield f"{at}: {_shown(value)} is none of what may stand there"
        elif not _is_kind(value, schema.get("type")):
            yield f"{at}: {_shown(value)} is no {schema['type']}"
        elif value not in schema.get("enum", (value,)) or value != schema.get("const", value):
            yield f"{at}: {_shown(value)} is not among the values"
        elif isinstance(value, dict):
            yield from self._faults_inside(value, schema, at, depth)
        elif isinstance(value, list) and "items" in schema:
            if _are_plain(value, schema["items"]):
                return
            for place, entry in enumerate(value):
                yield from self._faults(entry, schema["items"], f"{at}[{place}]", depth + 1)
        elif isinstance(value, int | float) and not _is_in_range(value, schema):
            yield f"{at}: {value} is out of range"

    def _faults_inside(
        self, value: dict[str, Any], schema: Mapping[str, Any], at: str, depth: int
    ) -> Iterator[str]:
        yield from (f"{at}: no {name}" for name in schema.get("required", ()) if name not in value)
        for name, declared in schema.get("properties", {}).items():
            if name in value:
                yield from self._faults(value[name], declared, f"{at}.{name}", depth + 1)


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


def _is_in_range(value: int | float, schema: Mapping[str, Any]) -> bool:
    low, high = (
        schema.get("minimum", -sys.float_info.max),
        schema.get("maximum", sys.float_info.max),
    )
    return bool(low <= value <= high)


def _are_plain(values: list[Any], schema: Mapping[str, Any]) -> bool:
    """Whether values are of the types that a schema names and asks nothing else of: the long
    columns of a map, at once."""
    options = schema.get("anyOf", [schema])
    if not all(option.keys() <= {"type", "title"} for option in options):
        return False
    kinds = {kind for option in options for kind in KINDS.get(option.get("type"), ())}
    return set(map(type, values)) <= kinds - {dict, list} and not {math.inf, -math.inf} & set(
        values
    )


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:39]}…"
