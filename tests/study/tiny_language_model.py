"""A tiny BERT with its head for masked tokens, a tokenizer, and texts of a few words."""

import functools

import numpy as np
from tiny_networks import as_network, make_tokenizer, save_folder, tiny_model

WORDS = ("sun", "rain", "wind", "snow", "cat", "dog", "fish", "bird", "iron", "gold", "tin")
TEXTS = tuple(
    f"The {' '.join(np.random.default_rng(seed).permutation(WORDS)[:4])} {seed}."
    for seed in range(60)
)


@functools.cache
def masked_bert():
    """The model with its head; nobody may change it."""
    return tiny_model("bert", "ForMaskedLM")


def masked_network():
    """Its headless part, with the tokenizer."""
    return as_network(masked_bert().bert, "bert", make_tokenizer())


def save_masked(folder, *, head=True):
    """The folder, now a checkpoint, with or without its head."""
    model = masked_bert() if head else masked_bert().bert
    return save_folder(folder, model, tokenizer=make_tokenizer())
