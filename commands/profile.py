"""`deltadex profile`: one probe over every model of a family."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import Common, argument, base_option, option, takes
from .output import print_studies
from .studies import load_study, save_study, study_each
from .subject import Subject, family_subjects, find_subject

if TYPE_CHECKING:
    from ..study.profile import ProbedBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """Which models are probed."""

    models: tuple[str, ...] = argument(nargs=-1, metavar="MODEL...")
    family: str | None = option("--family", help="Every indexed model of this base.")
    again: bool = option("--again", is_flag=True, help="Recompute stored profiles.")
    device: str = option("--device", default="cpu", show_default=True, help="Where models run.")
    base: str | None = base_option()


@click.command()
@takes(Profiling)
def profile(common: Common, profiling: Profiling) -> None:
    """One probe over each MODEL: its inside, and its activation shifts as fingerprints.

    The shifts are recipes of the catalog: `deltadex eval --recipe activation-shift`.

    \b
    Example:
      deltadex profile --family bert-base-uncased
    """
    from ..terminal import show_profiles

    if not profiling.models and profiling.family is None:
        raise click.UsageError("give one MODEL or more, or --family BASE")
    subjects = [find_subject(common.db, model, profiling.base) for model in profiling.models]
    if profiling.family is not None:
        subjects += family_subjects(common.db, profiling.family)
    probe = _Probe(common, profiling)
    documents, failed = study_each(subjects, probe.study, quiet=common.quiet)
    print_studies({"profiles": documents, "failed": failed}, show_profiles, common)


class _Probe:
    """Profiles models; each base runs once."""

    def __init__(self, common: Common, profiling: Profiling) -> None:
        self._db, self._again, self._device = common.db, profiling.again, profiling.device
        self._bases: dict[str, ProbedBase] = {}

    def study(self, subject: Subject) -> dict[str, Any]:
        """The stored profile of a model, or a new one."""
        from ..study.profile import profile_settings

        settings = profile_settings()
        stored = None if self._again else load_study(self._db, subject, "profile", settings)
        if stored is not None:
            return dict(stored) | {"known": True}
        from ..study.profile import profile_model

        base = self._base(subject)
        start = time.perf_counter()
        network = subject.load(self._device)
        made = profile_model(network, base, loading_s=time.perf_counter() - start)
        save_study(self._db, subject, "profile", settings, made.document, made.fingerprints)
        return made.document

    def _base(self, subject: Subject) -> ProbedBase:
        from ..study.profile import probe_base

        name = subject.require_base()
        if name not in self._bases:
            self._bases[name] = probe_base(subject.load_base(self._device))
        return self._bases[name]
