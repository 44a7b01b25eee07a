"""A catalog of two families, of a tiny BERT and a tiny GPT-2."""

import torch
import transformers
from factories import finetune, make_family, save_tokenizer

import deltadex as dx

BERT, GPT2 = "bert", "gpt2"


def make_families(folder):
    """`bert` and `gpt2` in the folder, each with `base` and four `models`, and `c.duckdb`."""
    make_family(folder / BERT)
    sizes = dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=16)
    torch.manual_seed(0)
    base = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=2, eos_token_id=3)
    )
    base.save_pretrained(folder / GPT2 / "base")
    before = base.state_dict()
    for seed in range(4):
        base.load_state_dict(finetune(before, seed=seed))
        base.save_pretrained(folder / GPT2 / "models" / f"g-{seed}")
    with dx.open(folder / "c.duckdb") as db:
        for kind in (BERT, GPT2):
            save_tokenizer(folder / kind / "base")
            db.index(folder / kind / "base", folder / kind / "models")
    return folder
