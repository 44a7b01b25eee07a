"""A catalog's footprints beside the vocabularies that they are of: words of models, and models by a
file's tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import RequestError
from ..records import Footprint
from ..store import Catalog, ModelFootprint
from .footprint_match import FileMatch, FileTokens
from .token_rows import KINDS as SURE_KINDS
from .vocabulary import Vocabulary
from .words import Word, words_of

NO_TOKENIZER = (
    "{base}: no tokenizer is kept of this family: put tokenizer.json beside the base's weights and "
    "run `deltadex index` again"
)


class Vocabularies:
    """The vocabularies of a catalog's tokenizers, each read once."""

    def __init__(self) -> None:
        self._read: dict[str, Vocabulary] = {}

    @classmethod
    def of(cls, catalog: Catalog) -> Vocabularies:
        return catalog.access.derived(cls)

    def get(self, catalog: Catalog, sha256: str, own: bytes = b"") -> Vocabulary:
        """That of a stored tokenizer, or of one that a fresh footprint brings (`own`)."""
        if sha256 not in self._read:
            vocabulary = Vocabulary(catalog.footprints.tokenizer(sha256, own))
            self._read = {**self._read, sha256: vocabulary}
        return self._read[sha256]

    def close(self) -> None:
        self._read = {}


@dataclass(frozen=True, slots=True)
class FamilyFootprints:
    """The footprints of one family, and which tokenizer each is of."""

    catalog: Catalog
    base: str
    models: tuple[ModelFootprint, ...]
    tokenizer: str | None

    @classmethod
    def read(cls, catalog: Catalog, base: str) -> FamilyFootprints:
        models = tuple(catalog.footprints.all(base))
        return cls(catalog, base, models, catalog.footprints.family_tokenizer(base))

    def tokenizer_of(self, footprint: Footprint) -> str:
        """The hash of the tokenizer of a footprint's tokens; `RequestError` where none is kept."""
        sha256 = footprint.tokenizer or self.tokenizer
        if sha256 is None:
            raise RequestError(NO_TOKENIZER.format(base=self.base))
        return sha256

    def vocabulary(self, footprint: Footprint) -> Vocabulary:
        sha256, read = self.tokenizer_of(footprint), Vocabularies.of(self.catalog)
        return _fitting(read.get(self.catalog, sha256, footprint.own_tokenizer), footprint)

    def words(
        self, footprint: Footprint, vocabulary: Vocabulary, *, model: str, private: bool
    ) -> list[Word]:
        """The words of a footprint, by how usual they are among the family's other models."""
        others = [
            one.footprint
            for one in self.models
            if one.model != model
            and one.footprint.kind in SURE_KINDS
            and one.footprint.tokenizer == footprint.tokenizer
        ]
        return words_of(footprint, vocabulary, others, private=private)

    def match(self, texts: Sequence[str], is_wanted: Callable[[str], bool]) -> dict[str, FileMatch]:
        """Of the wanted models with a footprint that names tokens: how a file's tokens match it."""
        tokens: dict[str, FileTokens] = {}
        matches = {}
        for one in self.models:
            if one.footprint.kind in SURE_KINDS and is_wanted(one.model):
                sha256 = self.tokenizer_of(one.footprint)
                if sha256 not in tokens:
                    tokens[sha256] = FileTokens.of(self.vocabulary(one.footprint), texts)
                matches[one.model] = tokens[sha256].match(one.footprint)
        return matches


def _fitting(vocabulary: Vocabulary, footprint: Footprint) -> Vocabulary:
    """The vocabulary; `RequestError`, with both sizes, where touched tokens lie beyond it."""
    beyond = int((footprint.tokens >= len(vocabulary)).sum())
    if beyond > 0.01 * max(1, len(footprint.tokens)):
        raise RequestError(
            f"the tokenizer has {len(vocabulary)} tokens, the embedding {footprint.vocabulary} "
            f"rows, and {beyond} touched rows lie beyond it: it is another model's tokenizer"
        )
    return vocabulary
