"""Records whose JSON document is their fields by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from itertools import repeat
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

Record = TypeVar("Record", bound="JsonRecord")


class JsonRecord:
    """Base of the frozen records that reports are made of.

    A field with `repr=False` is too large for the document and is left out; `metadata` may give
    another `key` than its name. A record that says more than its fields overrides `to_json`.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The fields by name in JSON's types, all the way down; None for NaN."""
        return {key: _plain(getattr(self, name)) for name, key in _keys(self)}

    @classmethod
    def from_json(cls: type[Record], document: Mapping[str, Any]) -> Record:
        """The record of a document; keys that are no field are ignored, large fields and those
        that an earlier version did not write have their defaults."""
        kinds = get_type_hints(cls)
        given = [(name, document[key]) for name, key in _keys(cls) if key in document]
        return cls(**{name: _restored(value, kinds[name]) for name, value in given})


def _keys(record: JsonRecord | type[JsonRecord]) -> list[tuple[str, str]]:
    """(name, key) of the fields that a document has."""
    known: Any = record
    return [(f.name, f.metadata.get("key", f.name)) for f in fields(known) if f.repr]


def _plain(value: Any) -> Any:
    if isinstance(value, JsonRecord):
        return value.to_json()
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _restored(value: Any, kind: Any) -> Any:
    """A JSON value as the type of its field: a record, a number, or a collection of them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin is UnionType:  # of a type and None
        return _restored(value, arguments[0])
    if origin is tuple:
        kinds = repeat(arguments[0]) if arguments[-1] is Ellipsis else arguments
        return tuple(map(_restored, value, kinds))
    if origin is Mapping:
        return {key: _restored(entry, arguments[1]) for key, entry in value.items()}
    if isinstance(kind, type) and issubclass(kind, JsonRecord):
        return kind.from_json(value)
    return kind(value) if kind in (int, float) else value
