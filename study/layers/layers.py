"""The layers study of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING

from ...options import Place, option, record
from ...results import Document, Section, count, share
from ..study import OpenCatalog, StudyTable, TextStudy, find_subject, load_texts, seed_option, study

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates
    from ..network.model_loading import Network
    from ..texts import Texts

SHOWN_DIMS = 4


@record
class Layers(TextStudy):
    """Measure what tells layers apart: norms, PCA, a classifier and its controls.

    Returns:
        A row for the classifier and for each control: `name`, `accuracy` (0…1). The document
        also has `norms`, `pca`, `contributions` (`n50`, `n90`, `max_share`, `largest`,
        `curve` by layer).

    Raises:
        RequestError: no such model.
        StudyError: the network or the texts cannot be studied.

    >>> "untrained" in [row["name"] for row in db.studies.layers("imdb-0", texts="texts.txt")]
    True
    """

    name = "layers"
    version = 3
    examples = (
        "layers ./my-run --texts imdb.txt --transfer agnews.csv -o layers.png",
        "layers gpt2 --texts imdb.txt --max-tokens 40",
    )

    _: KW_ONLY
    transfer: Place | None = option(
        default=None, file="existing", help="Test the classifier on a second set of texts."
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
        from ..network.model_loading import untrained_twin
        from ..texts import Texts
        from .layers_report import layers_study

        device = self.usable_device()
        texts = load_texts(self.texts).drawn(self.most_texts, self.seed)
        others = (
            load_texts(self.transfer).drawn(self.most_texts, self.seed) if self.transfer else None
        )
        subject = find_subject(db.catalog, self.model, self.base)

        network = subject.load(device)
        text_notes = self.text_notes(network, *filter(None, (texts, others)))

        def states(network: Network, texts: Texts) -> Iterator[TokenStates]:
            """Texts of similar length together: little of a batch is padding."""
            by_length = sorted(texts.entries, key=lambda text: len(text.text))
            return self.states(db, network, Texts(tuple(by_length)))

        twin = untrained_twin(network, seed=self.seed) if self.untrained else None
        report = layers_study(
            states(network, texts),
            other=states(network, others) if others else None,
            untrained=states(twin, texts) if twin else None,
            include_embedding=self.embedding,
            max_tokens=self.keep_tokens,
            n_texts=len(texts.entries),
            seed=self.seed,
        )
        document = {"model": network.name} | report.to_json() | text_notes
        settings = self.settings(texts=texts.digest, transfer=others.digest if others else None)
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
        )
        yield _contributions(document)
        if growth := document["norms"]["growth"]:
            yield Section(notes=[_growth(growth)])


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


def _error(value: float | None) -> str:
    return "" if value is None else share(value)


layers = study(Layers)
