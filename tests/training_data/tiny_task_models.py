"""Tiny models with their heads, and texts that their tokenizer reads."""

import numpy as np
import torch
import transformers
from tiny_networks import make_tokenizer, perturb, tiny_config

from deltadex.study.network import TaskModel
from deltadex.training_data.examples import Example

CLASSES = {
    "next": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "translated": transformers.AutoModelForSeq2SeqLM,
    None: transformers.AutoModel,
}


def tiny_task_model(name, head, *, seed=0, **changes):
    torch.manual_seed(seed)
    config = tiny_config(name, **changes)
    model = CLASSES[head].from_config(config).float().eval()
    perturb(model, by=0.1, seed=seed)
    return TaskModel(name=name, whole=model, tokenizer=make_tokenizer(), head=head)


def make_examples(n, *, seed=0, completion=False, label=None):
    """Examples of random words; `label`: classes, or None for a number of a regression."""
    rng = np.random.default_rng(seed)
    examples = []
    for row in range(n):
        words = ["".join(rng.choice(list("abcdefgh"), rng.integers(1, 5))) for _ in range(6)]
        text = " ".join(words[: rng.integers(2, 6)])
        if label == "number":
            value = float(rng.normal())
        else:
            value = None if label is None else f"class {row % label}"
        examples.append(Example(text=text, completion="cab ed" if completion else "", label=value))
    return examples
