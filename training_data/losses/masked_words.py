"""The loss of masked tokens, for encoders that ship the head that predicts them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...records import LossName
from ...study.network import TaskModel
from ..examples.example import Example
from .language_model import summed_cross_entropy
from .loss import IGNORED, EncodedExample, inputs_of, padded, tokens_of

SHARE = 0.15
"""Of the tokens, as in BERT's training (Devlin et al. 2019); every one of them is masked here."""


@dataclass(frozen=True, slots=True)
class MaskedLoss:
    """Cross-entropy of masked tokens, which are chosen by the text itself and a seed."""

    model: TaskModel
    max_tokens: int
    seed: int = 0
    name: LossName = "masked"
    needs_dropout: bool = False

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Texts with some tokens masked, at least one each."""
        encoded = [self._encode(example) for example in examples]
        return [e for e in encoded if any(target != IGNORED for target in e.targets)]

    def prepare(self, encoded: Sequence[EncodedExample], batch_size: int) -> None:
        """Nothing: the checkpoint has its head."""

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        """The sum over masked tokens, and how many."""
        wanted = padded([example.targets for example in batch], IGNORED, self.model.device)
        return summed_cross_entropy(self.model.whole(**inputs_of(self.model, batch)).logits, wanted)

    def _encode(self, example: Example) -> EncodedExample:
        ids, types, special = tokens_of(self.model, example, self.max_tokens)
        ordinary = np.flatnonzero(np.array(special) == 0)
        n_masked = max(1, round(SHARE * len(ordinary))) if len(ordinary) else 0
        text = f"{self.seed}/{example.text}/{example.pair}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        masked = set(rng.choice(ordinary, n_masked, replace=False).tolist())
        mask = self.model.tokenizer.mask_token_id
        return EncodedExample(
            ids=[mask if place in masked else id for place, id in enumerate(ids)],
            types=types,
            targets=[id if place in masked else IGNORED for place, id in enumerate(ids)],
        )
