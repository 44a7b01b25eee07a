"""Questions of origin: where a model comes from, and what can be made of its update."""

from __future__ import annotations

from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import RequestError
from ..options import Place, Question, argument, option, record
from ..store import write_user_file
from .opened import find_family
from .tables import KnownBaseTable, Table, TraceTable

if TYPE_CHECKING:
    from ..pictures import Width
    from .opened import Opened


@record
class Trace(Question):
    """Which base a model comes from, and what was done to it; "unknown" where nothing shows it.

    Its weights are compared with those of every base that the catalog knows: of its families, and
    of those that `bases.add` registered. Of a plain fine-tune on the Hub at most 1 MB is read.

    Returns:
        A document: `model`, `base`, `verdict`, `p`, `layers`, `changes`, `parents`, `method`,
        `reconstructed_share`; and a row for each pair of layers.

    Raises:
        UnknownModel: there is no such model.
        RequestError: it cannot be read, or no base is known.

    >>> db.trace("imdb-0").to_json()["verdict"]
    'fine-tune'
    """

    model: str = argument(help="An indexed id, a folder, or a Hub id.")
    _: KW_ONLY
    offline: bool = option(default=False, help="Read only files that are on this machine.")

    def answer(self, db: Opened) -> TraceTable:
        from ..provenance import trace_model

        return TraceTable(trace_model(db._catalog, str(self.model), offline=self.offline))


@record
class AddBases(Question):
    """Register bases that models are compared with, beside those of the families.

    Returns:
        A row for each base that was read, and `failed`: `base` and `reason` of the others.

    >>> len(db.known_bases.add("base"))
    1
    """

    bases: tuple[Place, ...] = argument(
        several=True, metavar="BASE...", help="Folders, or ids of models on the Hub."
    )

    def answer(self, db: Opened) -> KnownBaseTable:
        from ..provenance import register

        rows, failed = [], []
        for base in self.bases:
            try:
                rows.append(register(db._catalog, str(base)).to_json())
            except RequestError as err:
                failed.append({"base": str(base), "reason": str(err)})
        return KnownBaseTable({"bases": rows, "failed": failed})


@record
class KnownBases(Question):
    """The bases that models are compared with, and those that could not be read.

    >>> [row["state"] for row in db.known_bases()]
    ['known']
    """

    _: KW_ONLY
    offline: bool = option(default=False, help="Read only files that are on this machine.")

    def answer(self, db: Opened) -> KnownBaseTable:
        from ..provenance import known_bases

        known = known_bases(db._catalog, offline=self.offline)
        return KnownBaseTable({"bases": [base.to_json() for base in known], "failed": []})


class ExtractionTable(Table):
    """An extracted adapter: `slot`, `module`, `rank` and `error` of every layer module that the
    model changed. A document also has `path`, `bytes` and `error` of the whole, `dtype`, `task`,
    `saved` (modules that are in it whole), `biases` (how they are written) and `notes`."""

    columns = ("slot", "module", "rank", "error")
    _key = "slots"


@record
class ExtractAdapter(Question):
    """Write a LoRA adapter that turns the base into a full model, as a folder that PEFT loads.

    Layer matrices become low-rank factors; all else that differs from the base is saved whole.

    Returns:
        A row for each layer module that changed: `slot`, `module`, `rank`, and `error`, the share
        of |ΔW| that is left out (0…1), as measured on what is written.

    Raises:
        RequestError: the model has no base that is known, is an adapter already, equals its base,
            or cannot be read; the budget is too small; the folder is not empty.
        StoreFull: the folder cannot be written.

    >>> db.extract_adapter("imdb-0", "imdb-0-lora", rank=2)[0]["rank"]
    2
    """

    model: str = argument(help="An id, a folder or a Hub id of a full model.")
    output: Place = option("-o", "--output", help="The folder to write.", file="any")
    _: KW_ONLY
    rank: int | None = option(
        default=None,
        least=1,
        help="Rank of every layer matrix.",
        shown_default="16, without --bytes",
    )
    bytes: str | None = option(
        default=None,
        help="Size of the folder, such as 20MB; ranks are dealt out to the layers that gain most.",
    )
    dtype: Literal["float32", "float16", "bfloat16"] = option(
        default="float32", help="Type of the factors; half of float32 buys twice the ranks."
    )
    base: str | None = option(default=None, help="The base: its name, a Hub id or a folder.")
    force: bool = option(default=False, help="Replace the adapter that is in the folder.")

    def answer(self, db: Opened) -> ExtractionTable:
        from ..indexer import open_update
        from ..provenance import MATRIX_BYTES, extract_adapter, parse_bytes
        from ..study.study import find_subject

        if self.rank is not None and self.bytes is not None:
            raise RequestError("give --rank or --bytes, not both")
        budget = None if self.bytes is None else parse_bytes(self.bytes)
        subject = find_subject(db._catalog, self.model, self.base)
        source, base = subject.require_source(), subject.require_base()
        with open_update(db._catalog, source, base, matrix_bytes=MATRIX_BYTES) as update:
            document = extract_adapter(
                update,
                Path(self.output),
                rank=self.rank,
                budget=budget,
                dtype=self.dtype,
                replaces=self.force,
            )
        return ExtractionTable(document | {"model": subject.name})


@record
class Lineage(Question):
    """Who descends from whom inside a family, by weights and times.

    Returns:
        A row for each edge: `parent` (the base, where no indexed model is likely enough), `child`,
        `probability`, `kind` (`fine-tune`, `duplicate`, `quantised`, `merge`), `weight` (of a
        parent of a merge), `explained` (share of the child's update) and `cosine`. The document
        also has `claims`: what cards say beside it.

    Raises:
        UnknownRecipe: the recipe keeps no linear sketches.

    >>> {row["parent"] for row in db.lineage()} == {db.bases[0]}
    True
    """

    base: str | None = argument(
        default=None, metavar="[BASE]", help="The family, where the catalog has several."
    )
    _: KW_ONLY
    recipe: str | None = option(
        default=None, shown_default="sketch", help="Name or id of a recipe."
    )

    def answer(self, db: Opened) -> LineageTable:
        from ..provenance import trace_lineage

        catalog = db._catalog
        base = find_family(catalog, self.base)
        return LineageTable(catalog.look(lambda: trace_lineage(catalog, base, self.recipe)))


def check_lineage_ending(path: Place) -> None:
    """Raises `RequestError` for a file name that no picture of a lineage can have."""
    from ..pictures import check_lineage_ending

    check_lineage_ending(Path(path))


class LineageTable(Table):
    """The edges of a lineage, in order of child.

    A document also has `base`, `models`, `without_parent` (models that hang at the base), `level`
    (the probability below which they do), `claims` (`model`, `card`, `weights`, `says`, `note`),
    `not_compared` (`model`, `reason`) and `times`.
    """

    columns = ("child", "parent", "kind", "probability", "weight")
    _key = "edges"

    def save(self, path: Place, *, width: Width = "full") -> Path:
        """Draw the tree into a .svg, .png or .html file, or write it for Graphviz (.dot).

        Raises:
            RequestError: another ending, or there is no such folder.
            StoreFull: the file cannot be written.
        """
        from ..pictures import check_lineage_ending, draw_lineage, graphviz_lineage, save_picture

        target, document = Path(path), self.to_json()
        check_lineage_ending(target)
        if target.suffix.lower() == ".dot":
            write_user_file(target, graphviz_lineage(document).encode("utf-8", "replace"))
            return target
        draw = partial(draw_lineage, document, width)
        return save_picture(draw, target, title=f"Lineage of {document['base']}")
