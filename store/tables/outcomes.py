"""A model's outcome, written to all tables. Every function is a part of one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ...records import Fingerprint, Indexed, ModelRecord, Outcome, Recipe
from ..session import Session
from .linear_sketches import carry_over_linear, insert_linear_sketches, select_linear_sketch
from .models import insert_models, keep_labels, new_keys, require_model
from .recipes import tables
from .slots import carry_over_slots, insert_slots, select_slots
from .vectors import (
    carry_over,
    delete_vector,
    delete_vectors,
    fetch_norm,
    fetch_vectors_of,
    insert_vectors,
)

BESIDE = ("slots", "linear_sketches", "studies")
"""Tables of what belongs to a model, beside those of vectors."""


def write_outcome(session: Session, outcome: Outcome, at: str | None = None) -> None:
    """Replace whatever is known of the model by its outcome.

    Vectors under other recipes stay if the model's files are the same as they were.

    Args:
        at: When it was read, UTC, ISO 8601; None for now.
    """
    model = outcome.model
    known = session.execute(
        "SELECT key, signature, status FROM models WHERE base = ? AND id = ?",
        [model.base, model.id],
    )
    old = known[0] if known else None
    if old is not None:
        outcome = replace(outcome, model=keep_labels(session, int(old[0]), model))
    (key,) = new_keys(session, 1)
    insert_models(session, [(key, outcome)], at)
    same_files = old is not None and model.signature != "" and old[1] == model.signature
    if isinstance(outcome, Indexed):
        insert_vectors(session, [(key, f) for f in outcome.fingerprints])
        if same_files and old is not None and old[2] == "indexed":
            written = {f.recipe.id for f in outcome.fingerprints}
            carry_over(session, int(old[0]), key, written)
            session.execute("UPDATE studies SET model = ? WHERE model = ?", [key, old[0]])
        if not (same_files and old and carry_over_slots(session, int(old[0]), key, outcome)):
            insert_slots(session, [(key, outcome)])
        linear = outcome.linear
        if same_files and old is not None:
            carry_over_linear(session, int(old[0]), key, linear.recipe if linear else None)
        if linear is not None:
            insert_linear_sketches(session, [(key, linear)])
    if old is not None:
        delete_model(session, int(old[0]))


def write_outcomes(session: Session, outcomes: Sequence[Outcome], at: str | None = None) -> None:
    """Write several models, each as `write_outcome` does; those that are new all at once."""
    known = set(
        session.execute(
            "SELECT base, id FROM models WHERE id IN (SELECT unnest(?::VARCHAR[]))",
            [[outcome.model.id for outcome in outcomes]],
        )
    )
    new: dict[tuple[str, str], Outcome] = {}
    again: list[Outcome] = []
    for outcome in outcomes:
        name = (outcome.model.base, outcome.model.id)
        if name in known or name in new:
            again.append(outcome)
        else:
            new[name] = outcome
    keyed = list(zip(new_keys(session, len(new)), new.values(), strict=True))
    indexed = [(key, outcome) for key, outcome in keyed if isinstance(outcome, Indexed)]
    if keyed:
        insert_models(session, keyed, at)
    insert_vectors(session, [(key, f) for key, outcome in indexed for f in outcome.fingerprints])
    if indexed:
        insert_slots(session, indexed)
    linear = [(key, outcome.linear) for key, outcome in indexed if outcome.linear is not None]
    insert_linear_sketches(session, linear)
    for outcome in again:
        write_outcome(session, outcome, at)


def outcome_of_copy(
    session: Session, key: int, model: ModelRecord, recipes: Sequence[Recipe]
) -> Indexed:
    """What indexing a byte-identical copy of the model with this key would give."""
    sketched = next((recipe.id for recipe in recipes if recipe.name == "sketch"), None)
    fingerprints = []
    for recipe in recipes:
        _, vectors = fetch_vectors_of(session, recipe, np.array([key]))
        norm = fetch_norm(session, recipe, key)
        fingerprints.append(Fingerprint(recipe=recipe, vector=vectors[0], norm=norm))
    return Indexed(
        model=model,
        fingerprints=tuple(fingerprints),
        slots=tuple(select_slots(session, key, sketched)),
        bytes_read=0,
        seconds=0.0,
        linear=select_linear_sketch(session, key, sketched) if sketched else None,
    )


def add_vectors(session: Session, key: int, fingerprints: Sequence[Fingerprint]) -> int:
    """Give an indexed model more vectors, in place of those of the same recipes.

    Returns:
        The model's key from now on.

    Raises:
        StoreError: there is no such model any more.
    """
    require_model(session, key)
    (new,) = new_keys(session, 1)
    for fingerprint in fingerprints:
        delete_vector(session, key, fingerprint.recipe)
    move_models(session, {key: new})
    insert_vectors(session, [(new, fingerprint) for fingerprint in fingerprints])
    return new


def delete_model(session: Session, key: int) -> None:
    """Remove a model and all that belongs to it."""
    delete_vectors(session, key)
    for table in BESIDE:
        session.execute(f"DELETE FROM {table} WHERE model = ?", [key])
    session.execute("DELETE FROM models WHERE key = ?", [key])


def move_models(session: Session, keys: Mapping[int, int]) -> None:
    """Give models and all that belongs to them other keys: old → new."""
    if not keys:
        return
    with session.registered("moved_keys", key_pairs("old", "new", keys)):
        session.execute("UPDATE models SET key = k.new FROM moved_keys k WHERE key = k.old")
        for table in (*BESIDE, *(table for _, table in tables(session))):
            session.execute(
                f"UPDATE {table} SET model = k.new FROM moved_keys k WHERE model = k.old"
            )


def key_pairs(first: str, second: str, keys: Mapping[int, int]) -> pa.Table:
    """Keys and what they stand for, as a table of two columns of these names."""
    return pa.table(
        {first: pa.array(list(keys), pa.int64()), second: pa.array(list(keys.values()), pa.int64())}
    )
