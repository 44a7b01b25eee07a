"""Profiles of models."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...errors import RequestError
from ...study.study import Subject, family_subjects, find_subject
from ..tables import Row
from .calls import RUNNING, StudyCalls, log, usable_device
from .tables import ProfileTable

if TYPE_CHECKING:
    from ...study.profile import ProbedBase


class ProfileCall(StudyCalls):
    """`profile`."""

    def profile(
        self,
        *models: str,
        family: str | None = None,
        again: bool = False,
        device: str = "cpu",
        base: str | None = None,
    ) -> ProfileTable:
        """One probe over each model: its inside, and activation shifts, stored as fingerprints.

        Args:
            family: A base, all of whose indexed models are probed.
            again: Whether stored profiles are computed again.

        Raises:
            RequestError: no model is named.
            StudyError: no model could be probed; models need a tokenizer.

        >>> db.profile("imdb-0")
        Traceback (most recent call last):
        deltadex.errors.StudyError: no model could be studied; ...tokenizer...
        """
        if not models and family is None:
            raise RequestError("give one MODEL or more, or --family BASE")
        device = usable_device(device)
        subjects = [find_subject(self._catalog, model, base) for model in models]
        if family is not None:
            subjects += family_subjects(self._catalog, family)
        bases: dict[str, ProbedBase] = {}
        documents, failed = self._each(
            subjects, lambda subject: self._profile(subject, bases, device, again=again)
        )
        notes = [subject.note for subject in subjects if subject.note]
        return ProfileTable({"profiles": documents, "failed": failed, "base_notes": notes})

    def _profile(
        self, subject: Subject, bases: dict[str, ProbedBase], device: str, *, again: bool
    ) -> Row:
        """The stored profile of a model, or a new one."""
        from ...study.components import most_edited
        from ...study.profile import probe_base, probe_texts, profile_model, profile_settings

        settings = profile_settings()
        stored = None if again else self._load(subject, "profile", settings)
        if stored is not None:
            for stack in stored["components"]["stacks"].values():
                stack["most_edited"] = most_edited(stack)
            return dict(stored) | {"known": True}
        name = subject.require_base()
        from ...study.network import text_window

        if name not in bases:
            bases[name] = probe_base(subject.load_base(device))
        start = time.perf_counter()
        network = subject.load(device)
        subject.require_descent(network, bases[name].network)
        made = profile_model(network, bases[name], loading_s=time.perf_counter() - start)
        window = text_window(network, probe_texts().entries, RUNNING["max_tokens"])
        for note in window.notes(fixed=True):
            log.warning("%s: %s", subject.name, note)
        document = made.document | window.to_json()
        self._save(subject, "profile", settings, document, made.fingerprints)
        return document
