"""What the calls of all studies share: texts, how a model is run, what is stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ...errors import ModelError, RequestError, StoreError, StudyError
from ...study.study import Subject
from ..opened import Opened, Thing

if TYPE_CHECKING:
    from ...records import Fingerprint
    from ...study.network import Network, TokenStates
    from ...study.texts import Texts

log = logging.getLogger(__name__)

MAX_BROKEN_ROWS = 5
"""Rows of a file of texts that are named in the log; the document has all."""


class Running(TypedDict, total=False):
    """How a network is run over texts.

    Keys:
        batch_size: Texts at once; 16 by default.
        max_tokens: Tokens that a text is cut to; 128 by default.
        device: As torch names it; `cpu` by default.
    """

    batch_size: int
    max_tokens: int
    device: str


RUNNING: Running = {"batch_size": 16, "max_tokens": 128, "device": "cpu"}


def running_settings(running: Running) -> Running:
    """The settings with the defaults of those that are missing, on a device that is here.

    Raises:
        RequestError: no such device.
    """
    run = RUNNING | running
    run["device"] = usable_device(run["device"])
    return run


def usable_device(name: str, *, float64: bool = False) -> str:
    """The device, if it is here; torch is not imported for `cpu`.

    Args:
        float64: It has to compute in float64.

    Raises:
        RequestError: no such device.
    """
    if name == "cpu":
        return name
    from ...indexer.parallel import choose_device

    return choose_device(name, float64=float64)


class StudyCalls(Opened):
    """What every kind of study uses of an open catalog."""

    def _each(
        self, subjects: Sequence[Subject], study: Callable[[Subject], Thing]
    ) -> tuple[list[Thing], list[dict[str, str]]]:
        """A study of each model; those that cannot be studied are listed, and stop no other.

        Raises:
            StudyError: none could be.
        """
        reports, failed = [], []
        for subject in self._track(subjects, "models", total=len(subjects)):
            try:
                reports.append(study(subject))
            except (StudyError, RequestError, ModelError) as err:
                failed.append({"model": subject.name, "reason": str(err)})
        if not reports:
            raise StudyError(f"no model could be studied; {failed[0]['reason']}")
        return reports, failed

    def _load(self, subject: Subject, study: str, settings: Mapping[str, Any]) -> Any:
        """The stored result of a study with these settings; None for a model not indexed."""
        if subject.key is None:
            return None
        return self._catalog.studies(subject.key).load(study, settings)

    def _save(
        self,
        subject: Subject,
        study: str,
        settings: Mapping[str, Any],
        document: Mapping[str, Any],
        fingerprints: tuple[Fingerprint, ...] = (),
    ) -> None:
        """Store a result beside the model's fingerprint; a catalog that refuses it is no error."""
        if subject.key is None:
            return
        try:
            key = subject.key
            if fingerprints:
                key = self._catalog.add_fingerprints(key, fingerprints)
            # last: a study that is known is not made again, nor are its fingerprints
            self._catalog.studies(key).save(study, settings, document)
        except StoreError as err:
            log.warning("%s: the %s study is not stored: %s", subject.name, study, err)

    def _states(self, network: Network, texts: Texts, run: Running) -> Iterator[TokenStates]:
        """The network's hidden states."""
        from ...study.network import token_states

        states = token_states(
            network, texts.entries, batch_size=run["batch_size"], max_tokens=run["max_tokens"]
        )
        return self._batches(states, texts, run)

    def _text_notes(self, network: Network, run: Running, *sets: Texts) -> dict[str, Any]:
        """What a document says of its texts: broken rows, cut texts, the model's window.

        The user is told of cut texts before the study is made.
        """
        from ...study.network import text_window

        entries = [text for texts in sets for text in texts.entries]
        window = text_window(network, entries, run["max_tokens"])
        chosen = run["max_tokens"] != RUNNING["max_tokens"]
        for note in window.notes(chosen=chosen):
            log.warning("%s", note)
        return {
            "broken_rows": [line for texts in sets for line in texts.broken],
            "text_notes": [note for texts in sets for note in texts.notes],
            **window.to_json(),
        }

    def _batches(self, batches: Iterable[Thing], texts: Texts, run: Running) -> Iterator[Thing]:
        """The same batches of these texts, tracked."""
        n_batches = -(-len(texts.entries) // run["batch_size"])
        return self._track(batches, "batches", total=n_batches)


def load_texts(path: Path) -> Texts:
    """The texts of a file or folder; the log has what is odd, and the first broken rows."""
    from ...study.texts import read_texts

    texts = read_texts(path)
    for note in texts.notes:
        log.warning("%s", note)
    for line in texts.broken[:MAX_BROKEN_ROWS]:
        log.warning("%s", line)
    if len(texts.broken) > MAX_BROKEN_ROWS:
        log.warning("%d more rows could not be used", len(texts.broken) - MAX_BROKEN_ROWS)
    return texts


def tokenize_with(network: Network) -> Callable[[str], list[int]] | None:
    if network.tokenizer is None:
        return None
    return lambda text: list(network.tokenizer(text, add_special_tokens=False).input_ids)
