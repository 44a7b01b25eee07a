"""Models that are not in the catalog: their fingerprints, and the family they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import NOWHERE, BaseError, ModelError, RequestError, UnknownModel
from ..records import Indexed, Outcome, Recipe
from ..store import Catalog
from .base import Base, BaseWeights
from .family import Member, Wanted, find_member, refuse_strangers
from .fingerprint import Layout
from .index import resolve_base, stored_layout, wanted_base
from .job import Job, base_parts
from .model import fingerprint_member
from .parallel import choose_device, cpu_count, single_torch_thread


def fingerprint_query(
    catalog: Catalog, model: str, base_name: str, recipe: Recipe, layout: Layout | None = None
) -> Indexed:
    """The fingerprint of a model that is not in the catalog; nothing is stored.

    Args:
        layout: Of the family, for recipes that depend on it; the catalog's where it is None.

    Raises:
        UnknownModel: there is none.
        RequestError: it cannot be fingerprinted; the message has the reason code.
    """
    base = resolve_base(catalog, base_name)
    job = Job(
        base=base,
        wanted=wanted_base(base),
        recipes=[recipe],
        layout=stored_layout(catalog, base) if layout is None else layout,
        threads=cpu_count(),
        device=choose_device("auto"),
        parts=base_parts(base, [recipe]),
    )
    outcome = _fingerprint(find_member(model, base.name), job)
    if isinstance(outcome, Indexed):
        return outcome
    raise _unanswered(model, ModelError(outcome.code, outcome.reason))


class ClosedBase(Base):
    """A base whose files are never opened."""

    def weights(self) -> BaseWeights:
        raise BaseError(
            "this adapter needs the base's weights, which this service does not open; "
            "index it on the server"
        )

    def opened(self) -> None:
        return None


def fingerprint_sent_adapter(
    folder: Path, *, base: str, recipe: Recipe, layout: Layout, may_open_base: bool
) -> Indexed:
    """An uploaded adapter's fingerprint as a member of the family; only its own files are opened.

    Args:
        base: The family's name in the catalog.
        layout: Of the family, for recipes that depend on it.
        may_open_base: Methods whose update is a function of W may read the base.

    Raises:
        ModelError: it cannot be fingerprinted.
    """
    path = Path(base)
    kind = Base if may_open_base else ClosedBase
    opened = kind(name=base, folder=path if may_open_base and path.is_absolute() else None)
    job = Job(
        base=opened,
        wanted=Wanted(names=(base,)),
        recipes=[recipe],
        layout=layout,
        parts=base_parts(opened, [recipe]),
    )
    outcome = _fingerprint(find_member(str(folder), base), job)
    if isinstance(outcome, Indexed):
        return outcome
    if outcome.code == "internal":
        raise ModelError("internal", "the adapter's files cannot be read")
    raise ModelError(outcome.code, outcome.reason)


def _fingerprint(member: Member, job: Job) -> Outcome:
    with single_torch_thread():
        return fingerprint_member(refuse_strangers(member, job.wanted), job)


def guess_base(catalog: Catalog, model: str, others: Sequence[str] = ()) -> str:
    """The family that a model without a row most likely belongs to.

    Args:
        others: Bases beside the catalog's.

    Raises:
        UnknownModel: there is none.
        RequestError: there are several families and its files name none of them, or many.
    """
    bases = [*catalog.bases(), *others]
    if len(bases) > 1:
        member = find_member(model, "")
        if member.refusal is not None and not member.claims:
            raise _unanswered(model, member.refusal)
        if member.folder is not None and not member.record.bytes_total:
            raise RequestError(f"{model}: {ModelError('no-weights', 'no model in this folder')}")
        claims = member.claims
        bases = [b for b in bases if Wanted(names=(b,)).named_in(claims)] or bases
    if len(bases) == 1:
        return bases[0]
    raise RequestError(
        f"{model}: which family? Add --base, one of: {', '.join(bases) or 'none yet'}"
    )


def _unanswered(model: str, refusal: ModelError) -> RequestError:
    """Why a model cannot be a query."""
    kind = UnknownModel if refusal.code in NOWHERE else RequestError
    return kind(f"{model}: {refusal}")


def claimed_base(model: str) -> str | None:
    """The base that a model's own files name first."""
    claims = find_member(model, "").claims
    return claims[0] if claims else None
