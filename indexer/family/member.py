"""A candidate of a family before any weight is read, and whether it names the family's base."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import ModelError
from ...records import ModelRecord
from ..base_names import base_key
from ..checkpoint import Config, ModelFolder
from ..hub import HubModel
from ..untrusted_text import shown
from .paths import resolved

_TUNED_SUFFIX = re.compile(r"(it|instruct|chat)$")
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")

CLAIMS_SHOWN = 8


def same_base(claim: str, base: str) -> bool:
    """Whether a model that says `claim` belongs to the family of `base`.

    Besides equal names: the instruction-tuned release of a base is its descendant, so its
    adapters belong to the base's family; and a path on somebody's disk is a loose hint, so
    it may leave that suffix out. A Hub id without the suffix is another model.
    """
    claimed, wanted = base_key(claim), base_key(base)
    if not claimed or claimed == wanted:
        return claimed == wanted != ""
    if _TUNED_SUFFIX.sub("", claimed) == wanted:
        return True
    is_path = not _HUB_ID.match(claim) or claim.startswith((".", "/"))
    return is_path and claimed == _TUNED_SUFFIX.sub("", wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Where a model's files are, and what its small files say.

    Attributes:
        folder: The model's folder; None for the Hub.
        given: The folder that the user named, out of which no link leads; None for the model's own.
        hub: The Hub's description; None for a local model.
        config: `config.json`, of an adapter `adapter_config.json`, as far as it is known.
        claims: Every name under which the model's files mention a base, most trusted first.
        refusal: A reason that needs no weights to be known.
        is_merge: Whether it names several parents.
    """

    record: ModelRecord
    folder: Path | None = None
    given: Path | None = None
    hub: HubModel | None = None
    config: Config | None = field(default=None, compare=False)
    claims: tuple[str, ...] = ()
    refusal: ModelError | None = None
    is_merge: bool = False

    @property
    def is_adapter(self) -> bool:
        return self.record.kind == "adapter"

    @property
    def files(self) -> ModelFolder | None:
        """The model's files on disk; None for the Hub."""
        return None if self.folder is None else ModelFolder.at(self.folder, self.given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The base as members may refer to it.

    Attributes:
        names: Its name and every alias.
        folder: Its own folder, if it is local.
        config: Its `config.json`, if that is at hand.
    """

    names: tuple[str, ...]
    folder: Path | None = None
    config: Config | None = None

    def named_in(self, claims: Iterable[str]) -> bool:
        """Whether any of a model's claims means this base."""
        return any(self._means(claim) for claim in claims)

    def _means(self, claim: str) -> bool:
        if self.folder is not None and resolved(claim) == self.folder:
            return True
        return any(same_base(claim, name) for name in self.names)


def refuse_strangers(member: Member, wanted: Wanted) -> Member:
    """The member, refused if its small files alone show that it belongs elsewhere.

    A full checkpoint's claims are loose (it may name an intermediate fine-tune), so its
    weights decide; an adapter's weights cannot show its base, so its claim decides.
    """
    if member.refusal is not None and member.refusal.code != "quantized":
        return member
    if member.claims and not wanted.named_in(member.claims) and member.is_adapter:
        return replace(member, refusal=ModelError("other-base", _named(member.claims)))
    own, base = (_model_type(c) for c in (member.config, wanted.config))
    if member.is_adapter or own is None or base is None or own == base:
        return member
    types = f"its architecture is {shown(own)}, the base's is {shown(base)}"
    return replace(member, refusal=ModelError("other-base", f"{_named(member.claims)}; {types}"))


def _named(claims: Sequence[str]) -> str:
    """The bases that a model names, all those of a merge's card."""
    if not claims:
        return "names no base"
    return f"names base {' and '.join(map(shown, claims[:CLAIMS_SHOWN]))}"


def _model_type(config: Config | None) -> str | None:
    value = (config or {}).get("model_type")
    return value if isinstance(value, str) else None
