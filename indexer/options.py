"""What is asked of the indexer: which models, how they are read, and by whom."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY
from pathlib import Path

from ..options import Place, Question, argument, option, record
from ..records import Exclusion


@record
class Fingerprinting(Question):
    """How models are fingerprinted."""

    _: KW_ONLY
    labels: Place | None = option(
        default=None,
        file="existing file",
        help="Table with columns model,dataset,author,run, separated by commas, semicolons or "
        "tabs; overrides what models say.",
    )
    rank: int | None = option(default=None, least=1, help="Keep this many factors per matrix.")
    budget: str | None = option(
        default=None,
        metavar="SHARE",
        shown_default="all",
        help="Read only this much of every model's layers, 2% or 20MB, and the same share of its "
        "embedding.",
    )
    recipes: Sequence[str] = option(
        "--recipe",
        default=(),
        shown_default="the family's, or sketch",
        help="Name of a recipe; may be repeated.",
    )
    aliases: Sequence[str] = option(
        "--alias", default=(), help="Another name that members give the base."
    )
    workers: int = option(
        default=0,
        least=0,
        metavar="N",
        shown_default="chosen by what is read",
        help="Index N models in parallel.",
    )
    retry_failed: bool = option(default=False, help="Read models again that failed before.")
    verify: bool = option(
        default=False,
        help="Read unverified models again, whole, and compare them with their listed SHA-256.",
    )
    footprints: bool = option(
        "--footprints/--no-footprints",
        default=True,
        help="Read which tokens of the vocabulary occurred in training, from the input embedding.",
    )
    device: str = option(
        default="auto",
        help="Compress updates on this device, as torch names it; auto takes a GPU if there is "
        "one.",
    )


@record
class FamilyOptions(Fingerprinting):
    """Which models of a family are fingerprinted."""

    base: Place = argument(
        help="A Hub id or a folder; a mere name where all are adapters. Without `source`, a folder "
        "of models of any bases."
    )
    source: Place | None = argument(
        default=None,
        metavar="[FOLDER]",
        file="existing",
        help="A folder of models at any depth, or a file with one id or path per line.",
    )
    _: KW_ONLY
    hub: bool = option(default=False, help="Index the base's whole family on the Hugging Face Hub.")
    limit: int | None = option(default=None, least=1, metavar="N", help="Index at most N models.")
    depth: int | None = option(
        default=None,
        least=1,
        metavar="N",
        help="With --hub: only N generations below the base; 1 = its own children.",
    )
    exclude: Sequence[Exclusion] = option(
        default=(), help="Leave these models out; may be repeated."
    )
    min_downloads: int | None = option(
        default=None,
        least=1,
        metavar="N",
        help="With --hub: only models with at least N downloads.",
    )
    parts: Place | None = option(
        default=None,
        metavar="DIR",
        help="Write Parquet parts into DIR, a folder or an fsspec address; without --ray in place "
        "of the catalog. `deltadex merge DIR --db CATALOG` takes them.",
    )
    share: str | None = option(
        default=None,
        metavar="N/OF",
        help="Index only share N of OF equal, disjoint shares of the models.",
    )

    only: Collection[str] | None = option(
        default=None, doors="python", help="Only the models of `source` with these ids."
    )

    @property
    def folder(self) -> Path | None:
        """The folder of models, or the file that lists them."""
        return None if self.source is None else Path(self.source)


@record
class IndexOptions(FamilyOptions):
    """What `index_family` runs over.

    Attributes:
        models: Single ids or paths, in place of a source (`deltadex add`).
        ray: Address of a Ray cluster, or `local`: its workers read, and write parts.
    """

    _: KW_ONLY
    models: Sequence[Place] = ()
    ray: str | None = None
