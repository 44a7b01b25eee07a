"""Profiles of models."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import KW_ONLY
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...options import argument, option, record
from ...results import Row, Section, share
from ..study import (
    MAX_TOKENS,
    BasedStudy,
    OpenCatalog,
    StudyTable,
    Subject,
    family_subjects,
    find_subject,
    log,
    study_of_several,
)

if TYPE_CHECKING:
    from ..texts import Texts
    from . import ProbedBase

VERSION = 2
"""Raised whenever the numbers would change."""
SAMPLED_TOKENS = 300
"""Tokens for the classifier of layers."""

PROMPTS = tuple(
    f"{opening}\n\n### Instruction:\nPlease provide a response. Input:Input.\n\n### Response:"
    for opening in (
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.",
        "The task described below requires a response that completes the request accurately.",
        "Below is a description of a task. Provide a response that aligns with the requirements.",
        "The following instruction outlines a task. Generate a response that meets the specified "
        "request.",
        "You are given an instruction and input. Write a response that completes the task as "
        "requested.",
    )
)
"""The five generic prompts of Delta Activations (Xu et al. 2025, arXiv 2509.04442)."""


@cache
def probe_texts() -> Texts:
    """64 short parallel texts in eight languages, by language and script."""
    from ..texts import Text, Texts

    text = files(__package__).joinpath("probe.json").read_text("utf-8")
    return Texts(
        tuple(
            Text(sentence, group, str(number))
            for group, sentences in json.loads(text).items()
            for number, sentence in enumerate(sentences, start=1)
        )
    )


@cache
def prompt_texts() -> Texts:
    from ..texts import Text, Texts

    return Texts(tuple(Text(prompt, "", str(n)) for n, prompt in enumerate(PROMPTS, start=1)))


def profile_settings() -> dict[str, Any]:
    """Everything but the models that changes a profile's numbers."""
    return {
        "version": VERSION,
        "probe": probe_texts().digest,
        "prompts": prompt_texts().digest,
        "special_tokens": False,
        "first_positions": False,
        "sampled_tokens": SAMPLED_TOKENS,
    }


@record
class Profile(BasedStudy):
    """Run one probe over each MODEL, and store its activation shifts as fingerprints.

    The shifts are recipes of the catalog: `deltadex eval --recipe activation-shift`.

    Raises:
        RequestError: no model is named.
        StudyError: no model could be probed; models need a tokenizer.

    >>> db.studies.profile("imdb-0")
    Traceback (most recent call last):
    deltadex.errors.StudyError: no model could be studied; ...tokenizer...
    """

    name = "profile"
    examples = ("profile --family bert-base-uncased",)
    has_picture = False

    models: tuple[str, ...] = argument(
        default=(), several=True, metavar="MODEL...", help="Ids, folders or Hub ids."
    )
    _: KW_ONLY
    family: str | None = option(default=None, help="Probe every indexed model of this base.")
    again: bool = option(default=False, help="Recompute stored profiles.")

    def answer(self, db: OpenCatalog) -> ProfileTable:
        if not self.models and self.family is None:
            raise RequestError("give one MODEL or more, or --family BASE")
        device = self.usable_device()
        subjects = [find_subject(db.catalog, model, self.base) for model in self.models]
        if self.family is not None:
            subjects += family_subjects(db.catalog, self.family)
        bases: dict[str, ProbedBase] = {}
        documents, failed = db.each(
            subjects, lambda subject: self._profile(db, subject, bases, device)
        )
        notes = [subject.note for subject in subjects if subject.note]
        return ProfileTable({"profiles": documents, "failed": failed, "base_notes": notes})

    def _profile(
        self, db: OpenCatalog, subject: Subject, bases: dict[str, ProbedBase], device: str
    ) -> Row:
        from ..components import most_edited
        from . import probe_base, profile_model

        settings = profile_settings()
        stored = None if self.again else db.load(subject, self.name, settings)
        if stored is not None:
            for stack in stored["components"]["stacks"].values():
                stack["most_edited"] = most_edited(stack)
            return dict(stored) | {"known": True}
        base = subject.require_base()
        from ..network import text_window

        if base not in bases:
            bases[base] = probe_base(subject.load_base(device))
        start = time.perf_counter()
        network = subject.load(device)
        subject.require_descent(network, bases[base].network)
        made = profile_model(network, bases[base], loading_s=time.perf_counter() - start)
        window = text_window(network, probe_texts().entries, MAX_TOKENS)
        for note in window.notes(fixed=True):
            log.warning("%s: %s", subject.name, note)
        document = made.document | window.to_json()
        db.save(subject, self.name, settings, document, made.fingerprints)
        return document


class ProfileTable(StudyTable):
    """Profiles of models, a row for each; `failed` lists models that have none."""

    columns = ("model", "base", "known")
    _key = "profiles"

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        rows = []
        for profile in self:
            stack = list(profile["components"]["stacks"].values())[-1]
            edited = stack["most_edited"]
            row = (
                profile["model"],
                f"{edited['term']} {edited['layer']}" if edited else "nothing",
                share(stack["total_shift"][-1]),
                share(profile["layers"]["accuracy"]),
                "known" if profile.get("known") else f"{sum(profile['seconds'].values()):.1f}",
            )
            rows.append(row)
        columns = ("model", "edited most", "moved", "layers told apart", "seconds")
        yield Section(columns=columns, rows=rows)


profile = study_of_several(Profile)
