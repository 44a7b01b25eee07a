"""Bases of three architectures as transformers makes them, and a catalog that knows them."""

import torch
from factories import make_bert, make_checkpoint, read_config

import deltadex as dx


def llama(folder, seed):
    """A tiny Llama with grouped keys in three shards; its tensors."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return saved(LlamaForCausalLM, config, folder, seed, shards=3)


def gpt2(folder, seed):
    """A tiny GPT-2, whose matrices are stored in × out; its tensors."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=80, n_positions=16, n_embd=32, n_layer=4, n_head=4)
    return saved(GPT2LMHeadModel, config, folder, seed)


def bert(folder, seed):
    """A tiny BERT; its tensors."""
    return make_bert(folder, seed=seed, layers=4)


def saved(kind, config, folder, seed, **form):
    """A fresh model in `folder`, with values that are no constants; its tensors."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(config)
    state = model.state_dict()
    state.pop("lm_head.weight")
    tensors = {name: tensor.detach().clone() for name, tensor in state.items()}
    make_checkpoint(folder, tensors, config=config.to_dict(), **form)
    return tensors


MAKERS = {"bert": bert, "gpt2": gpt2, "llama": llama}


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
