"""A catalog's footprints beside the vocabularies that they are of: words of models, and models by a
file's tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import RequestError
from ..records import Footprint
from ..results import count
from ..store import Catalog
from .footprint_match import FileMatch, FileTokens
from .vocabulary import Vocabulary
from .words import Word, words_of

NO_TOKENIZER = (
    "{base}: no tokenizer is kept of this family: put tokenizer.json beside the base's weights and "
    "run `deltadex index` again"
)

MOST_MATCHED = 2_000
"""Models of a family whose footprints are compared with a file token by token."""

MOST_BEYOND = (0.01, 0.05)
"""Share of the touched tokens that may lie beyond the tokenizer's, which are padding; of tied ones
it is the share that was taken for touched by mistake."""

MOST_OTHERS = 500
"""Models that say how usual a word is."""


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


def vocabulary_of(catalog: Catalog, base: str, footprint: Footprint) -> Vocabulary:
    """That of a footprint's tokens; `RequestError` where none is kept."""
    sha256 = footprint.tokenizer or catalog.footprints.family_tokenizer(base)
    if sha256 is None:
        raise RequestError(NO_TOKENIZER.format(base=base))
    return Vocabularies.of(catalog).get(catalog, sha256, footprint.own_tokenizer)


@dataclass(frozen=True, slots=True)
class FamilyFootprints:
    """The footprints of one family, and which tokenizer each is of. `keys`: of the models whose
    footprints name tokens, rising."""

    catalog: Catalog
    base: str
    keys: Sequence[int]
    tokenizer: str | None

    @classmethod
    def read(cls, catalog: Catalog, base: str) -> FamilyFootprints:
        kept = catalog.footprints
        return cls(catalog, base, kept.keys(base), kept.family_tokenizer(base))

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
        """The words of a footprint, by how usual they are among some of the family's others."""
        some = self.keys[:: 1 + len(self.keys) // MOST_OTHERS]
        others = [
            one.footprint
            for one in self.catalog.footprints.all(self.base, some)
            if one.model != model and one.footprint.tokenizer == footprint.tokenizer
        ]
        return words_of(footprint, vocabulary, others, private=private)

    def match(
        self, texts: Sequence[str], wanted: Collection[int]
    ) -> tuple[dict[str, FileMatch], dict[str, str]]:
        """How a file's tokens match models, by id, and why others cannot be compared: of the models
        with these keys those whose footprints name tokens; of very many, those of which the file
        lacks the smallest share."""
        files: dict[str, FileTokens] = {}

        def file_tokens(sha256: str) -> FileTokens:
            if sha256 not in files:
                vocabulary = Vocabularies.of(self.catalog).get(self.catalog, sha256)
                files[sha256] = FileTokens.of(vocabulary, texts)
            return files[sha256]

        keys = [key for key in self.keys if key in wanted]
        if len(keys) > MOST_MATCHED and self.tokenizer is not None:
            bits = self.catalog.footprint_bits(self.base)
            shares = bits.shares_among(file_tokens(self.tokenizer).absent)
            nearest = bits.keys[np.argsort(shares, kind="stable")].tolist()
            allowed = set(keys)
            keys = [key for key in nearest if key in allowed][:MOST_MATCHED]
        found, refused = {}, {}
        for one in self.catalog.footprints.all(self.base, keys):
            try:
                self.vocabulary(one.footprint)  # refused where it does not fit
                tokens = file_tokens(self.tokenizer_of(one.footprint))
                found[one.model] = tokens.match(one.footprint)
            except RequestError as err:
                refused[one.model] = str(err)
        return found, refused


def _fitting(vocabulary: Vocabulary, footprint: Footprint) -> Vocabulary:
    """The vocabulary; `RequestError`, with both sizes, where touched tokens lie beyond it."""
    beyond = int((footprint.tokens >= len(vocabulary)).sum())
    if beyond > MOST_BEYOND[footprint.kind == "tied"] * max(1, len(footprint.tokens)):
        raise RequestError(
            f"the tokenizer has {len(vocabulary)} tokens, the embedding {footprint.vocabulary} "
            f"rows, {count(beyond, 'touched row')} beyond it: it is another model's tokenizer"
        )
    return vocabulary
