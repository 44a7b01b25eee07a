"""A base that the catalog has under another of its names on the Hub."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ModelError
from ..store import Catalog
from .base import Base
from .family import base_key
from .hub import describe, is_repo_id


def find_renamed(catalog: Catalog, base: Base) -> Base:
    """The base under the name of the family that the catalog has, where the Hub renamed it.

    Costs a request for the base and for each family of the catalog, and none where the catalog
    has the base by its name, or is empty.
    """
    families = catalog.bases()
    if base.folder is not None or base.name in families or not is_repo_id(base.name):
        return base
    names = [name for name in families if is_repo_id(name)]
    current = _current(base, base.name) if names else base.name
    for family in names:
        if base_key(family) == base_key(current) or _current(base, family) == current:
            return replace(base, name=family, aliases=(*base.aliases, base.name))
    return base


def _current(base: Base, name: str) -> str:
    """The id that a name leads to; the name where that cannot be told."""
    try:
        return describe(name, session=base.session).id
    except ModelError:
        return name
