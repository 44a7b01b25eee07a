"""Models come into a catalog: `index`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OFFERED, REASONS, BaseError, RequestError, SourceError, StudyError
from ..indexer import FamilyOptions
from ..options import as_kind, option, record
from ..results import Document, Row, Section, Shown, Table, agree, count, size
from . import terminal
from .face.opened import Opened
from .terminal import command_line

if TYPE_CHECKING:
    from ..indexer import Progress
    from ..indexer.lexicon import BaseLexicon, GoOn


NOTES_SHOWN = 5


class IndexReport(Table):
    """What an indexing run did: counts in the document, a row for each model it refused."""

    columns = ("model", "code", "reason")

    def _rows(self) -> Sequence[Row]:
        return [*self._document["failed"], *self._document["skipped_models"]]

    @property
    def indexed(self) -> int:
        """Models that were fingerprinted in this run."""
        return int(self._document["indexed"])


@record
class Index(FamilyOptions):
    """Fingerprint the fine-tunes of a base, in a folder or on the Hub.

    BASE is a Hub id or a folder; where all members are adapters, any name. FOLDER holds models at
    any depth, or is a file with one id or path per line. A second run reads only what is new.
    FOLDER alone is indexed family by family, by the bases that its models name. In Python
    `progress` hears of every model.

    Returns:
        Counts, and a row for each model that was refused: `model`, `code`, `reason`.

    Raises:
        SourceError: the folder, list, labels or Hub listing cannot be read.
        BaseError: the base's weights cannot be read.

    >>> db.index("base", "models", labels="models/labels.csv").to_json()["unchanged"]
    4
    """

    _: KW_ONLY
    ray: str | None = option(
        default=None,
        metavar="ADDRESS|local",
        help="Read with the workers of a Ray cluster, --workers of them.",
    )
    progress: Progress | None = None

    def answer(self, db: Opened) -> IndexReport:
        several = each_family(self, lambda one: index_models(one, db).to_json(), db)
        if several is None:
            return index_models(self, db)
        reports, left_out = several
        sums = ("indexed", "unchanged", "failed", "skipped_models", "bytes_read", "seconds")
        total = {
            key: sum((r[key] for r in reports), type(reports[0][key])()) for key in sums if reports
        }
        empty = {"indexed": 0, "unchanged": 0, "failed": [], "skipped_models": []}
        return IndexReport({**empty, **total, "families": reports, "left_out": left_out})


def index_models(asked: Any, db: Opened) -> IndexReport:
    """The models of a family, or single ones, by a question that has those options."""
    from ..indexer import IndexOptions, index_family

    report = index_family(db._catalog, as_kind(IndexOptions, asked), asked.progress, _build_lexicon)
    return IndexReport(report.to_json())


def _build_lexicon(source: str, tokenizer: bytes, device: str, go_on: GoOn) -> BaseLexicon | None:
    """None where nothing that runs a model is installed."""
    from ..search.vocabulary import Vocabulary

    go_on()
    try:
        from ..data.lexicon import build_lexicon

        words = Vocabulary(tokenizer).frequent_words()
    except (StudyError, RequestError):
        return None
    return build_lexicon(source, words, device, go_on)


def each_family(
    asked: Any, ask: Callable[[Any], Document], db: Opened
) -> tuple[list[Document], list[Row]] | None:
    """What `ask` says of every family of a folder that is given in a base's place, one after the
    other, and the models left out; None where a base is given."""
    from ..indexer import families_below, is_several

    if asked.source is not None or asked.hub or not is_several(asked.base):
        return None
    folder = Path(asked.base)
    labels = Path(asked.labels) if asked.labels else None
    families, reasons = families_below(db._catalog, folder, labels)
    left_out: list[Row] = [
        {"model": id, "code": err.code, "reason": err.reason} for id, err in reasons.items()
    ]
    reports = []
    for base, ids in families.items():
        try:
            reports.append(ask(replace(asked, base=base, source=folder, only=ids)))
        except (BaseError, SourceError) as err:
            reason = f"base {base}: {err}"
            row = {"code": "needs-base", "reason": reason}
            left_out += [{"model": id} | row for id in sorted(ids)]
    if not reports and not left_out:
        raise SourceError(f"{folder}: no model in this folder")
    return reports, left_out


def show_families(document: Document, show: Callable[[Document], Shown]) -> Shown:
    for family in document["families"]:
        yield from show(family)
    reasons = Counter(row["reason"] for row in document["left_out"])
    for reason, n in reasons.most_common():
        models = [row["model"] for row in document["left_out"] if row["reason"] == reason]
        some = ", ".join(models[:OFFERED]) + ", …" * (n > OFFERED)
        yield f"{count(n, 'model')} left out ({some}): {reason}"


def show_report(document: Document) -> Shown:
    """What an indexing run did, and every model it refused; of several families one by one."""
    if "families" in document:
        yield from show_families(document, show_report)
        return
    n_partly = len(partly := document.get("partly_read", []))
    on_part = f" ({n_partly} on part of {agree(n_partly, 'its', 'their')} matrices)"
    indexed = f"{document['indexed']} indexed{on_part if n_partly else ''}"
    parts = [indexed, f"{document['unchanged']} unchanged"]
    refused = {"skipped": document["skipped_models"], "not indexed": document["failed"]}
    parts += [f"{len(models)} {how}" for how, models in refused.items() if models]
    base_read = document["base_bytes_read"]
    of_models, wanted = document["bytes_read"] - base_read, document["bytes_wanted"]
    read = f"{size(of_models)} {f'of {size(wanted)} ' * (of_models <= wanted)}read"
    read += f", and {size(base_read)} of the base" * bool(base_read)
    yield f"{document['base']}: {', '.join(parts)} · {read} in {document['seconds']:.1f} s"
    if partly:
        notes = Counter(row["note"] for row in partly)
        said = "; ".join(
            f"{note}" + f" ({count(n, 'model')})" * (len(notes) > 1)
            for note, n in notes.most_common(NOTES_SHOWN)
        )
        rest = agree(n_partly, "model rests on part of its", "models rest on part of their")
        yield f"{n_partly} {rest} matrices: {said}{' …' * (len(notes) > NOTES_SHOWN)}"
    if labels := document.get("labels"):
        yield f"labels: {count(labels['rows'], 'row')}, {labels['matched']} matched"
    if guessed := document.get("labels_guessed"):
        yield (
            f"{count(guessed, 'label')} guessed from names of models: --labels FILE or `deltadex "
            "label` overrides"
        )
    rows = [*document["failed"], *document["skipped_models"]]
    if rows:
        yield Section.of(("model", "code", "reason"), rows)
    if closed := sum(REASONS[row["code"]].by_rights for row in rows):
        yield (
            f"{count(closed, 'model')} not open to you: ask for access to gated ones on their "
            "pages, set HF_TOKEN to a token that may read them, and run again"
        )
    if gone := document.get("unlisted"):
        names = ", ".join(gone[:OFFERED]) + ", …" * (len(gone) > OFFERED)
        yield f"no longer listed on the Hub: {count(len(gone), 'indexed model')} ({names})"


@record
class Strictness:
    """What counts as a failure."""

    _: KW_ONLY
    strict: bool = option(
        default=False,
        help="Exit 1 also for models that are skipped, equal to the base, or refused by nature.",
    )


@command_line.command_with(
    Index,
    Strictness,
    examples=(
        "index bert-base-uncased ./my-fine-tunes --labels labels.csv",
        "index ./all-my-fine-tunes",
    ),
)
def command(common: command_line.Common, asked: Index, strictness: Strictness) -> None:
    writes_catalog = asked.parts is None or asked.ray is not None
    run_with_progress(
        common, asked, strictness, writes_catalog=writes_catalog, whole_family=asked.hub
    )


def run_with_progress(
    common: command_line.Common,
    asked: Any,
    strictness: Strictness,
    *,
    writes_catalog: bool = True,
    whole_family: bool = False,
) -> None:
    """Index with progress, print the report, and exit by what failed."""
    progress = terminal.RunProgress(quiet=common.quiet)
    command_line.when_stopped(lambda: _kept(progress.n_outcomes))
    with (
        command_line.open_database(
            common, read_only=False, create="late", or_none=not writes_catalog
        ) as db,
        progress,
    ):
        report = replace(asked, progress=progress).answer(db)
    command_line.print_document(report, show_report, common)
    document = report.to_json()
    done = document["indexed"] + document["unchanged"]
    reasons = [REASONS[row["code"]] for row in report]
    if whole_family and done:  # nobody named the models that others may not read
        reasons = [reason for reason in reasons if strictness.strict or not reason.by_rights]
    failed = any(strictness.strict or reason.is_failure for reason in reasons)
    command_line.exit_by(failed or (document.get("left_out") and not done), done)


def _kept(n_models: int) -> str:
    if n_models:
        return f"Progress is saved: at least {count(n_models, 'model')}; {command_line.CONTINUES}"
    return "No model was finished by this run; run the same command again."
