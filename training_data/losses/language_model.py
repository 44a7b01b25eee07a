"""The loss of the next token: of a text, or of the completion of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...records import LossName
from ...study.network import TaskModel
from ..examples.example import Example
from .loss import IGNORED, EncodedExample, inputs_of, limit_of, padded, tokens_of


@dataclass(frozen=True, slots=True)
class CausalLoss:
    """Cross-entropy of every next token; only of the completion where an example has one."""

    model: TaskModel
    max_tokens: int
    name: LossName = "causal"
    needs_dropout: bool = False

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """With prompts cut from the left where prompt and completion are too long."""
        encoded = [self._encode(example) for example in examples]
        return [e for e in encoded if any(target != IGNORED for target in e.targets[1:])]

    def prepare(self, encoded: Sequence[EncodedExample], batch_size: int) -> None:
        """Nothing: the checkpoint has its head."""

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        """The sum over predicted tokens, and how many."""
        wanted = padded([example.targets for example in batch], IGNORED, self.model.device)[:, 1:]
        logits = self.model.whole(**inputs_of(self.model, batch)).logits[:, :-1]
        return summed_cross_entropy(logits, wanted)

    def _encode(self, example: Example) -> EncodedExample:
        text = f"{example.text}\n{example.pair}" if example.pair else example.text
        if not example.completion:
            ids, _, _ = tokens_of(self.model, Example(text=text), self.max_tokens)
            return EncodedExample(ids=ids, targets=ids)
        tokenizer, limit = self.model.tokenizer, limit_of(self.model, self.max_tokens)
        # not verbose: what is too long is cut below
        answer = tokenizer(example.completion, add_special_tokens=False, verbose=False)
        completion = list(answer["input_ids"])
        end = getattr(tokenizer, "eos_token_id", None)
        completion = (completion + ([] if end is None else [end]))[: limit - 1]
        prompt = list(tokenizer(text, verbose=False)["input_ids"])
        if end is not None and prompt[-1:] == [end]:
            prompt = prompt[:-1]
        prompt = prompt[max(0, len(prompt) + len(completion) - limit) :]
        return EncodedExample(ids=prompt + completion, targets=[IGNORED] * len(prompt) + completion)


def summed_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The sum of the cross-entropy, in float32, where a target counts; and how many do.

    Logits of tokens that do not count are left out before they are widened.
    """
    counted = targets != IGNORED
    chosen = logits[counted].float()
    loss = torch.nn.functional.cross_entropy(chosen, targets[counted], reduction="sum")
    return loss, int(counted.sum())
