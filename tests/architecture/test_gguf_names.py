"""Roles, against the names that llama.cpp's converter knows (`gguf.TensorNameMap`)."""

from __future__ import annotations

from collections import defaultdict

import gguf
from tiny_models import CONFIGS, saved

from deltadex.indexer.architecture import place

T = gguf.MODEL_TENSOR
ROLES = {
    T.ATTN_Q: "q",
    T.ATTN_K: "k",
    T.ATTN_V: "v",
    T.ATTN_OUT: "o",
    T.ATTN_Q_A: "q",
    T.ATTN_Q_B: "q",
    T.ATTN_KV_A_MQA: "k",
    T.ATTN_KV_B: "k v",
    T.ATTN_QKV: "q k v",
    T.FFN_UP: "up",
    T.FFN_GATE: "gate",
    T.FFN_DOWN: "down",
    T.FFN_UP_SHEXP: "up",
    T.FFN_GATE_SHEXP: "gate",
    T.FFN_DOWN_SHEXP: "down",
    T.FFN_UP_EXP: "up",
    T.FFN_GATE_EXP: "gate",
    T.FFN_DOWN_EXP: "down",
    T.ENC_ATTN_Q: "q",
    T.ENC_ATTN_K: "k",
    T.ENC_ATTN_V: "v",
    T.ENC_ATTN_OUT: "o",
    T.ENC_FFN_UP: "up",
    T.ENC_FFN_GATE: "gate",
    T.ENC_FFN_DOWN: "down",
    T.DEC_ATTN_Q: "q",
    T.DEC_ATTN_K: "k",
    T.DEC_ATTN_V: "v",
    T.DEC_ATTN_OUT: "o",
    T.DEC_CROSS_ATTN_Q: "cross_q",
    T.DEC_CROSS_ATTN_K: "cross_k",
    T.DEC_CROSS_ATTN_V: "cross_v",
    T.DEC_CROSS_ATTN_OUT: "cross_o",
    T.DEC_FFN_UP: "up",
    T.DEC_FFN_GATE: "gate",
    T.DEC_FFN_DOWN: "down",
}
PREFIXES = ("", "model.", "transformer.", "bert.", "gpt_neox.")


def gguf_roles() -> dict[str, set[str]]:
    """Every role that gguf gives a name in any architecture."""
    roles: dict[str, set[str]] = defaultdict(set)
    for arch in gguf.MODEL_ARCH:
        for name, (tensor, _) in gguf.get_tensor_name_map(arch, 2).mapping.items():
            if tensor in ROLES:
                roles[name].add(ROLES[tensor])
    return roles


def test_roles_agree_with_gguf_wherever_both_know_a_name():
    """Gguf files a fused gate and up under up; more than half of all names are compared."""
    known = gguf_roles()
    compared, total, disagreeing = 0, 0, []

    for variant in sorted(set(CONFIGS) - {"mamba"}):
        ours: dict[str, list[str]] = defaultdict(list)
        for p in place(saved(variant).shapes, saved(variant).config).placements:
            if p.slot.role not in ours[p.module]:
                ours[p.module].append(p.slot.role)
        for module, roles in ours.items():
            total += 1
            theirs = set().union(*(known.get(prefix + module, set()) for prefix in PREFIXES))
            if theirs:
                compared += 1
                fused_gate = roles == ["up", "gate"] and theirs == {"up"}
                if " ".join(roles) not in theirs and not fused_gate:
                    disagreeing.append((variant, module, roles, theirs))

    assert disagreeing == []
    assert compared > total / 2, (compared, total)
