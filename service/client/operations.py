"""What a service can be asked, by its OpenAPI document: the questions, and which fields they have.

A service of another version may know other questions and other fields; nothing here lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import NotServed, ServiceError
from ...options import options_of
from ...questions.face.database import ComparedBases, Database, KeptDataSets, PublishedIndexes
from .connection import PREFIX, RETRIES, Sending, in_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A request that answers a question; `path` has its fields in braces, other requests have
    theirs `below` it."""

    method: str
    path: str
    below: frozenset[str]
    query: frozenset[str]
    body: frozenset[str]
    most: Mapping[str, int]
    private: bool
    fault: Callable[[Any], str] | None

    def sending(self, asked: Any, but: Collection[str] = (), **given: Any) -> Sending:
        """The request that asks a record, without the fields `but`; `given` are values in place of
        its own, or of parameters that are none of its fields.

        Raises:
            NotServed: a field is set that the service does not take.
        """
        path, name = self.path, name_of(type(asked))
        query: dict[str, Any] = {}
        body: dict[str, Any] = {}
        for field, (entry, _) in options_of(asked).items():
            if field in but:
                continue
            value = given.get(field, getattr(asked, field))
            if f"{{{field}}}" in self.path:
                said = in_path(str(_plain(value, name, field)), self.below)
                path = path.replace(f"{{{field}}}", said)
            elif not is_default(value, entry):
                if field not in self.query | self.body:
                    raise NotServed(f"{name}: a service takes no {field}; {ELSEWHERE}")
                place = query if field in self.query else body
                place[field] = _plain(value, name, field)
        named = given.keys() - options_of(asked).keys()
        return self.carrying(
            path=path,
            query=query | {key: given[key] for key in named if given[key] is not None},
            body=body if self.body else None,
            tries=0 if name == "db.sql" else RETRIES,
        )

    def carrying(self, **parts: Any) -> Sending:
        """The request with these parts."""
        own = {name: getattr(self, name) for name in ("method", "path", "private", "fault")}
        return Sending(**own | parts)


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of a service, by the question that each answers, and its version."""

    version: str
    of: Mapping[str, Operation]
    at: Mapping[tuple[str, str], Operation]

    @classmethod
    def parse(cls, document: Mapping[str, Any], url: str) -> Operations:
        """Those of an OpenAPI document; `ServiceError` for that of another service."""
        of: dict[str, Operation] = {}
        at: dict[tuple[str, str], Operation] = {}
        try:
            info = document["info"]
            if info["title"] != "deltadex":
                raise ServiceError(f"{url}: {info['title']} answers there, and not deltadex")
            for path, operations in document["paths"].items():
                for method, declared in operations.items():
                    made = _operation(document, path, method, declared)
                    at[made.method, made.path] = made
                    if question := declared.get("x-question"):
                        of.setdefault(question, made)
            return cls(str(info["version"]), of, at)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as err:
            raise ServiceError(f"{url}: no service of deltadex answers there") from err


def _operation(
    document: Mapping[str, Any], path: str, method: str, declared: Mapping[str, Any]
) -> Operation:
    named = declared.get("parameters", ())
    others = (other.rpartition("/") for other in document["paths"])
    content = declared.get("requestBody", {}).get("content", {})
    # a request may be sent in several forms
    schemas = [resolved(document, form["schema"]) for form in content.values()]
    properties = {k: v for schema in schemas for k, v in schema.get("properties", {}).items()}
    return Operation(
        method=method.upper(),
        path=re.sub(r"\{(\w+):\w+\}", r"{\1}", path.removeprefix(f"{PREFIX}/")),
        below=frozenset(last for above, _, last in others if above == path),
        query=frozenset(p["name"] for p in named if p["in"] == "query"),
        body=frozenset(properties),
        most={name: p["maxItems"] for name, p in properties.items() if "maxItems" in p},
        private="security" in declared,
        fault=_checked_by(document, declared),
    )


def _checked_by(
    document: Mapping[str, Any], declared: Mapping[str, Any]
) -> Callable[[Any], str] | None:
    """What says what is wrong with an answer to a request; None where that is no JSON."""
    for status in ("200", "201"):
        content = declared.get("responses", {}).get(status, {}).get("content", {})
        if "application/json" in content:
            return partial(_fault, document, content["application/json"]["schema"])
    return None


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


def _fault(document: Mapping[str, Any], schema: Mapping[str, Any], answer: Any) -> str:
    """What is wrong with an answer, with its place, by a schema as pydantic writes them; nothing
    where its keys are there and have their types."""
    try:
        return _fault_at(document, schema, answer, "answer")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return "its schema is none"


def _fault_at(document: Mapping[str, Any], schema: Mapping[str, Any], value: Any, at: str) -> str:
    schema = resolved(document, schema)
    if options := schema.get("anyOf"):
        faults = [_fault_at(document, one, value, at) for one in options]
        return "" if "" in faults else f"{at}: {_shown(value)} is none of what may stand there"
    if not _is_kind(value, schema.get("type")):
        return f"{at}: {_shown(value)} is no {schema['type']}"
    faults = []
    if isinstance(value, dict):
        faults = [f"{at}: no {key}" for key in schema.get("required", ()) if key not in value]
        declared = schema.get("properties", {})
        faults += [
            _fault_at(document, declared[key], value[key], f"{at}.{key}")
            for key in declared
            if key in value
        ]
    elif isinstance(value, list) and "items" in schema:
        entries = enumerate(value[:MOST_LOOKED_AT])
        faults = [_fault_at(document, schema["items"], one, f"{at}[{n}]") for n, one in entries]
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


def is_default(value: Any, entry: Field[Any]) -> bool:
    """Whether a field has the value that it has where nothing is said."""
    if entry.default_factory is not MISSING:
        return bool(value == entry.default_factory())
    return value is entry.default or bool(value == entry.default)


def changed(asked: Any, *but: str) -> list[str]:
    """The fields of a record that have another value than they have where nothing is said."""
    fields = options_of(asked).items()
    return [n for n, (e, _) in fields if n not in but and not is_default(getattr(asked, n), e)]


PARTS = {
    "": Database,
    "data.": KeptDataSets,
    "known_bases.": ComparedBases,
    "attached.": PublishedIndexes,
}


def name_of(question: type[Any]) -> str:
    """What a question is called in Python: `db.data.show`."""
    for part, kind in PARTS.items():
        for name, member in vars(kind).items():
            if getattr(member, "asked", None) is question:
                return f"db.{part}{name}".removesuffix(".__call__")
    return question.__name__


ELSEWHERE = "open the catalog itself with deltadex.open, on the machine that has it"
"""The way to what a service does not do."""


def _plain(value: Any, name: str, field: str) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str | int | float):
        return value
    raise NotServed(f"{name}: a service takes a name or a number as {field}; {ELSEWHERE}")
