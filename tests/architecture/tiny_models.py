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
GROUPED = {**SIZE, "num_key_value_heads": 2, "head_dim": 8}
MOE = {**GROUPED, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 24}
TWO_EXPERTS = {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1}
DEBERTA = {**SIZE, "relative_attention": True, "pos_att_type": "c2p|p2c"}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
ROTARY_GPT2 = {**GPT2, "rotary_dim": 4}
FALCON = {**SIZE, "bos_token_id": 1, "alibi": False}
T5 = {
    "vocab_size": 64,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
BART = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    **TOKENS,
    "decoder_start_token_id": 1,
}
TEXT_TOWER = {**SIZE, "projection_dim": 32}
VISION_TOWER = {**LAYERS, "image_size": 16, "patch_size": 8}
TOWERS = {"text_config": TEXT_TOWER, "vision_config": VISION_TOWER}

CONFIGS = {
    **dict.fromkeys(("bert", "roberta", "mpnet", "gpt_neox"), SIZE),
    **dict.fromkeys(("llama", "qwen3", "gemma2", "phi", "phi3", "starcoder2"), GROUPED),
    "bart": BART,
    **dict.fromkeys(("vit", "deit", "dinov2"), VISION_TOWER),
    **dict.fromkeys(("deberta", "deberta-v2"), DEBERTA),
    **dict.fromkeys(("clip", "siglip"), TOWERS),
    **dict.fromkeys(("mixtral", "gpt_oss"), TWO_EXPERTS),
    **dict.fromkeys(("gptj", "codegen"), ROTARY_GPT2),
    "bert:decoder": {**SIZE, "is_decoder": True, "add_cross_attention": True},
    "distilbert": {
        "vocab_size": 64,
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 48,
        "max_position_embeddings": 64,
    },
    "albert": {**SIZE, "embedding_size": 16},
    "modernbert": {**SIZE, "cls_token_id": 1, "sep_token_id": 2},
    "gpt2": GPT2,
    "gpt_neo": {
        "vocab_size": 64,
        "hidden_size": 32,
        "num_layers": 2,
        "attention_types": [[["global", "local"], 1]],
        "num_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
    },
    "opt": {**SIZE, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "falcon": {**FALCON, "multi_query": True},
    "falcon:new": {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon:mha": {**FALCON, "multi_query": False},
    "mpt": {
        "vocab_size": 64,
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "expansion_ratio": 4,
        "max_seq_len": 64,
    },
    "qwen3_moe": MOE,
    "t5": T5,
    "mt5": {**T5, "feed_forward_proj": "gated-gelu"},
    "wav2vec2": {
        **SIZE,
        "conv_dim": [16, 16],
        "conv_kernel": [3, 3],
        "conv_stride": [2, 2],
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2,
    },
    "deepseek_v3": {
        **SIZE,
        "num_key_value_heads": 4,
        "q_lora_rank": 12,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
    },
    "mamba": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "qwen2_moe": {**MOE, "shared_expert_intermediate_size": 16},
    "gpt_bigcode": {**GPT2, "multi_query": True},
    "gpt_bigcode:mha": {**GPT2, "multi_query": False},
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
