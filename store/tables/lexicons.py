"""What a catalog keeps of a base's words, to which updates answer: the words and their vectors."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Int8

STEPS = 32.0
"""Steps of a stored response in one standard deviation over the words."""


@dataclass(frozen=True, slots=True, eq=False)
class Lexicon:
    """Words of a base, the most frequent first.

    Attributes:
        words: Those of responses; whole words of the vocabulary.
        others: Further words of the vocabulary, of which only `vectors` are known.
        vectors: Of all words, their input embeddings on the main axes, centred and of unit length,
            in steps of 1/127: (words and others, axes).
    """

    words: Sequence[str]
    others: Sequence[str]
    vectors: Int8[np.ndarray, "all axes"]

    def to_bytes(self) -> bytes:
        """As JSON; `from_bytes` is the inverse."""
        document = {
            "words": list(self.words),
            "others": list(self.others),
            "axes": self.vectors.shape[1],
            "vectors": base64.b64encode(self.vectors.tobytes()).decode(),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Lexicon:
        document = json.loads(content)
        vectors = np.frombuffer(base64.b64decode(document["vectors"]), np.int8)
        return cls(document["words"], document["others"], vectors.reshape(-1, document["axes"]))
