"""One probe over every model of a family."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import base_option, common
from .output import each, print_some
from .subject import Subject, family_subjects, find_subject, keep, recall

if TYPE_CHECKING:
    from ..study.profile import ProbedBase


@click.command()
@click.argument("models", nargs=-1, metavar="MODEL...")
@click.option("--family", help="Every indexed model of this base.")
@click.option("--again", is_flag=True, help="Also models that have their profile already.")
@click.option("--device", default="cpu", show_default=True, help="Where models run.")
@base_option
@common
def profile(
    db: Path,
    as_json: bool,
    quiet: bool,
    models: tuple[str, ...],
    family: str | None,
    again: bool,
    device: str,
    base: str | None,
) -> None:
    """One probe over each MODEL: its inside, and its activation shifts as fingerprints.

    The shifts are recipes of the catalog: `deltadex eval --recipe activation-shift`.

    \b
    Example:
      deltadex profile --family bert-base-uncased
    """
    from ..study.profile import probe_base, profile_model, profile_settings
    from ..terminal import show_profiles

    if not models and family is None:
        raise click.UsageError("give one MODEL or more, or --family BASE")
    subjects = [find_subject(db, model, base) for model in models]
    if family is not None:
        subjects += family_subjects(db, family)
    probed: dict[str, ProbedBase] = {}

    def one(subject: Subject) -> dict[str, Any]:
        settings = profile_settings()
        known = None if again else recall(db, subject, "profile", settings)
        if known is not None:
            return dict(known) | {"known": True}
        where = subject.require_base()
        if where not in probed:
            probed[where] = probe_base(subject.load_base(device))
        start = time.perf_counter()
        network = subject.load(device)
        made = profile_model(network, probed[where], loading_s=time.perf_counter() - start)
        keep(db, subject, "profile", settings, made.document, made.fingerprints)
        return made.document

    documents, failed = each(subjects, one, quiet=quiet)
    print_some({"profiles": documents, "failed": failed}, show_profiles, as_json)
