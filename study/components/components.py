"""The components study of a model, alone or against a relative."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import KW_ONLY
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from ...options import Place, option, record
from ...results import Document, Section, count, share
from ..study import OpenCatalog, RunningStudy, StudyTable, find_subject, load_texts, study

if TYPE_CHECKING:
    from ..texts import Texts


@cache
def probe_texts() -> Texts:
    """64 short parallel texts in eight languages, by language and script."""
    from ..texts import Text, Texts

    text = files(__package__).joinpath("probe.json").read_text("utf-8")
    return Texts(
        tuple(
            Text(sentence, group, str(number))
            for group, sentences in json.loads(text).items()
            for number, sentence in enumerate(sentences, start=1)
        )
    )


@record
class Components(RunningStudy):
    """Decompose hidden states into input, attention, feed-forward and bias.

    With `--against` also which layer and which component a fine-tune edited. Importances are 0…1.

    Raises:
        StudyError: the network or the texts cannot be studied.

    >>> study = db.studies.components("imdb-0", texts="texts.txt", against="base")
    >>> study.save_picture("components.png").name
    'components.png'
    """

    name = "components"
    examples = ("components ./my-run --against ./base -o components.html",)

    _: KW_ONLY
    against: str | None = option(
        default=None,
        help="Compare with its base or another model: what moved, which layer was edited.",
    )
    texts: Place | None = option(
        default=None,
        file="existing",
        shown_default="64 built-in texts in 8 languages",
        help="As of `geometry`.",
    )
    special_tokens: bool = option(
        "--special", default=False, help="Count special tokens and first positions too."
    )

    def answer(self, db: OpenCatalog) -> ComponentsTable:
        from .components_study import components_study

        device = self.usable_device()
        texts = probe_texts() if self.texts is None else load_texts(self.texts)
        subject = find_subject(db.catalog, self.model, self.base, hint=self.against)
        network = subject.load(device)
        text_notes = self.text_notes(network, texts)
        relative = None
        if self.against:
            relative = find_subject(db.catalog, self.against, None).load(device)
            subject.require_descent(network, relative)
        report = components_study(
            network,
            texts.entries,
            against=relative,
            keep_special=self.special_tokens,
            keep_first=self.special_tokens,
            watched=self.watched(db, texts),
            **self.sizes,
        )
        document = report.to_json() | text_notes
        db.save(subject, self.name, self.settings(texts=texts.digest), document)
        title = f"Components of {network.name}"
        return ComponentsTable(document | subject.base_notes, report, title)


class ComponentsTable(StudyTable):
    """What hidden states are made of: `stack`, `layer`, and the importance of each term, 0…1."""

    _picture = "draw_components"

    def _rows(self) -> list[Document]:
        return [
            {"stack": name, "layer": layer, **dict(zip(stack["terms"], importance, strict=True))}
            for name, stack in self._document["stacks"].items()
            for layer, importance in zip(stack["layers"], stack["importance"], strict=True)
        ]

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        beside = f" against {document['against']}" if document["against"] else ""
        yield Section(
            title=f"components of {document['model']}{beside} · "
            f"{count(document['tokens'], 'token')} of {count(document['texts'], 'text')}"
        )
        for name, stack in document["stacks"].items():
            terms = [t for t in stack["terms"] if t not in stack["absent"]]
            places = [stack["terms"].index(t) for t in terms]
            yield Section(
                columns=(f"{name}: importance in hidden state", *terms),
                rows=[
                    (layer, *(share(row[place]) for place in places))
                    for layer, row in zip(stack["layers"], stack["importance"], strict=True)
                ],
                notes=[f"absent: {', '.join(stack['absent'])}"] if stack["absent"] else (),
            )
            if "local_shift" in stack:
                yield _edits(name, stack)


def _edits(name: str, stack: Document) -> Section:
    edited, shifts = stack["most_edited"], enumerate(stack["local_shift"])
    said = (
        "no layer was edited"
        if edited is None
        else f"edited most: {edited['term']} of layer {edited['layer']}"
    )
    return Section(
        columns=(f"{name}: layer, edited (own change / input)", *stack["local_terms"]),
        rows=[(n, *(f"{value:.4f}" for value in row)) for n, row in shifts],
        notes=[f"{said}; embeddings moved by {stack['local_embedding']:.4f}"],
    )


components = study(Components)
