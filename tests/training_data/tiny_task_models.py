"""Tiny models with their heads, and texts that their tokenizer reads."""

import numpy as np
from tiny_networks import make_tokenizer, tiny_model

from deltadex.data.examples import Example
from deltadex.data.gradients import GradientSums, columns_of, layer_matrices
from deltadex.data.losses import choose_loss
from deltadex.indexer import LinearPool
from deltadex.study.network.language_head import TaskModel

CLASSES = {"next": "ForCausalLM", "masked": "ForMaskedLM", "translated": "ForSeq2SeqLM", None: ""}


def tiny_task_model(name, head, *, seed=0, **changes):
    whole = tiny_model(name, CLASSES[head], seed=seed, **changes)
    return TaskModel(name=name, whole=whole, tokenizer=make_tokenizer(), head=head)


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


def gradient_sums(model, examples, *, streamed=False):
    """The gradients of the usual loss, of all examples in one batch."""
    loss = choose_loss(model, examples, max_tokens=64)
    matrices = layer_matrices(model.whole, model.config.to_dict())
    sums = GradientSums(matrices, columns_of(matrices, streamed), model.device)
    with sums.collecting(model.whole):
        value, _ = loss.total(loss.encode(examples))
        value.backward()
    return sums


def linear_sketch(sums, recipe):
    """Linear in the updates that the sums stand for."""
    pool = LinearPool(recipe)
    for update in sums.updates(1.0):
        pool.take(update.slot, pool.features(update))
    return pool.sketch().pooled
