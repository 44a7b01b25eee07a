"""Repositories of tiny models, and what must come back from them."""

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from factories import files_of, make_checkpoint

ODD = {
    "plain": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "half": torch.ones(5, 3, dtype=torch.bfloat16),
    "double": torch.ones(2, dtype=torch.float64),
    "mask": torch.tensor([True, False]),
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 4),
}


def bert_like(*, layers=4, width=96, vocabulary=12000):
    """Embeddings that outweigh the layers, as in a small BERT."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    tensors = {"embeddings.word.weight": normal(vocabulary, width)}
    for i in range(layers):
        for name in ("q", "k", "v", "o"):
            tensors[f"encoder.{i}.{name}.weight"] = normal(width, width)
            tensors[f"encoder.{i}.{name}.bias"] = normal(width)
        tensors[f"encoder.{i}.up.weight"] = normal(4 * width, width)
        tensors[f"encoder.{i}.down.weight"] = normal(width, 4 * width)
    tensors["pooler.weight"] = normal(width, width)
    return tensors


def to_npz(tensors):
    file = io.BytesIO()
    arrays = {
        name: t.view(torch.int16).numpy().view("V2") if t.dtype == torch.bfloat16 else t.numpy()
        for name, t in tensors.items()
    }
    np.savez(file, **arrays)
    return file.getvalue()


def sharded(tensors, form="safetensors"):
    """A transformers repository of three shards."""
    with TemporaryDirectory() as folder:
        return files_of(make_checkpoint(Path(folder), tensors, shards=3, form=form))
