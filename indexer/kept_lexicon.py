"""The lexicon of a base, kept beside the catalog; made where none is of the base's files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ..errors import StoreFull
from ..store import Catalog, tokenizer_hash
from ..store.files import lexicon_file, make_folder
from .base import Base
from .family import find_member
from .job import Cancelled, choose_device
from .lexicon import BaseLexicon

log = logging.getLogger(__name__)

GoOn = Callable[[], None]
"""Raises `Cancelled` where a run is being stopped."""

MakeLexicon = Callable[[str, bytes, str, GoOn], BaseLexicon | None]
"""From a base's folder, its tokenizer's JSON, and a device; None where it cannot be run."""


def make_lexicon(
    catalog: Catalog, base: Base, device: str, make: MakeLexicon
) -> BaseLexicon | None:
    """That of the base's folder; None where its words cannot be asked."""

    def go_on() -> None:
        if base.session.cancelled.is_set():
            raise Cancelled

    found, tokenizer = kept_lexicon(catalog, base), base.tokenizer()
    if found is None and tokenizer is not None and base.folder is not None:
        go_on()
        log.info("reading what %s answers to single words", base.name)
        found = make(str(base.folder), tokenizer, choose_device(device), go_on)
        go_on()
        if found is not None:
            path = lexicon_file(catalog.path, base.name)
            with suppress(StoreFull, OSError):
                make_folder(path.parent)
                found.save(path, _made_of(base))
    if found is None or not found.states:
        return None
    return replace(found, sha256=catalog.footprints.save_lexicon(found.kept.to_bytes()))


def may_answer(catalog: Catalog, base: Base) -> bool:
    """Whether a run would ask updates by words, as far as is known without running the base."""
    found = kept_lexicon(catalog, base)
    if found is not None:
        return bool(found.states)
    return base.folder is not None and base.tokenizer() is not None


def kept_lexicon(catalog: Catalog, base: Base) -> BaseLexicon | None:
    """That of these files of the base, where one was made; without states where its words have no
    meaning."""
    if base.folder is None:
        return None
    return BaseLexicon.load(lexicon_file(catalog.path, base.name), _made_of(base))


def known_lexicon(catalog: Catalog, base: Base) -> BaseLexicon | None:
    """The one that stored responses are of, where it is kept here."""
    found = kept_lexicon(catalog, base)
    return None if found is None else replace(found, sha256=tokenizer_hash(found.kept.to_bytes()))


def _made_of(base: Base) -> str:
    return find_member(str(base.folder), base.name).record.signature
