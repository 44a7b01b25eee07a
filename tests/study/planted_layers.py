"""Made-up states and rows with planted differences between layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deltadex.study.layers import LayerRows
from deltadex.study.network import TokenStates


def make_hidden(*, layers=3, tokens=80, dim=6, apart=0.0, seed=0):
    """Standard normal states; each layer lies `apart` from the mean of all, on its own axis."""
    hidden = np.random.default_rng(seed).normal(size=(layers, tokens, dim))
    for layer in range(layers):
        hidden[layer, :, layer % dim] += apart
    return hidden.astype(np.float32)


def make_rows(hidden, *, tokens_a_text=8, first_layer=0):
    """Rows of (layers, tokens, dim) states, of texts of equal length."""
    layers, tokens, dim = hidden.shape
    index = np.arange(tokens)
    return LayerRows(
        vectors=np.ascontiguousarray(hidden.reshape(-1, dim)),
        layer=np.repeat(np.arange(first_layer, first_layer + layers), tokens),
        text=np.tile(index // tokens_a_text, layers),
        position=np.tile(index % tokens_a_text + 1, layers),
        token=np.tile(100 + index, layers),
        n_seen=tokens,
    )


OF_TOKENS = ("text", "position", "token")


def permuted(rows, order):
    """The same rows in another order."""
    columns = ("vectors", "layer", *OF_TOKENS)
    return replace(rows, **{name: getattr(rows, name)[order] for name in columns})


def batches(hidden, *, tokens_a_text=8, sizes=(16,)):
    """The same tokens in batches of the sizes given, the last size again and again."""
    rows = make_rows(hidden, tokens_a_text=tokens_a_text)
    start, queue = 0, list(sizes)
    while start < hidden.shape[1]:
        some = slice(start, start + (queue.pop(0) if len(queue) > 1 else queue[0]))
        columns = {name: getattr(rows, name)[: hidden.shape[1]][some] for name in OF_TOKENS}
        yield TokenStates(hidden=hidden[:, some], **columns)
        start = some.stop
