"""The CKA study of a model beside another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY

from ...options import option, record
from ...results import Section, count, share
from ..study import OpenCatalog, StudyTable, TextStudy, find_subject, load_texts, seed_option, study


@record
class Cka(TextStudy):
    """Compare the layers of two models over the same tokens, by linear CKA.

    Width and depth may differ; the tokenizer must be the same.

    Returns:
        A row for each layer, beside the other model's layer of the same relative depth; the
        document has every layer beside every layer (`matrix`, debiased).

    Raises:
        RequestError: no other model is named, and no base is known.
        StudyError: the models cut texts into other tokens, or cannot be studied.

    >>> study = db.studies.cka("imdb-0", texts="texts.txt", against="imdb-0")
    >>> [round(row["debiased"], 3) for row in study]
    [1.0, 1.0, 1.0]
    """

    name = "cka"
    examples = (
        "cka ./my-run --texts reviews.csv -o cka.png",
        "cka ./my-run --texts reviews.csv --against ./other-run",
    )

    _: KW_ONLY
    against: str | None = option(
        default=None, shown_default="the base of MODEL", help="Compare with this model."
    )
    keep_tokens: int = option(default=4000, least=100, help="Tokens sampled from the texts.")
    seed: int = seed_option("the sampled tokens and of the blocks of texts")

    def answer(self, db: OpenCatalog) -> CkaTable:
        from .cka_report import cka_study

        device = self.usable_device()
        texts = load_texts(self.texts)
        subject = find_subject(db.catalog, self.model, self.base, hint=self.against)
        other = find_subject(db.catalog, self.against, None) if self.against else None
        against = self.against or subject.require_base()
        network = subject.load(device)
        text_notes = self.text_notes(network, texts)
        relative = (other.load if other else subject.load_base)(device)
        if other is None:
            subject.require_descent(network, relative)
        report = cka_study(
            network,
            relative,
            texts.entries,
            keep_tokens=self.keep_tokens,
            seed=self.seed,
            watched=self.watched(db, texts),
            **self.sizes,
        )
        document = report.to_json() | text_notes
        settings = self.settings(texts=texts.digest, against=against)
        db.save(subject, self.name, settings, document)
        title = f"CKA of {network.name} and {relative.name}"
        return CkaTable(document | subject.base_notes, report, title)


class CkaTable(StudyTable):
    """CKA by layer: `layer`, `against_layer`, `debiased` with `standard_error`, `cka` (biased)."""

    columns = ("layer", "against_layer", "debiased", "standard_error", "cka")
    _key = "layers"
    _picture = "draw_cka"

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        yield Section(
            title=f"linear CKA of {document['model']} and {document['against']} · "
            f"{document['n_tokens']} of {count(document['n_tokens_seen'], 'token')} of "
            f"{count(document['n_texts'], 'text')}",
            columns=("hidden state", "beside", "debiased", "±", "biased"),
            rows=[
                (
                    layer["layer"],
                    layer["against_layer"],
                    share(layer["debiased"]),
                    share(layer["standard_error"]),
                    share(layer["cka"]),
                )
                for layer in self
            ],
            notes=() if document["n_blocks"] else ("no standard error: fewer than 5 texts",),
        )


cka = study(Cka)
