"""Parts brought into the catalog: every outcome once, however often its part is committed."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace

from ...records import Indexed, Outcome
from ..catalog import Catalog
from ..tables.models import Known, may_record
from .part_rows import Part


def commit_part(
    catalog: Catalog, part: Part, known: MutableMapping[str, Known]
) -> Sequence[Outcome]:
    """Record what a part has that the catalog has not, in one transaction; returns that.

    An outcome is passed over if the catalog has it, or a later reading of the model, or a
    fingerprint that it would replace by a fault which may pass. After the last part, `save_family`
    adds the shapes that the family's models changed.

    Args:
        known: The family's models in the catalog; brought up to date.
    """
    news = [o for o in part.outcomes if _is_news(o, part, known.get(o.model.id))]
    if news:
        catalog.record_all(news, part.written_at)
    _save_base(catalog, part)
    for outcome in news:
        known[outcome.model.id] = _known(outcome, part, known.get(outcome.model.id))
    return news


def _save_base(catalog: Catalog, part: Part) -> None:
    """Store what a part says of its base, unless it is known; `save_family` adds the shapes."""
    before = catalog.base(part.base)
    after = replace(
        before,
        revision=part.revision or before.revision,
        architecture=part.architecture or before.architecture,
        layout=tuple(part.layout) or before.layout,
    )
    if after != before:
        catalog.save_base(after)


def save_family(
    catalog: Catalog,
    base: str,
    revision: str | None,
    architecture: str | None,
    layout: Sequence[tuple[str, str, int]],
) -> None:
    """Store what is known of a base: the shapes that its models changed, and the blocks of a recipe
    that depends on them; a None leaves the stored value."""
    before = catalog.base(base)
    changed = {str(slot): shape for slot, shape in catalog.shapes(base).items()}
    catalog.save_base(
        replace(
            before,
            revision=revision,
            architecture=architecture,
            shapes={**before.shapes, **changed},
            layout=tuple(layout) or before.layout,
        )
    )


def _is_news(outcome: Outcome, part: Part, known: Known | None) -> bool:
    if known is None:
        return may_record(outcome, None)
    is_older = bool(known.indexed_at) and part.written_at[:19] < known.indexed_at[:19]
    return not is_older and not known.has(outcome) and may_record(outcome, known)


def _known(outcome: Outcome, part: Part, before: Known | None) -> Known:
    after = Known.of_outcome(outcome, part.written_at)
    if before is None or before.signature != after.signature or not isinstance(outcome, Indexed):
        return after
    return replace(after, recipes=tuple(sorted({*before.recipes, *after.recipes})))
