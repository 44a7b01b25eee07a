"""What a service can be asked, by its OpenAPI document: the questions, and which fields they have.

A service of another version may know other questions and other fields; nothing here lists them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, dataclass
from pathlib import Path
from typing import Any

from ...errors import NotServed, ServiceError
from ...options import options_of
from .connection import PREFIX, RETRIES, Sending, in_path
from .schema import Schema, resolved


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
    answer: Schema | None

    def sending(self, asked: Any, name: str, but: Collection[str] = (), **given: Any) -> Sending:
        """The request that asks a record, without the fields `but`; `given` are values in place of
        its own, or of parameters that are none of its fields.

        Raises:
            NotServed: a field is set that the service does not take.
        """
        path = self.path
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
            repeatable=self.method == "GET",
            private=self.private,
            tries=0 if name == "db.sql" else RETRIES,
        )

    def carrying(self, **parts: Any) -> Sending:
        """The request with these parts."""
        return Sending(**{"method": self.method, "path": self.path, "schema": self.answer} | parts)


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
        answer=_answer(document, declared),
    )


def _answer(document: Mapping[str, Any], declared: Mapping[str, Any]) -> Schema | None:
    """The schema of what a request gives; None where that is no JSON."""
    for status in ("200", "201"):
        content = declared.get("responses", {}).get(status, {}).get("content", {})
        if "application/json" in content:
            return Schema(content["application/json"]["schema"], document)
    return None


def is_default(value: Any, entry: Field[Any]) -> bool:
    """Whether a field has the value that it has where nothing is said."""
    if entry.default_factory is not MISSING:
        return bool(value == entry.default_factory())
    return value is entry.default or bool(value == entry.default)


def changed(asked: Any, *but: str) -> list[str]:
    """The fields of a record that have another value than they have where nothing is said."""
    fields = options_of(asked).items()
    return [n for n, (e, _) in fields if n not in but and not is_default(getattr(asked, n), e)]


ELSEWHERE = "open the catalog itself with deltadex.open, on the machine that has it"
"""The way to what a service does not do."""


def _plain(value: Any, name: str, field: str) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str | int | float):
        return value
    raise NotServed(f"{name}: a service takes a name or a number as {field}; {ELSEWHERE}")
