"""Models that are not in the catalog: their fingerprints, and the family they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import NOWHERE, BaseError, ModelError, RequestError, UnknownModel
from ..records import Indexed, Outcome, Recipe
from ..store import Catalog
from .base import Base, BaseWeights, resolve_base, wanted_base
from .family import Member, Wanted, base_key, find_member, refuse_strangers
from .fingerprint import Layout
from .job import Job, base_parts, choose_device, cpu_count, single_torch_thread
from .known_family import known_shapes
from .run import NO_MEMORY, fingerprint_member


def fingerprint_query(
    catalog: Catalog,
    model: str,
    base_name: str,
    recipe: Recipe,
    layout: Layout | None = None,
    shapes: Mapping[str, tuple[int, int]] | None = None,
) -> Indexed:
    """The fingerprint of a model that is not in the catalog; nothing is stored.

    Args:
        layout, shapes: The family's, as of `Job`; the catalog's where they are None.

    Raises:
        UnknownModel: there is none.
        RequestError: it cannot be fingerprinted; the message has the reason code.
    """
    base = resolve_base(catalog, base_name)
    job = Job(
        base=base,
        wanted=wanted_base(base),
        recipes=[recipe],
        layout=catalog.base(base.name).layout if layout is None else layout,
        shapes=known_shapes(catalog, base.name) if shapes is None else shapes,
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
    folder: Path,
    *,
    base: str,
    recipe: Recipe,
    layout: Layout,
    shapes: Mapping[str, tuple[int, int]],
    may_open_base: bool,
) -> Indexed:
    """An uploaded adapter's fingerprint as a member of the family; only its own files are opened.

    Args:
        may_open_base: Methods whose update is a function of W may read the base.

    Raises:
        ModelError: it cannot be fingerprinted.
        MemoryError: it is too large for this process.
    """
    path = Path(base)
    kind = Base if may_open_base else ClosedBase
    opened = kind(name=base, folder=path if may_open_base and path.is_absolute() else None)
    job = Job(
        base=opened,
        wanted=Wanted(names=(base,)),
        recipes=[recipe],
        layout=layout,
        shapes=shapes,
        parts=base_parts(opened, [recipe]),
    )
    outcome = _fingerprint(find_member(str(folder), base), job)
    if isinstance(outcome, Indexed):
        return outcome
    if outcome.reason == NO_MEMORY:
        raise MemoryError(NO_MEMORY)
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
        RequestError: an adapter names another base; or there are several families and its files
            name none of them, or many.
    """
    bases = [*catalog.bases(), *others]
    if len(bases) == 1:
        return bases[0]
    return _guess(catalog, _find(model), model, bases)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBase:
    """What a model without a row is studied on.

    Attributes:
        base: As it was spelled; None where nothing names one.
        note: What the files of an adapter say against it; "" where they do not.
        is_adapter: Whether the model has no weights of its own.
    """

    base: str | None
    note: str = ""
    is_adapter: bool


def choose_base(
    catalog: Catalog, model: str, given: str | None = None, hint: str | None = None
) -> ChosenBase:
    """The base of a model without a row: as it is `given`, else as its files name it.

    Args:
        hint: What may be its base, beside the catalog's.

    Raises:
        RequestError: as of `guess_base`.
    """
    member = _find(model)
    chosen = partial(ChosenBase, is_adapter=member.is_adapter)
    if given is not None:
        stranger = refuse_strangers(member, _wanted(catalog, given)).refusal
        if not member.is_adapter or stranger is None or stranger.code != "other-base":
            return chosen(base=given)
        note = f"{model} {stranger.reason}; it is studied on {given}, as --base says"
        return chosen(base=given, note=note)
    bases = catalog.bases()
    places = [*([] if hint is None else [hint]), *bases]
    if member.is_adapter and member.claims:
        if hint is not None and _named(catalog, member, [hint]):
            return chosen(base=hint)
        if not bases:
            return chosen(base=member.claims[0])
        try:
            return chosen(base=_guess(catalog, member, model, bases))
        except RequestError as err:
            raise RequestError(f"{err}; --base BASE says on which it is studied") from None
    if hint is not None or not bases:
        return chosen(base=next(iter((*places, *member.claims)), None))
    base = _guess(catalog, member, model, bases)
    fits = refuse_strangers(member, _wanted(catalog, base)).refusal is None
    return chosen(base=base if fits else None)


def _find(model: str) -> Member:
    member = find_member(model, "")
    if member.is_adapter and member.refusal is None:
        try:
            member = member.with_config()
        except ModelError as err:
            raise _unanswered(model, err) from err
    if member.refusal is not None and not member.claims:
        raise _unanswered(model, member.refusal)
    if member.folder is not None and not member.record.bytes_total:
        raise RequestError(f"{model}: {ModelError('no-weights', 'no model in this folder')}")
    return member


def _guess(catalog: Catalog, member: Member, model: str, bases: Sequence[str]) -> str:
    named = _named(catalog, member, bases)
    if member.is_adapter and member.claims and not named:
        stranger = refuse_strangers(member, Wanted(names=())).refusal
        raise RequestError(f"{model}: {stranger}; the catalog has: {', '.join(bases)}")
    candidates = named or bases
    if len(candidates) == 1:
        return candidates[0]
    raise RequestError(
        f"{model}: which family? Add --base, one of: {', '.join(candidates) or 'none yet'}"
    )


def _named(catalog: Catalog, member: Member, bases: Sequence[str]) -> list[str]:
    """Those of the bases that the model names; by their very names, if any are."""
    named = [base for base in bases if _wanted(catalog, base).named_in(member.claims)]
    keys = set(map(base_key, member.claims))
    return [base for base in named if base_key(base) in keys] or named


def _wanted(catalog: Catalog, base: str) -> Wanted:
    """The base as its members may name it; by its name alone, where its folder is no base."""
    try:
        return wanted_base(resolve_base(catalog, base))
    except BaseError:
        return Wanted(names=(base,))


def _unanswered(model: str, refusal: ModelError) -> RequestError:
    kind = UnknownModel if refusal.code in NOWHERE else RequestError
    return kind(f"{model}: {refusal}")
