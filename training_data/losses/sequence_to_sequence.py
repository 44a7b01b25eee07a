"""The loss of an encoder-decoder: the tokens of another text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...records import LossName
from ...study.network import TaskModel, decoder_start
from ..examples.example import Example
from .language_model import summed_cross_entropy
from .loss import IGNORED, EncodedExample, inputs_of, limit_of, padded, tokens_of


@dataclass(frozen=True, slots=True)
class SequenceToSequenceLoss:
    """Cross-entropy of a completion's tokens; of a class's name where there is none."""

    model: TaskModel
    max_tokens: int
    name: LossName = "seq2seq"
    needs_dropout: bool = False

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Texts and what is predicted from them."""
        encoded = []
        for example in examples:
            target = example.completion or ("" if example.label is None else str(example.label))
            if not target:
                continue
            wanted = self.model.tokenizer(
                text_target=target,
                truncation=True,
                max_length=limit_of(self.model, self.max_tokens),
            )["input_ids"]
            ids, _, _ = tokens_of(self.model, example, self.max_tokens)
            encoded.append(EncodedExample(ids=ids, targets=list(wanted)))
        return encoded

    def prepare(self, encoded: Sequence[EncodedExample], batch_size: int) -> None:
        """Nothing: the checkpoint has its head."""

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        """The sum over the tokens of the completions, and how many."""
        wanted = padded([example.targets for example in batch], IGNORED, self.model.device)
        shifted = self._shifted(wanted)
        output = self.model.whole(**inputs_of(self.model, batch), decoder_input_ids=shifted)
        return summed_cross_entropy(output.logits, wanted)

    def _shifted(self, wanted: torch.Tensor) -> torch.Tensor:
        """What the decoder reads: the start token, then every token but the last."""
        config = self.model.config
        padding = getattr(config, "pad_token_id", None)
        padding = padding if isinstance(padding, int) and padding >= 0 else 0
        shifted = wanted.roll(1, dims=1).masked_fill(wanted.roll(1, dims=1) == IGNORED, padding)
        shifted[:, 0] = decoder_start(config)
        return shifted
