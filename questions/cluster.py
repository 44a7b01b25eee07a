"""Groups of models, and data sets that unlabelled ones may be of: `cluster`."""

from __future__ import annotations

from dataclasses import KW_ONLY

from ..options import option, record
from ..results import Document, Section, Shown, Table, count, share
from .face.opened import Family, Opened
from .find_similar import calibrated_by
from .terminal.command_line import asking

MEMBERS_SHOWN = 3

SUGGESTIONS_SHOWN = 50


class ClusterTable(Table):
    """Clusters of a family, the largest first; the document also has suggested datasets."""

    columns = ("name", "size", "datasets", "words", "models")
    _key = "clusters"


@record
class Cluster(Family):
    """Group models that lie close together, and suggest datasets for unlabelled models.

    At most 20 % of the suggestions are expected to be wrong; weaker evidence is shown as a hint.

    >>> [len(group["models"]) for group in db.cluster(min_size=2)]
    [2, 2]
    """

    _: KW_ONLY
    min_size: int | None = option(
        default=None,
        least=2,
        shown_default="grows with the family, from 3",
        help="Fewest models of a cluster.",
    )
    suggest: bool = option(
        "--suggest/--no-suggest",
        default=True,
        help="Suggest datasets for unlabelled models, by their nearest labelled models.",
    )
    unknown_share: float = option(
        "--unknown",
        default=0.5,
        least=0,
        most=1,
        metavar="SHARE",
        help="Share of the unlabelled whose dataset no labelled model has; 0 if labels "
        "name them all.",
    )

    def answer(self, db: Opened) -> ClusterTable:
        from ..search import cluster_family

        return ClusterTable(
            cluster_family(
                db._catalog,
                min_size=self.min_size,
                suggest=self.suggest,
                unknown_share=self.unknown_share,
                recipe=self.recipe,
                base=db._catalog.find_base(self.base),
            )
        )


def show_clusters(document: Document) -> Shown:
    yield (
        f"{document['base']}: {count(len(document['clusters']), 'cluster')} of "
        f"{count(document['models'], 'model')}, {len(document['noise'])} in none · "
        f"recipe {document['recipe']}"
    )
    rows = [
        (
            cluster["name"],
            cluster["size"],
            ", ".join(f"{d['dataset']} ({d['models']})" for d in cluster["datasets"][:3]),
            ", ".join(cluster["words"]),
            ", ".join(cluster["models"][:MEMBERS_SHOWN]),
        )
        for cluster in document["clusters"]
    ]
    yield Section.of(("cluster", "models", "datasets", "words", "members"), rows)
    apart = document["silhouette"]
    for name, value, note in (
        ("ARI", document["ari"], "clusters against datasets, 0 for chance"),
        ("NMI", document["nmi"], "the same, not corrected for chance"),
        ("silhouette", apart["labels"], "of the datasets, −1…1"),
        ("", apart["clusters"], "of the clusters"),
    ):
        yield f"  {name:10} {share(value)}  {note}"
    for note in document["notes"]:
        yield f"  {note}"
    if "suggestions" in document:
        yield from _show_suggestions(document)


def _show_suggestions(document: Document) -> Shown:
    suggestions, hints = document["suggestions"], document["hints"]
    calibration = document["calibration"]
    if not len(suggestions) + document["abstained"]:
        yield "Every model has a dataset: nothing to suggest."
        return
    yield (f"models with a suggested dataset: {len(suggestions)}; without: {document['abstained']}")
    yield from _show_list(suggestions, "dataset")
    if hints:
        least = f"{calibration['target']:.2f}"
        yield f"{count(len(hints), 'hint')}: each with a probability below {least}"
        yield from _show_list(hints, "dataset (hint)")
    yield f"  {_known_from(calibration)}"
    if n_kept := calibration["kept_data"]:
        yield (
            f"  {count(n_kept, 'kept data set')} may name models as well: "
            "fdr is twice the rate of the better list"
        )


def _show_list(suggestions: list[Document], named: str) -> Shown:
    """The first of some suggestions, and how many there are beside."""
    if not suggestions:
        return
    columns = ["model", named, "confidence", "fdr", "verdict"]
    if any(s["source"] == "kept data" for s in suggestions):
        columns.append("named by")
    if any(s["words"] for s in suggestions):
        columns.append("words")
    numbers = ({key: share(s[key]) for key in ("confidence", "fdr")} for s in suggestions)
    rows = [
        {**s, **shown, named: s["dataset"], "named by": s["source"], "words": ", ".join(s["words"])}
        for s, shown in zip(suggestions[:SUGGESTIONS_SHOWN], numbers, strict=False)
    ]
    yield Section.of(columns, rows)
    if len(suggestions) > SUGGESTIONS_SHOWN:
        yield f"  and {len(suggestions) - SUGGESTIONS_SHOWN} more: --json has them all"


def _known_from(calibration: Document) -> str:
    """What the suggestions are known from, or what is missing."""
    if not calibration["datasets"]:
        return "no labelled model to name others after"
    known = calibrated_by(calibration["evidence"])
    if calibration["precision"] is not None:
        return (
            f"{known}; held out, {count(calibration['answers'], 'answer')} of "
            f"{count(calibration['models'], 'labelled model')}: precision "
            f"{share(calibration['precision'])} at coverage {share(calibration['coverage'])}"
        )
    if calibration["threshold"] is not None:
        return f"{known}; no labelled model with such evidence could be held out"
    return (
        f"{known}: no model reaches a confidence of {calibration['target']:.2f}; more labelled "
        "models help, and so does --unknown 0 where the labels name every dataset"
    )


command = asking(Cluster, show_clusters, "cluster --base bert-base-uncased --min-size 4")
