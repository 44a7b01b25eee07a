"""Records whose JSON document is their fields by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from deltadex.study.report_json import JsonRecord


@dataclass(frozen=True, slots=True)
class Leaf(JsonRecord):
    value: float
    name: str | None


@dataclass(frozen=True, slots=True)
class Tree(JsonRecord):
    shape: tuple[int, int]
    leaves: tuple[Leaf, ...]
    by_name: Mapping[str, Leaf]
    best: Leaf | None
    rows: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Measured(JsonRecord):
    values: object


def test_a_record_comes_back_from_its_document():
    tree = Tree((2, 3), (Leaf(1.0, "a"), Leaf(2.0, None)), {"b": Leaf(0.5, "b")}, None)

    document = json.loads(json.dumps(tree.to_json()))

    assert Tree.from_json(document | {"unknown": 1}) == tree


def test_numbers_come_back_as_the_type_of_their_field():
    leaf = Leaf.from_json({"value": 1, "name": None})

    assert isinstance(leaf.value, float)


def test_fields_without_repr_are_left_out():
    tree = Tree((1, 1), (), {}, Leaf(1.0, None), rows=(1.0, 2.0))

    assert "rows" not in tree.to_json()


def test_arrays_become_lists_and_nan_becomes_null():
    measured = Measured(np.array([[1.0, np.nan]]))

    assert measured.to_json() == {"values": [[1.0, None]]}
