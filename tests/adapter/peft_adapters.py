"""Adapters that PEFT itself makes, saves and merges: the oracle of the adapter tests."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import peft
import torch
import transformers
from memory_bytes import MemoryBytes
from safetensors.torch import load_file, save, save_file
from transformers.pytorch_utils import Conv1D

import deltadex as dx
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.checkpoint import open_adapter_weights
from deltadex.indexer.checkpoint.files import SafetensorsFile
from deltadex.indexer.delta import dense

LLAMA = {
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "pad_token_id": 0,
}
MAMBA = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
GPT2 = {"vocab_size": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}


def in_memory(tensors):
    """A safetensors file of these tensors that is in memory."""
    data = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    return SafetensorsFile(MemoryBytes(data, "adapter_model.safetensors"))


@dataclass(frozen=True)
class Merged:
    """What PEFT makes of an adapter, by module, always (out, in)."""

    base: Mapping[str, torch.Tensor]
    updates: Mapping[str, torch.Tensor]


@cache
def _model(kind):
    torch.manual_seed(0)
    if kind == "bert":
        config = transformers.BertConfig(**LLAMA, max_position_embeddings=16, num_labels=3)
        return transformers.BertForSequenceClassification(config)
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2))
    if kind == "mamba":
        return transformers.MambaForCausalLM(transformers.MambaConfig(**MAMBA))
    if kind == "vit":
        return transformers.ViTModel(transformers.ViTConfig(**LLAMA, image_size=8, patch_size=4))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))


def make_model(kind):
    """A fresh tiny model with seeded weights: bert, gpt2, llama, mamba, vit."""
    return copy.deepcopy(_model(kind))


def make_adapter(
    kind, config, folder, *, dtype=torch.float32, safe=True, prepare=lambda model: None
):
    """An adapter with random values, saved by PEFT, and what PEFT merges it to.

    Args:
        dtype: Of the stored factors, which are rounded to it before they are merged.
        prepare: Changes the PEFT model before it is saved.
    """
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_model(kind)
        base = matrices(model)
        tuned = peft.get_peft_model(model, config)
        randomise(tuned, dtype)
        prepare(tuned)
        tuned.save_pretrained(str(folder), safe_serialization=safe)
        if dtype != torch.float32:
            path = folder / "adapter_model.safetensors"
            save_file({n: t.to(dtype) for n, t in load_file(path).items()}, path)
        merged = matrices(tuned.merge_and_unload())
    updates = {name: merged[name] - weight for name, weight in base.items()}
    return Merged(base, {n: u for n, u in updates.items() if bool(u.any())})


def randomise(tuned, dtype=torch.float32):
    """Values as after training: PEFT begins at an update of zero.

    Weights that are saved whole move by a tenth of themselves. A square one is read in the
    orientation of the smaller update: one as large as the weight would make that a matter of luck.
    """
    for name, parameter in tuned.named_parameters():
        if not parameter.requires_grad:
            continue
        size = float(parameter.data.square().mean().sqrt())
        scale = 0.1 * size if "modules_to_save" in name and size else 0.5
        noise = torch.randn_like(parameter) * scale
        keeps = "magnitude" in name or "ia3_l" in name or "modules_to_save" in name
        start = parameter.data if keeps else torch.zeros(())
        parameter.data = (start + noise).to(dtype).float()


def matrices(model):
    """Copies of all weights of Linear and Conv1D modules, (out, in)."""
    weights = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            weights[name] = module.weight.detach().clone()
        elif isinstance(module, Conv1D):
            weights[name] = module.weight.detach().T.clone()
    return weights


def read_folder(folder):
    """The adapter as deltadex reads it."""
    config = json.loads((folder / "adapter_config.json").read_text())
    return read_adapter(open_adapter_weights(folder), config)


def assert_same_updates(adapter, merged, tolerance=1e-5):
    """Every module's ΔW equals PEFT's, and no module is missing or too many."""
    assert {*adapter.modules, *adapter.full_values} == merged.updates.keys()

    for module, expected in merged.updates.items():
        weight = merged.base[module] if module in adapter.needs_base else None
        got = dense(adapter.delta(module, weight))
        assert got.dtype == torch.float32
        assert got.shape == expected.shape
        error = torch.linalg.norm(got - expected) / torch.linalg.norm(expected)
        assert error <= tolerance, f"{module}: {error:.2e}"


def indexed_norms(folder, *ids):
    """The norms by slot of models of `folder`, all indexed on its base, without those of zero."""
    with dx.open(folder / "c.duckdb") as db:
        report = db.index(str(folder / "base"), folder / "models").to_json()
        slots = [db.show(id).to_json()["slots"] for id in ids]
    assert report["failed"] == [] == report["skipped_models"]
    return [{s["slot"]: s["fro_norm"] for s in found if s["fro_norm"]} for found in slots]
