"""Which candidates belong to the family of a base."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import ModelError
from ..words import shown
from .base_name import same_base
from .member import Member
from .paths import resolved

CLAIMS_SHOWN = 8


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
    config: Mapping[str, Any] | None = None

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
    weights are asked too; an adapter's weights cannot tell, so its claim decides.
    """
    if member.refusal is not None and member.refusal.code != "quantized":
        return member
    if member.claims and not wanted.named_in(member.claims) and member.is_adapter:
        return replace(member, refusal=ModelError("other-base", _named(member.claims)))
    other = _other_architecture(member, wanted)
    if other:
        return replace(member, refusal=ModelError("other-base", other))
    return member


def _other_architecture(member: Member, wanted: Wanted) -> str | None:
    own, base = (_model_type(c) for c in (member.config, wanted.config))
    if member.is_adapter or own is None or base is None or own == base:
        return None
    return f"{_named(member.claims)}; its architecture is {shown(own)}, the base's is {shown(base)}"


def _named(claims: Sequence[str]) -> str:
    """What a model says of its base, every name of a merge's card."""
    if not claims:
        return "names no base"
    return f"names base {' and '.join(map(shown, claims[:CLAIMS_SHOWN]))}"


def _model_type(config: Mapping[str, Any] | None) -> str | None:
    value = (config or {}).get("model_type")
    return value if isinstance(value, str) else None
