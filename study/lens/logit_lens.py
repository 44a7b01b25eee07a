"""The logit lens of a causal language model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY

from ...options import option, record
from ...results import Document, Section, count, share
from ..study import OpenCatalog, StudyTable, TextStudy, find_subject, load_texts, study


@record
class LogitLens(TextStudy):
    """Read each layer of a causal model with its own head: which layer decides?

    The final norm and the head read the state of every layer, and give its bits per token and per
    character; those of the last layer are the model's own.

    Returns:
        A row for each layer; the last one is the model itself, whose `bits_per_character` is
        its cross-entropy over the characters that it predicts.

    Raises:
        StudyError: the model is not causal, was saved without its head, or cannot be studied.

    >>> db.studies.logit_lens("imdb-0", texts="texts.txt")
    Traceback (most recent call last):
    deltadex.errors.StudyError: imdb-0: bert is no causal language model; ...
    """

    name = "logit-lens"
    examples = (
        "logit-lens ./my-gpt2 --texts reviews.csv -o lens.png",
        "logit-lens ./my-gpt2 --texts reviews.csv --against gpt2",
    )

    _: KW_ONLY
    against: str | None = option(
        default=None,
        help="Compare with another causal model of the same tokenizer, such as the base.",
    )

    def answer(self, db: OpenCatalog) -> LogitLensTable:
        from .lens_report import lens_study

        device = self.usable_device()
        texts = load_texts(self.texts)
        subject = find_subject(db.catalog, self.model, self.base, hint=self.against)
        other = find_subject(db.catalog, self.against, None) if self.against else None
        causal = subject.load_causal(device)
        text_notes = self.text_notes(causal.network, texts)
        report = lens_study(
            causal,
            texts.entries,
            against=other.load_causal(device) if other else None,
            watched=self.watched(db, texts),
            **self.sizes,
        )
        document = report.to_json() | text_notes
        db.save(subject, self.name, self.settings(texts=texts.digest), document)
        title = f"Logit lens of {report.model}"
        return LogitLensTable(document | subject.base_notes, report, title)


class LogitLensTable(StudyTable):
    """What each layer would predict with the model's own head, a row for each layer.

    `agreement` (share of tokens whose top token is the last layer's), `bits_per_token`,
    `bits_per_character`, `kl` (bits), `decided` (share of tokens that no later layer changes).
    """

    columns = ("layer", "agreement", "bits_per_token", "bits_per_character", "kl", "decided")
    _key = "layers"
    _picture = "draw_logit_lens"

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        characters = document["n_characters"]
        counted = "" if characters is None else f", {characters} characters"
        low, middle, high = document["decided_layers"]
        decided = (
            f"half of the tokens are decided by layer {middle} of {document['n_layers'] - 1} "
            f"(a quarter by {low}, three quarters by {high})"
        )
        yield Section(
            title=f"logit lens of {document['model']} · {count(document['n_tokens'], 'token')}"
            f"{counted} of {count(document['n_texts'], 'text')}",
            columns=(
                *("hidden state", "same top", "decided"),
                *("bits a token", "bits a character", "KL, bits"),
            ),
            rows=[
                (
                    layer["layer"],
                    share(layer["agreement"]),
                    share(layer["decided"]),
                    *(
                        _with_error(layer[key], layer[f"{key}_se"])
                        for key in ("bits_per_token", "bits_per_character", "kl")
                    ),
                )
                for layer in self
            ],
            notes=(decided, *(_beside(document["against"]) if document["against"] else ())),
        )


def _beside(beside: Document) -> Iterator[str]:
    other, measure, name = beside["other"], beside["bits_per_character"], "character"
    if measure is None:
        measure, name = beside["bits_per_token"], "token"
    yield (
        f"beside {other['model']}, which is decided by layer {other['decided_layers'][1]} of "
        f"{other['n_layers'] - 1}:"
    )
    yield (
        f"{_with_error(measure['value'], measure['standard_error'], sign='+')} bits a {name}; "
        f"the same answer for {share(beside['same_answer']['value'])} of the tokens"
    )


def _with_error(value: float | None, error: float | None, sign: str = "") -> str:
    """`3.214 ± 0.020`; without an error where there is none."""
    if value is None:
        return share(value)
    shown = f"{value:{sign}.3f}"
    return shown if error is None else f"{shown} ± {error:.3f}"


logit_lens = study(LogitLens)
