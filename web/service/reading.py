"""An uploaded adapter to its fingerprint, without a base unless the operator allows one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...errors import BaseError, ModelError
from ...indexer.base import Base, BaseWeights
from ...indexer.base_parts import BaseParts
from ...indexer.family import Wanted, one_member, refuse_strangers
from ...indexer.job import Job
from ...indexer.model import fingerprint_member
from ...indexer.parallel import one_torch_thread
from ...records import Indexed
from .uploads import Asked


class ClosedBase(Base):
    """A base of which there is the name alone."""

    def weights(self) -> BaseWeights:
        raise BaseError(
            "this adapter needs the base's weights, which this service does not open; "
            "index it on the server"
        )

    def opened(self) -> None:
        return None


def read_adapter(folder: Path, asked: Asked) -> Indexed:
    """The adapter in the folder as a member of the family; only its own files are opened.

    Raises:
        ModelError: it cannot be fingerprinted.
    """
    base = _base(asked)
    wanted = Wanted(names=(asked.base,))
    member = refuse_strangers(one_member(str(folder), asked.base), wanted)
    job = Job(base=base, wanted=wanted, recipes=[asked.recipe], layout=asked.layout)
    if asked.recipe.share != 1.0:
        base.few_bytes = True
        job = replace(job, parts=BaseParts(base, asked.recipe.share))
    with one_torch_thread():
        outcome = fingerprint_member(member, job)
    if isinstance(outcome, Indexed):
        return outcome
    if outcome.code == "internal":
        raise ModelError("internal", "the adapter's files cannot be read")
    raise ModelError(outcome.code, outcome.reason)


def _base(asked: Asked) -> Base:
    if not asked.may_open_base:
        return ClosedBase(name=asked.base)
    folder = Path(asked.base)
    return Base(name=asked.base, folder=folder if folder.is_absolute() else None)
