"""Tiny random networks of every architecture that the studies know; texts are token ids.

Every parameter is perturbed: fresh ones have biases of 0 and gains of 1, which hide mistakes.
"""

import copy
import dataclasses
import functools
import json
import string
from importlib.resources import files

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from factories import SPECIAL
from tokenizers import models, normalizers, pre_tokenizers, processors

from deltadex.study.network.anatomy import find_stacks
from deltadex.study.network.hidden_states import token_states
from deltadex.study.network.model_loading import Network
from deltadex.study.texts import Text

VOCABULARY = 120
DIM = 32


SIZED = dict(vocab_size=VOCABULARY, pad_token_id=0)
BERT = SIZED | dict(num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64)
PLAIN = BERT | dict(hidden_size=DIM, intermediate_size=64)
GROUPED = PLAIN | dict(num_key_value_heads=2)
HEADS_OF_8 = GROUPED | dict(head_dim=8)
BIASED = GROUPED | dict(attention_bias=True, mlp_bias=True)
MIXTURE = GROUPED | dict(
    num_local_experts=4,
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=32,
    shared_expert_intermediate_size=32,
)
OF_STARTS = SIZED | dict(bos_token_id=1, eos_token_id=2)
GPT = OF_STARTS | dict(n_embd=DIM, n_layer=3, n_head=4, n_positions=64)
T5 = SIZED | dict(
    d_model=DIM,
    d_kv=8,
    d_ff=64,
    num_layers=3,
    num_decoder_layers=3,
    num_heads=4,
    decoder_start_token_id=0,
)
BART = OF_STARTS | dict(
    d_model=DIM,
    max_position_embeddings=64,
    decoder_start_token_id=2,
    forced_eos_token_id=2,
    **{f"{part}_layers": 3 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")},
)
OPT = BERT | dict(hidden_size=DIM, ffn_dim=64, word_embed_proj_dim=DIM)
EXPERTS = MIXTURE | dict(
    head_dim=8,
    n_routed_experts=4,
    n_group=1,
    topk_group=1,
    first_k_dense_replace=1,
    n_shared_experts=1,
)
LATENT = EXPERTS | dict(
    num_key_value_heads=4,
    kv_lora_rank=8,
    q_lora_rank=8,
    qk_rope_head_dim=8,
    qk_nope_head_dim=4,
    v_head_dim=8,
)
RELATIVE = dict(relative_attention=True, pos_att_type=["c2p", "p2c"])
SLIDING = dict(sliding_window=4, layer_types=["sliding_attention"] * 2 + ["full_attention"])


def alike(names, options):
    return dict.fromkeys(names.split(), options)


CONFIGS = {
    **alike("bert roberta xlm-roberta camembert", PLAIN),
    **alike("electra roformer albert", PLAIN | dict(embedding_size=16)),
    **alike("deberta deberta-v2", PLAIN | RELATIVE),
    **alike("ernie data2vec-text bert-generation layoutlm splinter", PLAIN),
    **alike("roberta-prelayernorm megatron-bert nomic_bert gte mpnet gpt_neox", PLAIN),
    "rembert": PLAIN | dict(input_embedding_size=16, output_embedding_size=16),
    "esm": PLAIN | dict(mask_token_id=4, position_embedding_type="rotary"),
    **alike(
        "modernbert modernbert-decoder",
        PLAIN | dict(norm_bias=True, attention_bias=True, mlp_bias=True),
    ),
    "distilbert": SIZED
    | dict(dim=DIM, hidden_dim=64, n_layers=3, n_heads=4, max_position_embeddings=64),
    **alike("gpt2 gpt_bigcode gpt-sw3", GPT),
    **alike("gptj codegen", GPT | dict(rotary_dim=4)),
    "gpt_neo": dict(
        vocab_size=VOCABULARY,
        hidden_size=DIM,
        num_layers=4,
        attention_types=[[["global", "local"], 2]],
        num_heads=4,
        max_position_embeddings=64,
    ),
    "gpt_neox, sequential": PLAIN | dict(use_parallel_residual=False),
    "falcon": PLAIN | dict(bias=True),
    "falcon, sequential": PLAIN | dict(bias=True, parallel_attn=False, multi_query=False),
    "falcon, grouped": PLAIN | dict(new_decoder_architecture=True, num_kv_heads=2, bias=True),
    "bloom": SIZED | dict(hidden_size=DIM, n_layer=3, n_head=4),
    "mpt": dict(vocab_size=VOCABULARY, d_model=DIM, n_layers=3, n_heads=4, max_seq_len=64),
    "opt": OPT,
    "opt, normalised after adding": OPT | dict(do_layer_norm_before=False, word_embed_proj_dim=16),
    "xglm": SIZED
    | dict(d_model=DIM, num_layers=3, attention_heads=4, ffn_dim=64, max_position_embeddings=64),
    **alike("biogpt persimmon", PLAIN),
    **alike("llama mistral qwen2 stablelm cohere smollm3 phi3 cohere2 apertus", GROUPED),
    **alike("eurobert bitnet phi starcoder2 olmo2 olmo3", GROUPED),
    **{name: BIASED for name in ("llama, biases", "arcee", "nemotron")},
    **alike("gemma helium seed_oss glm hunyuan_v1_dense ministral ministral3", HEADS_OF_8),
    **alike("cwm gemma2 gemma3_text exaone4", HEADS_OF_8),
    **alike("qwen3 glm4", HEADS_OF_8 | dict(attention_bias=True)),
    "granite": BIASED | dict(residual_multiplier=0.5),
    "olmo": GROUPED | dict(attention_bias=True),
    "ernie4_5": HEADS_OF_8 | dict(use_bias=True),
    **alike("mixtral qwen2_moe olmoe phimoe flex_olmo", MIXTURE),
    **alike("qwen3_moe minimax_m2", MIXTURE | dict(head_dim=8)),
    **alike("deepseek_v2 deepseek_v3", LATENT),
    **alike("glm4_moe dots1 exaone_moe", EXPERTS),
    "ernie4_5_moe": MIXTURE | dict(moe_num_experts=4, moe_k=2, moe_num_shared_experts=1),
    "granitemoe": MIXTURE | dict(residual_multiplier=0.5),
    "gpt_oss": MIXTURE | SLIDING | dict(head_dim=8),
    **alike("t5 mt5 umt5", T5),
    "t5, gated": T5 | dict(feed_forward_proj="gated-gelu"),
    **alike("bart marian mbart pegasus plbart m2m_100 blenderbot", BART),
}
"""Options by model type; what follows a comma tells variants apart."""


def one_of_each_structure():
    """The names of `CONFIGS` as parameters; of types with the same modules, the first is quick.

    Types that share an entry of `anatomy.json` have their modules at the same places.
    """
    table = json.loads(files("deltadex.study.network").joinpath("anatomy.json").read_text("utf-8"))
    entries = {kind: entry for entry, content in table.items() for kind in content["types"]}
    quick = {entries[name.split(",")[0]]: name for name in reversed(CONFIGS)}.values()
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in CONFIGS]


def tiny_config(name, **changes):
    """The config under a name of `CONFIGS`, with these options changed."""
    return transformers.AutoConfig.for_model(name.split(",")[0], **(CONFIGS[name] | changes))


def tiny_model(name, auto="", *, seed=0, **changes):
    """A model of transformers' class `AutoModel…`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kind = getattr(transformers, f"AutoModel{auto}")
        model = kind.from_config(tiny_config(name, **changes)).float().eval()
    perturb(model, by=0.1, seed=seed)
    return model


@functools.cache
def tiny_network(name, *, seed=0, **changes):
    """A network that nobody may change: equal arguments share it."""
    return as_network(tiny_model(name, seed=seed, **changes), name)


def as_network(model, name, tokenizer=None):
    """A model, ready to be studied."""
    model = model.eval().requires_grad_(False)
    stacks = find_stacks(model, model.config)
    return Network(name=name, model=model, tokenizer=tokenizer, stacks=stacks)


def perturb(model, *, by, seed=0):
    """Add normal noise to every parameter."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=by)


def edited(network, change):
    """A copy whose model was changed."""
    model = copy.deepcopy(network.model)
    with torch.no_grad():
        change(model)
    return as_network(model, f"{network.name}, edited", network.tokenizer)


def scale(*modules, by=1.3):
    """Multiply all parameters."""
    for module in modules:
        for parameter in module.parameters():
            parameter.mul_(by)


def make_texts(*lengths, seed=0):
    """Random token ids, none of them special."""
    draw = np.random.default_rng(seed)
    return tuple(
        Text(" ".join(map(str, draw.integers(5, VOCABULARY, length))), "", str(number))
        for number, length in enumerate(lengths, start=1)
    )


def ids_of(text):
    """The ids of a text, as a batch of one."""
    return torch.tensor([[int(number) for number in text.text.split()]])


def joined(states):
    """All batches as one, by the names of the parts."""
    batches = list(states)
    found = {"hidden": np.concatenate([one.hidden for one in batches], axis=1)}
    return found | {"text": np.concatenate([one.text for one in batches])}


def all_states(network, texts):
    """Hidden states of token ids, whether or not there is a tokenizer; every position."""
    silent = dataclasses.replace(network, tokenizer=None)
    return joined(token_states(silent, texts, keep_special=True, keep_first=True))["hidden"]


def relative(found, expected):
    """Length of the difference, over that of what was expected."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def make_tokenizer():
    """WordPiece of single letters, some words, `[CLS]` before and `[SEP]` behind."""
    letters = list(string.ascii_lowercase)
    parts = [*letters, *(f"##{one}" for one in letters), *".,?!'-#:", "the", "##ing"]
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL.values(), *parts])}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=64, **SPECIAL
    )


def speaking(name, **changes):
    """A tiny network that reads texts."""
    return dataclasses.replace(tiny_network(name, **changes), tokenizer=make_tokenizer())


def save_folder(folder, model, *, tokenizer=None, but=()):
    """The folder, now a checkpoint as transformers writes it, without some tensors."""
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in but}
    model.save_pretrained(folder, state_dict=state)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


SENTENCES = tuple(
    Text(text, "", str(n))
    for n, text in enumerate(("The cat sat on the mat.", "Rain, again!", "Who is singing?"))
)
