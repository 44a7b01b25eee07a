"""What study commands share: stored results, several models, texts, hidden states."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ModelError, RequestError, StoreError, StudyError
from ..terminal.options import Running
from .subject import Subject, reading

if TYPE_CHECKING:
    from ..records import Fingerprint
    from ..study.network import Network, TokenStates
    from ..study.texts import Texts

log = logging.getLogger(__name__)

Batch = TypeVar("Batch")

BROKEN_ROWS_SHOWN = 5


def load_study(db: Path, subject: Subject, study: str, settings: Mapping[str, Any]) -> Any:
    """The stored result of a study with these settings; None for a model that is not indexed."""
    if subject.key is None:
        return None
    with reading(db) as catalog:
        return catalog.studies(subject.key).load(study, settings)


def save_study(
    db: Path,
    subject: Subject,
    study: str,
    settings: Mapping[str, Any],
    document: Mapping[str, Any],
    fingerprints: tuple[Fingerprint, ...] = (),
) -> None:
    """Store a result beside the model's fingerprint; a catalog in use is not waited for."""
    from ..store import Catalog

    if subject.key is None:
        return
    try:
        with Catalog.open(db, create=False) as catalog:
            key = (
                catalog.add_fingerprints(subject.key, fingerprints) if fingerprints else subject.key
            )
            # last: a study that is known is not made again, nor are its fingerprints
            catalog.studies(key).save(study, settings, document)
    except StoreError as err:
        log.warning("%s: the %s study is not stored: %s", subject.name, study, err)


def study_each(
    subjects: Iterable[Subject], study: Callable[[Subject], Any], *, quiet: bool
) -> tuple[list[Any], list[dict[str, str]]]:
    """A study of each model; those that cannot be studied are listed, and stop no other.

    Raises:
        StudyError: none could be.
    """
    from ..terminal import tracked

    reports, failed = [], []
    for subject in tracked(list(subjects), "models", quiet=quiet):
        try:
            reports.append(study(subject))
        except (StudyError, RequestError, ModelError) as err:
            failed.append({"model": subject.name, "reason": str(err)})
    if not reports:
        raise StudyError(f"no model could be studied; {failed[0]['reason']}")
    return reports, failed


def load_texts(path: Path) -> Texts:
    """The texts of a file; its broken rows are named on stderr."""
    from ..study.texts import read_texts
    from ..terminal import note

    texts = read_texts(path)
    for line in texts.broken[:BROKEN_ROWS_SHOWN]:
        note(line)
    if len(texts.broken) > BROKEN_ROWS_SHOWN:
        note(f"{len(texts.broken) - BROKEN_ROWS_SHOWN} more rows could not be used")
    return texts


def hidden_states(
    network: Network, texts: Texts, running: Running, *, quiet: bool
) -> Iterator[TokenStates]:
    """The network's hidden states, with progress on stderr."""
    from ..study.network import token_states

    states = token_states(
        network, texts.entries, batch_size=running.batch_size, max_tokens=running.max_tokens
    )
    return tracked_batches(states, texts, running, quiet=quiet)


def tracked_batches(
    batches: Iterable[Batch], texts: Texts, running: Running, *, quiet: bool
) -> Iterator[Batch]:
    """The same batches of these texts, with progress on stderr."""
    from ..terminal import tracked

    n_batches = -(-len(texts.entries) // running.batch_size)
    return tracked(batches, "batches", total=n_batches, quiet=quiet)
