"""Made-up states and rows with planted differences between layers."""

from __future__ import annotations

import numpy as np

from deltadex.study.layers.layer_rows import LayerRows
from deltadex.study.network.hidden_states import TokenStates


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
        n_seen=tokens,
    )


def batches(hidden, *, tokens_a_text=8, sizes=(16,)):
    """The same tokens in batches of the sizes given, the last size again and again."""
    index = np.arange(hidden.shape[1])
    start, queue = 0, list(sizes)
    while start < hidden.shape[1]:
        some = slice(start, start + (queue.pop(0) if len(queue) > 1 else queue[0]))
        yield TokenStates(hidden=hidden[:, some], text=index[some] // tokens_a_text)
        start = some.stop
