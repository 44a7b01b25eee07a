"""The loss of a language model on every text of a list."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from .training import MAX_LENGTH

BATCH = 64


def example_losses(base: Path, model: Path, texts: list[str]) -> np.ndarray:
    """Mean loss a token of each text, under the base, a fine-tune or an adapter; NaN-free.

    A text of one token has nothing to predict: its loss is 0.
    """
    from peft import PeftModel

    tokenizer = AutoTokenizer.from_pretrained(base)
    if (model / "adapter_config.json").exists():
        network = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), model)
    else:
        network = AutoModelForCausalLM.from_pretrained(model)
    network.eval()
    losses = []
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            inputs = tokenizer(
                texts[start : start + BATCH],
                truncation=True,
                max_length=MAX_LENGTH,
                padding=True,
                return_tensors="pt",
            )
            logits = network(**inputs).logits[:, :-1]
            wanted = inputs["input_ids"][:, 1:]
            counts = inputs["attention_mask"][:, 1:]
            each = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), wanted, reduction="none"
            )
            losses.append((each * counts).sum(1) / counts.sum(1).clamp(min=1))
    return torch.cat(losses).double().numpy()
