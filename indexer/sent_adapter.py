"""An adapter that a stranger sent, to its fingerprint: nothing but its own files is opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import BaseError, ModelError
from ..records import Indexed, Recipe
from .base import Base, BaseWeights
from .budget import BaseParts
from .checkpoint import FEW_BYTES
from .family import Wanted, one_member, refuse_strangers
from .job import Job
from .model import fingerprint_member
from .parallel import one_torch_thread


class ClosedBase(Base):
    """A base of which there is the name alone."""

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
    layout: tuple[tuple[str, str, int], ...],
    may_open_base: bool,
) -> Indexed:
    """The adapter in the folder as a member of the family; only its own files are opened.

    Args:
        base: The family's name in the catalog.
        layout: Of the family, for recipes that depend on it.
        may_open_base: Methods whose update is a function of W may read the base.

    Raises:
        ModelError: it cannot be fingerprinted.
    """
    opened = _base(base) if may_open_base else ClosedBase(name=base)
    wanted = Wanted(names=(base,))
    member = refuse_strangers(one_member(str(folder), base), wanted)
    job = Job(base=opened, wanted=wanted, recipes=[recipe], layout=layout)
    if recipe.share != 1.0:
        opened.plan = FEW_BYTES
        job = replace(job, parts=BaseParts(opened, recipe.share))
    with one_torch_thread():
        outcome = fingerprint_member(member, job)
    if isinstance(outcome, Indexed):
        return outcome
    if outcome.code == "internal":
        raise ModelError("internal", "the adapter's files cannot be read")
    raise ModelError(outcome.code, outcome.reason)


def _base(name: str) -> Base:
    folder = Path(name)
    return Base(name=name, folder=folder if folder.is_absolute() else None)
