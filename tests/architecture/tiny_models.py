"""Models of every supported type, hidden size 32 and 2 layers, built by a quiet transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from tiny_networks import CONFIGS as NETWORKS

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

LAYERS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZE = {"vocab_size": 64, **LAYERS, "max_position_embeddings": 64, **TOKENS}
VISION_TOWER = {**LAYERS, "image_size": 16, "patch_size": 8}
TOWERS = {"text_config": {**SIZE, "projection_dim": 32}, "vision_config": VISION_TOWER}
DEBERTA = {**SIZE, "relative_attention": True, "pos_att_type": "c2p|p2c"}
FALCON = NETWORKS["falcon"]
SHARED = """
    bert roberta mpnet gpt_neox llama qwen3 gemma2 phi phi3 starcoder2 bart
    mixtral gpt_oss gptj codegen distilbert albert modernbert gpt2 gpt_neo opt bloom falcon mpt
    qwen3_moe t5 deepseek_v3 qwen2_moe gpt_bigcode
"""

CONFIGS = {
    **{name: NETWORKS[name] for name in SHARED.split()},
    **dict.fromkeys(("vit", "deit", "dinov2"), VISION_TOWER),
    **dict.fromkeys(("clip", "siglip"), TOWERS),
    "bert:decoder": {**SIZE, "is_decoder": True, "add_cross_attention": True},
    **dict.fromkeys(("deberta", "deberta-v2"), DEBERTA),
    "falcon:new": {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon:mha": {**FALCON, "multi_query": False},
    "mt5": NETWORKS["t5, gated"],
    "wav2vec2": {
        **SIZE,
        "conv_dim": [16, 16],
        "conv_kernel": [3, 3],
        "conv_stride": [2, 2],
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2,
    },
    "mamba": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "gpt_bigcode:mha": {**NETWORKS["gpt_bigcode"], "multi_query": False},
}
"""Keyed by model type; `type:form` where one type has several layouts."""


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A tiny model in memory, and what `save_pretrained` made of it."""

    model: torch.nn.Module
    shapes: dict[str, tuple[int, ...]]
    tensors: dict[str, torch.Tensor]
    config: dict[str, Any]


def prefixes(placed):
    """What stands before the layers' own names in the names of the placed tensors."""
    names = ((p.tensor.removesuffix(".weight"), p.module) for p in placed.placements)
    return {tensor.removesuffix(module) for tensor, module in names}


def slots(placed, more=False):
    return [
        (p.slot, p.part, p.shape, p.rows, p.transposed, *((p.module, p.index) if more else ()))
        for p in placed.placements
    ]


@cache
def saved(variant):
    """One variant's base class, the same every time, built and saved once in a session."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(variant.split(":")[0], **CONFIGS[variant])
    model = transformers.AutoModel.from_config(config).eval()
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(Path(folder) / "model.safetensors")
        config = json.loads((Path(folder) / "config.json").read_text())
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    return SavedModel(model, shapes, tensors, config)
