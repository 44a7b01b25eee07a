"""Types whose matrices no rule names: full fine-tunes and LoRA, against torch and PEFT."""

import peft
import pytest
import torch
import transformers
from factories import configure
from peft_adapters import indexed_norms
from safetensors.torch import load_file

SWITCH = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
SIZE = {
    **{"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "intermediate_size": 48,
}
TYPES = {
    "swin": {
        **{"image_size": 32, "patch_size": 4, "embed_dim": 16, "window_size": 4},
        **{"depths": [2, 2], "num_heads": [2, 2]},
    },
    "rwkv": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2},
    # those that follow are stored under other names than transformers loads them by, in fewer
    # matrices; phonon's rows in another order, those of tipsv2 and molmo2 fused in one slot
    "segformer": {
        **{"image_size": 32, "hidden_sizes": [16, 32], "depths": [2, 2], "num_encoder_blocks": 2},
        **{"num_attention_heads": [1, 2], "sr_ratios": [2, 1], "patch_sizes": [7, 3]},
        **{"strides": [4, 2], "mlp_ratios": [2, 2]},
    },
    "gradium_phonon_tts": {
        **{**SIZE, "num_key_value_heads": 4, "head_dim": 8},
        "flow_head_config": {"condition_dim": 32, "hidden_size": 32, "num_hidden_layers": 2},
    },
    "tipsv2_text_model": SIZE,
    "molmo2_text": {
        **{**SIZE, "num_key_value_heads": 2, "head_dim": 8},
        **{"rope_scaling_layers": [0, 1], "additional_vocab_size": 8},
    },
    "switch_transformers": {**SWITCH, "num_layers": 2, "num_decoder_layers": 2, "num_experts": 4},
}
BLOCKS = ("blocks", "layers", "layer", "block")


def built(model_type):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **TYPES[model_type])
    return transformers.AutoModel.from_config(config)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model_type", "dora"), [*((name, False) for name in TYPES), ("gradium_phonon_tts", True)]
)
def test_norms_are_those_of_torch_and_of_pefts_merge(model_type, dora, tmp_path):
    built(model_type).save_pretrained(tmp_path / "base")
    full = built(model_type)
    with torch.no_grad():
        for parameter in full.parameters():
            parameter += 0.01 * torch.randn_like(parameter)
    full.save_pretrained(tmp_path / "models" / "full")
    settings = peft.LoraConfig(
        r=2, target_modules="all-linear", init_lora_weights=False, use_dora=dora
    )
    lora = peft.get_peft_model(built(model_type), settings)
    for name, parameter in lora.named_parameters():
        parameter.data *= 0.02 if "lora_B" in name else 1
    lora.save_pretrained(tmp_path / "models" / "lora")
    configure(tmp_path / "models" / "lora", "adapter_config.json", base_model_name_or_path="base")
    lora.merge_and_unload().save_pretrained(tmp_path / "models" / "merged")

    of_full, of_lora, of_merged = indexed_norms(tmp_path, "full", "lora", "merged")

    base, tuned = (
        load_file(tmp_path / name / "model.safetensors") for name in ("base", "models/full")
    )
    inside = [
        name
        for name, tensor in base.items()
        if tensor.dim() == 2
        and any(f"{block}.0." in name or f"{block}.1." in name for block in BLOCKS)
        and not any(word in name for word in ("bias", "norm", "router", "time_", "embed"))
    ]
    squares = sum(float((tuned[n].double() - base[n].double()).square().sum()) for n in inside)
    assert sum(norm**2 for norm in of_full.values()) == pytest.approx(squares, rel=1e-4)
    assert of_lora == pytest.approx(of_merged, rel=1e-3)
