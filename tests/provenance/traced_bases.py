"""Bases of three architectures as transformers makes them, and a catalog that knows them."""

from functools import partial

from factories import make_bert, make_checkpoint, read_config
from tiny_networks import tiny_model

import deltadex as dx


def saved(name, folder, seed, *, shards=1, **changes):
    """A fresh model with a tied head in `folder`; its tensors."""
    model = tiny_model(name, "ForCausalLM", seed=seed, tie_word_embeddings=True, **changes)
    tensors = {n: t.clone() for n, t in model.state_dict().items() if n != "lm_head.weight"}
    make_checkpoint(folder, tensors, config=model.config.to_dict(), shards=shards)
    return tensors


MAKERS = {
    "bert": lambda folder, seed: make_bert(folder, seed=seed, layers=4),
    "gpt2": partial(saved, "gpt2", n_layer=4),
    "llama": partial(saved, "llama", num_hidden_layers=6, shards=3),
}
"""The matrices of a GPT-2 are stored in × out; the Llama has grouped keys."""


class Bases:
    """Folders, tensors and configs of the bases, by architecture, and a catalog of them all."""

    def __init__(self, folder):
        self.folder = folder
        self.tensors = {name: make(folder / name, 0) for name, make in MAKERS.items()}
        self.configs = {name: read_config(folder / name) for name in MAKERS}
        self.db = dx.open(folder / "c.duckdb")
        self.db.known_bases.add(*(folder / name for name in MAKERS))

    def path(self, name):
        return str(self.folder / name)

    def trace(self, target, name, tensors, **form):
        """The document of a model of this architecture with these tensors."""
        folder = make_checkpoint(target, tensors, config=self.configs[name], **form)
        return self.db.trace(str(folder)).to_json()
