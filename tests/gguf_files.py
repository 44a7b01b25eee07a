"""Tiny models, and the GGUF files that llama.cpp's converter would write of them."""

import gguf
import numpy as np
import torch
import transformers

Q8 = gguf.GGMLQuantizationType.Q8_0
SIZES = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
MODELS = {
    "llama": transformers.LlamaConfig(num_key_value_heads=2, intermediate_size=96, **SIZES),
    "qwen2": transformers.Qwen2Config(num_key_value_heads=2, intermediate_size=96, **SIZES),
    "qwen3": transformers.Qwen3Config(
        num_key_value_heads=2, intermediate_size=96, head_dim=16, **SIZES
    ),
    "bert": transformers.BertConfig(intermediate_size=96, **SIZES),
    "gpt2": transformers.GPT2Config(vocab_size=64, n_embd=64, n_layer=2, n_head=4),
}


def make_model(name, seed=0):
    torch.manual_seed(seed)
    if name == "bert":
        return transformers.BertModel(MODELS[name], add_pooling_layer=False)
    return transformers.AutoModelForCausalLM.from_config(MODELS[name])


def convert(name, tensors, path, kind=Q8, per_file=0, heads=4):
    """The file that llama.cpp's convert_hf_to_gguf.py would write of a model, or files of some
    tensors each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    config, writer = MODELS[name], gguf.GGUFWriter(path, name, split_max_tensors=per_file)
    writer.add_block_count(2)
    writer.add_context_length(32)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(heads)
    writer.add_head_count_kv(getattr(config, "num_key_value_heads", 4))
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(64)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(64)])
    writer.add_token_merges(["t 1", "t 2"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[name.upper()], 2)
    for old, tensor in tensors.items():
        array = tensor.float().numpy()
        if name == "llama" and (".q_proj." in old or ".k_proj." in old):
            heads = 4 if ".q_proj." in old else 2
            halves = array.reshape(heads, 2, array.shape[0] // heads // 2, -1)
            array = halves.swapaxes(1, 2).reshape(array.shape)
        if name == "gpt2" and ".c_" in old:
            array = array.T
        new = names.get_name(old, try_suffixes=(".weight", ".bias"))
        assert new is not None, old
        if array.ndim > 1:
            writer.add_tensor(new, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(new, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
