"""The layers study of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING

from ...options import Place, option, record
from ...results import Document, Section, count, share
from ..study import (
    OpenCatalog,
    StudyTable,
    TextStudy,
    find_subject,
    load_texts,
    seed_option,
    study,
    try_each,
)

if TYPE_CHECKING:
    from ..network import TokenStates

SHOWN_DIMS = 4

SWEPT = {"context": "tokens of a text", "texts": "training texts"}


@record
class Layers(TextStudy):
    """Measure what tells layers apart: norms, PCA, a classifier and its controls.

    Returns:
        A row for the classifier and for each control: `name`, `accuracy` (0…1). The document
        also has `norms`, `pca`, `contributions` (`n50`, `n90`, `max_share`, `largest`,
        `curve` by layer), `tree`, and `context_sweep`, `texts_sweep` and `models`, which are
        None unless they were asked for.

    Raises:
        RequestError: no such model.
        StudyError: the network or the texts cannot be studied.

    >>> "untrained" in [row["name"] for row in db.studies.layers("imdb-0", texts="texts.txt")]
    True
    >>> study = db.studies.layers(
    ...     "imdb-0", texts="texts.txt", untrained=False, sweep_texts=[5, 10]
    ... )
    >>> [point["value"] for point in study.to_json()["texts_sweep"]["points"]]
    [5, 10]
    """

    name = "layers"
    version = 2
    examples = (
        "layers ./my-run --texts imdb.txt --transfer agnews.csv -o layers.png",
        "layers gpt2 --also gpt2-medium --texts imdb.txt --sweep-context 10,25,40",
    )

    _: KW_ONLY
    transfer: Place | None = option(
        default=None, file="existing", help="Test the classifier on a second set of texts."
    )
    sweep_context: Sequence[int] = option(
        default=(),
        least=2,
        separated=True,
        metavar="N,N,…",
        help="Measure accuracy on texts of at least N tokens, cut to N, for each N.",
    )
    sweep_texts: Sequence[int] = option(
        default=(),
        least=1,
        separated=True,
        metavar="N,N,…",
        help="Measure accuracy after training on N texts, for each N.",
    )
    also: Sequence[str] = option(
        default=(), metavar="MODEL", help="Compare a model of another size; repeat for more."
    )
    punctuation: bool = option(
        "--no-punctuation",
        default=True,
        help="Tokens without a letter or digit; `--no-punctuation` leaves them out.",
    )
    untrained: bool = option(
        "--no-untrained",
        default=True,
        help="An untrained network as a control; `--no-untrained` leaves it out.",
    )
    embedding: bool = option(
        "--without-embedding",
        default=True,
        help="Layer 0 as a layer; `--without-embedding` leaves it out.",
    )
    keep_tokens: int = option(default=1000, least=20, help="Tokens sampled from each set of texts.")
    most_texts: int = option(
        default=300, least=5, help="Texts drawn from each set; the rest is not read."
    )
    seed: int = seed_option("everything that is sampled")

    def answer(self, db: OpenCatalog) -> LayersTable:
        from . import LayersPlan, measure_model, studied_model, study_network, sweep_contexts

        device = self.usable_device()
        whole = load_texts(self.texts)
        texts = whole.drawn(self.most_texts, self.seed)
        others = (
            load_texts(self.transfer).drawn(self.most_texts, self.seed) if self.transfer else None
        )
        subject = find_subject(db.catalog, self.model, self.base)
        compared = [find_subject(db.catalog, other, None) for other in self.also]

        def watched(batches: Iterable[TokenStates], n_texts: int) -> Iterator[TokenStates]:
            return db.track(batches, "batches", total=-(-n_texts // self.batch_size))

        plan = LayersPlan(self, watched)
        network = subject.load(device)
        text_notes = self.text_notes(network, *filter(None, (texts, others)))
        swept = None
        if self.sweep_context:  # first: it may find too few texts
            unique = whole.drawn(len(whole.entries), self.seed)
            swept = sweep_contexts(network, unique.entries, self.sweep_context, plan)
        report = study_network(
            network,
            texts.entries,
            plan,
            other=others.entries if others else None,
            untrained=self.untrained,
            sweep_texts=self.sweep_texts,
        )
        report = replace(report, context_sweep=swept)
        also: dict[str, list[dict[str, str]]] = {}
        if self.also:
            points, also["failed"] = try_each(
                compared, lambda other: measure_model(other.load(device), texts.entries, plan)
            )
            report = replace(report, models=(studied_model(network, report), *points))
        document = {"model": network.name} | report.to_json() | text_notes | also
        settings = self.settings(
            texts=texts.digest,
            transfer=others.digest if others else None,
            context_texts=whole.digest if self.sweep_context else None,
            sweep_context=sorted(set(self.sweep_context)),
            sweep_texts=sorted(set(self.sweep_texts)),
            also=list(self.also),
        )
        db.save(subject, self.name, settings, document)
        title = f"Layers of {network.name}"
        return LayersTable(document | subject.base_notes, report, title, model=network.name)


class LayersTable(StudyTable):
    """What tells layers apart: a row for the layer classifier and for every control of it."""

    columns = ("title", "accuracy", "standard_error", "converged")
    _key = "controls"
    _picture = "draw_layers"

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        removed, tree = document["n_punctuation_removed"], document["tree"]
        notes = [
            f"the decision tree has {tree['leaves']} leaves of {tree['min_leaf']} rows or more and "
            f"depth {tree['depth']}, and asks about {tree['dims']} of {document['dim']} dimensions"
        ]
        if removed is not None:
            notes.append(f"{count(removed, 'token')} without a letter or digit are left out")
        yield Section(
            title=f"layers of {document['model']} · chance {document['chance']:.3f} · "
            f"{count(document['n_tokens'], 'token')} of {count(document['n_texts'], 'text')}",
            columns=("", "accuracy", "±", ""),
            rows=[
                (
                    control["title"],
                    share(control["accuracy"]),
                    _error(control["standard_error"]),
                    "" if control["converged"] else "did not converge",
                )
                for control in self
            ],
            notes=notes,
        )
        yield _contributions(document)
        if growth := document["norms"]["growth"]:
            yield Section(notes=[_growth(growth)])
        for key in ("context_sweep", "texts_sweep"):
            if document[key]:
                yield _sweep(document[key])
        if document["models"]:
            yield _models(document["models"])


def _contributions(document: Document) -> Section:
    held = document["contributions"]
    rows = []
    for place, layer in enumerate(held["layers"]):
        largest = held["largest"][place][:SHOWN_DIMS]
        dims = " ".join(f"{'+-'[one['sign'] < 0]}{one['dim']}" for one in largest)
        sizes = (held["n50"][place], held["n90"][place], f"{held['max_share'][place]:.1%}")
        rows.append((layer, *sizes, dims))
    meaning = (
        f"n50, n90: dimensions, of {document['dim']}, that hold 50 % and 90 % of a layer's "
        "absolute weights; + speaks for the layer, - against it"
    )
    return Section(
        columns=("hidden state", "n50", "n90", "largest", "dimensions of largest weight, from 0"),
        rows=rows,
        by_layer=range(len(rows)),
        across=False,
        notes=[meaning],
    )


def _growth(growth: Document) -> str:
    low, high = growth["rate_interval"]
    numbers = f"×{growth['rate']:.3f} a layer (95 % interval {low:.3f} to {high:.3f})"
    fit = f"R² {growth['r2']:.2f}"
    if growth["verdict"] == "flat":
        return f"mean norms neither grow nor shrink steadily with depth: {numbers}, {fit}"
    kind = "exponentially" if growth["exponential"] else "but not exponentially"
    return f"mean norms {growth['verdict']} with depth, {kind}: {numbers}, {fit}"


def _sweep(sweep: Document) -> Section:
    reaching = sweep["n_examined"] is not None
    texts = (f"reach it, of {sweep['n_examined']}", "texts used") if reaching else ()
    return Section(
        columns=(
            *(SWEPT[sweep["variable"]], *texts, "training tokens"),
            *("accuracy", "±", "less the first"),
        ),
        rows=[
            (
                point["value"],
                *((point["n_reaching"], point["n_texts"]) if reaching else ()),
                point["n_train"] // len(point["recall"]),
                share(point["accuracy"]),
                _error(point["standard_error"]),
                _difference(point),
            )
            for point in sweep["points"]
        ],
        notes=[sweep["held_back"], *sweep["skipped"]],
    )


def _difference(point: Document) -> str:
    if point["difference"] is None:
        return ""
    error = point["difference_error"]
    return f"{point['difference']:+.3f}" + ("" if error is None else f" ± {error:.3f}")


def _models(models: Sequence[Document]) -> Section:
    return Section(
        columns=(
            *("model", "parameters", "depth", "width", "chance"),
            *("accuracy", "±", "above chance"),
        ),
        rows=[
            (
                _short(point["model"]),
                f"{point['n_parameters'] / 1e6:.1f} M",
                point["n_layers"],
                point["dim"],
                f"{point['chance']:.3f}",
                share(point["accuracy"]),
                _error(point["standard_error"]),
                share(point["above_chance"]),
            )
            for point in models
        ],
        notes=["above chance: (accuracy - chance) / (1 - chance), which does not depend on depth"],
    )


def _error(value: float | None) -> str:
    return "" if value is None else share(value)


def _short(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1] if name.startswith(("/", ".", "~")) else name


layers = study(Layers)
