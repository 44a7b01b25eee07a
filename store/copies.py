"""What is known of a byte-identical copy before anything of it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..records import Fingerprint, Indexed, ModelRecord
from .catalog import Catalog


def copy_outcome(
    catalog: Catalog, base: str, twin: str, model: ModelRecord, recipes: Sequence[str]
) -> Indexed:
    """What indexing a byte-identical copy of `twin` would have given, under these recipe ids."""
    row = catalog.model(twin, base)
    by_id = catalog.recipes()
    sketched = next((id for id in recipes if by_id[id].name == "sketch"), None)
    fingerprints = []
    for id in recipes:
        vector, norm = catalog.family_vectors(base, by_id[id]).with_norm(row.key)
        fingerprints.append(Fingerprint(recipe=by_id[id], vector=vector, norm=norm))
    return Indexed(
        model=replace(model, method=row.record.method, bytes_total=row.record.bytes_total),
        fingerprints=tuple(fingerprints),
        slots=tuple(catalog.slots(base, twin, sketched)),
        bytes_read=0,
        seconds=0.0,
    )
