"""What all studies share: their records, the model, its texts, what is stored, what comes out."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar

from .. import errors
from ..options import Answers, Place, Question, argument, option, options_of, question, record
from ..results import Document, Section, Table

if TYPE_CHECKING:
    from torch import nn

    from ..figures import Picture, Width
    from ..store import Catalog, ModelRow
    from .network.hidden_states import TokenStates
    from .network.language_head import CausalModel
    from .network.model_loading import Network
    from .texts import Texts

log = logging.getLogger(__name__)

P = ParamSpec("P")
Thing = TypeVar("Thing")
Answer_co = TypeVar("Answer_co", covariant=True)

MAX_BROKEN_ROWS = 5
"""Rows of a file of texts that are named in the log; the document has all."""
MAX_TOKENS = 128
UPLOADED = "upload"
"""Source of a model that a service was sent."""

STRANGERS = frozenset(
    {"other-base", "base-unknown", "wrong-base", "shape-mismatch", "layer-mismatch"}
)
"""Codes of models that were refused as no members of the family that their row is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One model.

    Attributes:
        source: A folder or Hub id to read it from; None where its files are kept nowhere.
        base: A folder, Hub id or mere name; None where nothing names one.
        key: Of the catalog; None for a model that is not in it.
        note: What an adapter's files say against `base`.
    """

    name: str
    source: str | None
    base: str | None
    is_adapter: bool
    key: int | None = None
    note: str = ""

    @property
    def base_notes(self) -> dict[str, list[str]]:
        return {"base_notes": [self.note] if self.note else []}

    def require_source(self) -> str:
        """Where its files are; a `RequestError` where a service was sent them, and kept none."""
        if self.source is None:
            raise errors.RequestError(
                f"{self.name}: was sent to a service, which keeps no files; "
                "name the adapter's folder instead"
            )
        return self.source

    def require_base(self) -> str:
        """The base; a `RequestError` where none is known."""
        if self.base is None:
            raise errors.RequestError(f"{self.name}: which base is it a fine-tune of? Add --base")
        return self.base

    def load(self, device: str) -> Network:
        from .network.model_loading import load_network

        return load_network(
            self.require_source(), name=self.name, base=self._base_place, device=device
        )

    def load_causal(self, device: str) -> CausalModel:
        """The model with its language-model head, ready to run."""
        from .network.language_head import load_causal

        return load_causal(
            self.require_source(), name=self.name, base=self._base_place, device=device
        )

    def load_head(self, network: Network) -> nn.Module:
        """Its checkpoint's head, with which it predicts tokens; a `StudyError` without one."""
        from .network.language_head import load_head

        return load_head(self.require_source(), network, base=self._base_place)

    @property
    def _base_place(self) -> str | None:
        """Where the base's weights may be: a folder, or an id with an owner or of old style."""
        is_place = self.base and (Path(self.base).is_dir() or not self.base.startswith(("/", ".")))
        return self.base if is_place else None

    def load_base(self, device: str) -> Network:
        from .network.model_loading import load_network

        return load_network(self.require_base(), device=device)

    def require_descent(self, network: Network, base: Network) -> None:
        """Refuse, as `index` does, a full checkpoint whose layers owe the base nothing."""
        from ..indexer import require_descent
        from .network.model_loading import paired_matrices

        if self.is_adapter:
            return
        try:
            require_descent(paired_matrices(network, base), base.name)
        except errors.ModelError as err:
            raise errors.RequestError(f"{self.name}: {err}") from err


def find_subject(
    catalog: Catalog, model: str, base: str | None, *, hint: str | None = None
) -> Subject:
    """The model that a user names.

    Args:
        base: As the user spells it; counts more than what an adapter's files name.
        hint: What may be its base, for a model that is in no family.

    Raises:
        RequestError: neither indexed, nor a folder or Hub id; or no base that is a family.
    """
    from ..indexer import choose_base, is_model_path

    known = catalog.bases()
    hinted = itself = None
    with suppress(errors.BaseError):  # of a folder of anything else, such as an adapter
        hinted = None if base else _family(catalog, hint)
    with suppress(errors.BaseError):
        itself = _family(catalog, model) if base is None and os.path.isdir(model) else None
    if itself in known:
        return Subject(name=model, source=model, base=itself, is_adapter=False)
    spelled = hint if hinted in known else base
    family = _family(catalog, spelled)
    if known and not is_model_path(model):
        family = catalog.find_base(family)
    source = model
    try:
        row = catalog.model(model, family)
        if row.code not in STRANGERS:
            return stored_subject(row, spelled)
        source = _source_of(row) or model
    except (errors.UnknownModel, errors.UnknownBase, errors.EmptyCatalog):
        if not is_model_path(model):
            raise
        if not os.path.isdir(model) and model.startswith(("/", ".", "~")):
            raise errors.RequestError(f"{model}: no such folder") from None
    may_be_base = hinted is not None and (hinted in known or is_model_path(hinted))
    hint = hint if may_be_base else None
    base, is_adapter, note = choose_base(catalog, source, base, hint)
    return Subject(name=model, source=source, base=base, is_adapter=is_adapter, note=note)


def _source_of(row: ModelRow) -> str | None:
    known = row.place
    return {"": row.id, "hub": row.id, UPLOADED: None}.get(known, known)


def stored_subject(row: ModelRow, base: str | None = None) -> Subject:
    """A model of the catalog; `base` says where its base is, if the family's name does not."""
    is_adapter, named = row.kind == "adapter", row.base_raw
    note = ""
    if is_adapter and named and named != row.base and not named.startswith(("/", ".", "~")):
        note = f"{row.id}: its config names {named}; it is studied as a fine-tune of {row.base}"
    return Subject(
        name=row.id,
        source=_source_of(row),
        base=base if base and Path(base).expanduser().is_dir() else row.base,
        is_adapter=is_adapter,
        key=row.key,
        note=note,
    )


def family_subjects(catalog: Catalog, base: str) -> list[Subject]:
    """Every indexed model of a family; a `RequestError` where there is none."""
    rows = catalog.models(base=_family(catalog, base), where="status = 'indexed'")
    if not rows:
        raise errors.RequestError(f"{base}: no indexed model; `deltadex index {base} FOLDER` first")
    return [stored_subject(row, base) for row in rows]


def _family(catalog: Catalog, base: str | None) -> str | None:
    """The name in the catalog of a base that the user spells."""
    from ..indexer import resolve_base

    return resolve_base(catalog, base).name if base else None


@dataclass(frozen=True, slots=True)
class OpenCatalog:
    """A catalog that studies read and are stored in, and a `Track` that shows their progress."""

    catalog: Catalog
    track: Callable[..., Iterator[Any]]

    def each(
        self, subjects: Sequence[Subject], measure: Callable[[Subject], Thing]
    ) -> tuple[list[Thing], list[dict[str, str]]]:
        """A study of each model that can be studied, and those that cannot; a `StudyError` where
        none can."""
        reports, failed = [], []
        for subject in self.track(subjects, "models", total=len(subjects)):
            try:
                reports.append(measure(subject))
            except (errors.StudyError, errors.RequestError, errors.ModelError) as err:
                failed.append({"model": subject.name, "reason": str(err)})
        if not reports:
            raise errors.StudyError(f"no model could be studied; {failed[0]['reason']}")
        return reports, failed

    def load(self, subject: Subject, study: str, settings: Mapping[str, Any]) -> Any:
        """The stored result of a study with these settings; None for a model not indexed."""
        if subject.key is None:
            return None
        return self.catalog.studies(subject.key).load(study, settings)

    def save(
        self, subject: Subject, study: str, settings: Mapping[str, Any], document: Mapping[str, Any]
    ) -> None:
        """Store a result beside the model's fingerprint; a catalog that refuses it is no error."""
        if subject.key is None:
            return
        try:
            self.catalog.studies(subject.key).save(study, settings, document)
        except errors.StoreError as err:
            log.warning("%s: the %s study is not stored: %s", subject.name, study, err)


class StudyTable(Table):
    """A study's answer: a document, rows, and sections for people; most have a picture."""

    _picture: ClassVar[str] = ""
    """Name in the module `picture` beside the table's of what draws the report."""

    def __init__(
        self, document: Document, report: Any = None, title: str = "", **drawing: Any
    ) -> None:
        super().__init__(document)
        self._report, self._title, self._drawing = report, title, drawing

    @abstractmethod
    def sections(self, *, everything: bool = False) -> Iterable[Section]:
        """What a screen shows and a page has; `everything` has the measures that few need."""

    def draw(self, width: Width) -> Picture:
        if not self._picture:
            raise NotImplementedError
        module = import_module(f"{type(self).__module__.rpartition('.')[0]}.picture")
        draw: Callable[..., Picture] = getattr(module, self._picture)
        return draw(self._report, width=width, **self._drawing)

    def save_picture(self, path: Place, *, width: Width = "full") -> Path:
        """Draw the report into a .png, .svg or .html file; a page has tables of values, too.

        Args:
            width: `full` is 180 mm, `column` 85 mm; text has the same size on both.

        Raises:
            RequestError: another ending.
            StoreFull: the file cannot be written.
        """
        from ..figures import save_picture

        target = Path(path)
        is_page = target.suffix.lower() == ".html"
        values = [section.html() for section in self.sections(everything=True)] if is_page else []
        return save_picture(
            lambda: self.draw(width), target, title=self._title, table="".join(values)
        )


class Study(Question):
    """A question that a study answers.

    Attributes:
        name: Of the stored results; that of the command.
        version: Of the stored results, raised whenever the numbers would change.
        examples: Command lines, without `deltadex`.
    """

    stability = "provisional"

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    examples: ClassVar[tuple[str, ...]] = ()
    has_picture: ClassVar[bool] = True

    def settings(self, **decided: Any) -> dict[str, Any]:
        """What decides the numbers, as it is stored with them: options that say so, `decided`
        (in place of some of them), and the version."""
        options = {
            name: getattr(self, name)
            for name, (_, declared) in options_of(self).items()
            if declared.stored and not declared.is_argument
        }
        return options | decided | {"version": self.version}


@record
class BasedStudy(Study):
    _: KW_ONLY
    base: str | None = option(
        default=None,
        stored=False,
        help="Only this family, where the catalog has several; of a model that is not indexed, "
        "its base, whatever its files name.",
    )
    device: str = option(default="cpu", stored=False, help="Compute on this device.")

    def usable_device(self, *, float64: bool = False) -> str:
        return usable_device(self.device, float64=float64)


def usable_device(name: str, *, float64: bool = False) -> str:
    """The device, for float64 or any, or a `RequestError`; torch is not imported for `cpu`."""
    if name == "cpu":
        return name
    from ..indexer import choose_device

    return choose_device(name, float64=float64)


@record
class ModelStudy(BasedStudy):
    model: str = argument(help="An id, a folder or a Hub id.")


@record
class RunningStudy(ModelStudy):
    """A study of a model that is run over texts."""

    _: KW_ONLY
    batch_size: int = option(
        default=16, least=1, stored=False, metavar="N", help="Run N texts at once."
    )
    max_tokens: int = option(
        default=MAX_TOKENS, least=2, metavar="N", help="Cut texts to N tokens."
    )

    @property
    def sizes(self) -> dict[str, Any]:
        """How texts are run, as arguments of what runs them."""
        return {"batch_size": self.batch_size, "max_tokens": self.max_tokens}

    def states(self, db: OpenCatalog, network: Network, texts: Texts) -> Iterator[TokenStates]:
        from .network.hidden_states import token_states

        return self.watched(db, texts)(token_states(network, texts.entries, **self.sizes))

    def watched(self, db: OpenCatalog, texts: Texts) -> Callable[[Iterable[Any]], Iterator[Any]]:
        """Passes on batches of these texts, tracked."""
        total = -(-len(texts.entries) // self.batch_size)
        return lambda batches: db.track(batches, "batches", total=total)

    def text_notes(self, network: Network, *sets: Texts) -> dict[str, Any]:
        """What a document says of its texts; the log tells the user of cut texts at once."""
        from .network.hidden_states import text_window

        window = text_window(network, [t for texts in sets for t in texts.entries], self.max_tokens)
        for note in window.notes(chosen=self.max_tokens != MAX_TOKENS):
            log.warning("%s", note)
        return {
            "broken_rows": [line for texts in sets for line in texts.broken],
            "text_notes": [note for texts in sets for note in texts.notes],
            **window.to_json(),
        }


@record
class TextStudy(RunningStudy):
    """A study over texts that have to be given."""

    _: KW_ONLY
    texts: Place = option(
        file="existing",
        help="One text per line; or CSV, TSV, JSONL with text, group, id; or FLORES files.",
    )


def seed_option(of: str) -> Any:
    return option(default=0, least=0, most=2**32 - 1, help=f"Random seed of {of}.")


def load_texts(path: Place) -> Texts:
    """The texts of a file or folder; the log has what is odd, and the first broken rows."""
    from .texts import read_texts

    texts = read_texts(Path(path))
    for note in texts.notes:
        log.warning("%s", note)
    for line in texts.broken[:MAX_BROKEN_ROWS]:
        log.warning("%s", line)
    if len(texts.broken) > MAX_BROKEN_ROWS:
        log.warning("%d more rows could not be used", len(texts.broken) - MAX_BROKEN_ROWS)
    return texts


class study(Generic[P, Answer_co]):  # it makes a method, as `property` does
    """A method of `registry.Studies`, made of a record: its call, and its command."""

    def __init__(self, asked: Callable[P, Answers[Answer_co]]) -> None:
        self.asked = asked

    def name_in(self, owner: type[Any], name: str) -> None:
        made: Any = question(self.asked)
        made.__set_name__(owner, name)

    def __get__(self, studies: object, owner: type[Any]) -> Callable[P, Answer_co]:
        raise NotImplementedError  # for type checkers: `name_in` leaves the method itself
