import pytest

from deltadex.indexer.checkpoint import TensorRef, quantization


def refs(declared):
    for name, (dtype, shape) in declared.items():
        yield TensorRef(name=name, dtype=dtype, shape=shape, file="f", start=0, stop=0)


Q = "model.layers.0.self_attn.q_proj"
NORM = {"model.norm.weight": ("BF16", (64,))}
STORED = {
    "bitsandbytes 4-bit": {
        f"{Q}.weight": ("U8", (2048, 1)),
        f"{Q}.weight.absmax": ("U8", (64,)),
        f"{Q}.weight.quant_map": ("F32", (16,)),
        f"{Q}.weight.quant_state.bitsandbytes__nf4": ("U8", (100,)),
    },
    "bitsandbytes 8-bit": {f"{Q}.weight": ("I8", (64, 64)), f"{Q}.SCB": ("F32", (64,))},
    "GPTQ": {
        f"{Q}.qweight": ("I32", (8, 64)),
        f"{Q}.qzeros": ("I32", (1, 8)),
        f"{Q}.scales": ("F16", (1, 64)),
        f"{Q}.g_idx": ("I32", (64,)),
    },
    "GPTQ or AWQ": {f"{Q}.qweight": ("I32", (64, 8)), f"{Q}.scales": ("F16", (1, 64))},
    "compressed-tensors": {
        f"{Q}.weight_packed": ("I32", (64, 8)),
        f"{Q}.weight_scale": ("BF16", (64, 1)),
    },
    "FP8": {f"{Q}.weight": ("F8_E4M3", (64, 64)), f"{Q}.weight_scale_inv": ("F32", (1, 1))},
    "MXFP4": {
        "model.layers.0.mlp.experts.down_proj_blocks": ("U8", (4, 64, 2, 16)),
        "model.layers.0.mlp.experts.down_proj_scales": ("U8", (4, 64, 2)),
    },
    "FP4 or FP6": {f"{Q}.weight": ("F4", (64, 64))},
    "integers": {f"{Q}.weight": ("I8", (64, 64)), f"{Q}.weight_scale": ("BF16", (64, 1))},
}


@pytest.mark.parametrize("scheme", STORED)
def test_a_scheme_is_known_by_its_tensors_in_any_order(scheme):
    items = list((NORM | STORED[scheme]).items())

    for order in (items, reversed(items)):
        assert quantization({"model_type": "llama"}, refs(dict(order)), ["m.bin"]) == scheme


@pytest.mark.parametrize(
    ("declared", "scheme"),
    [
        ({"quant_method": "gptq", "bits": 4}, "GPTQ"),
        ({"quant_method": "fp8"}, None),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, None),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"load_in_8bit": True, "load_in_4bit": False}, None),
        ({"quant_method": "hqq"}, "hqq"),
        ({"quant_method": ["x"]}, "a quantisation that its config declares"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": False}, None),
        ("gptq", None),
    ],
)
def test_a_config_declares_its_scheme(declared, scheme):
    assert quantization({"quantization_config": declared}, (), ()) == scheme


@pytest.mark.parametrize(
    ("files", "scheme"),
    [
        (["model-Q4_K_M.gguf", "README.md"], "GGUF (Q4_K_M)"),
        (["model.q8_0.gguf"], None),
        (["model-Q4_K_M.gguf", "model-Q5_K_M.gguf"], "GGUF"),
        (["model-Q4_0-00001-of-00002.gguf", "mmproj-f16.gguf"], "GGUF"),
        (["model-Q8_0-00001-of-00002.gguf", "model-Q8_0-00002-of-00002.gguf"], None),
        (["Q4/model.gguf", "config.json", "training_args.bin"], "GGUF"),
        (["model.gguf", "model.safetensors"], None),
        (["model.gguf", "pytorch_model-00001-of-00002.bin"], None),
    ],
)
def test_a_folder_of_gguf_alone_is_quantised(files, scheme):
    assert quantization(None, (), files) == scheme


def test_ordinary_models_with_integer_buffers_are_not_quantised():
    tensors = {
        f"{Q}.weight": ("BF16", (64, 64)),
        "embeddings.position_ids": ("I64", (1, 512)),
        "bert.embeddings.token_type_ids": ("I64", (1, 512)),
        "h.0.attn.bias": ("U8", (1, 1, 1024, 1024)),
        "h.0.attn.masked_bias": ("F32", ()),
        "gpt_neox.layers.0.attention.bias": ("BOOL", (1, 1, 2048, 2048)),
        "bn.num_batches_tracked": ("I64", ()),
        "relative_position_index": ("I64", (49, 49)),
        "encoder.weight_scale": ("F32", (1,)),
        "visual.down_blocks": ("F32", (2, 2)),
        "labels.weight": ("I32", (5,)),
        "input_scale": ("F8_E4M3", (1,)),
    }

    assert quantization({"model_type": "gpt2"}, refs(tensors), ["model.safetensors"]) is None


def test_an_adapter_of_a_quantised_base_is_not_quantised():
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "unsloth/gemma-3-270m-it-unsloth-bnb-4bit",
    }
    tensors = {f"base_model.model.{Q}.lora_A.weight": ("F32", (8, 64))}

    assert quantization(config, refs(tensors), ["adapter_model.safetensors"]) is None
