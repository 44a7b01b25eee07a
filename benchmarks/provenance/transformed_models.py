"""Transformed checkpoints and decoys of two bases, written as transformers would save them.

    python -m benchmarks.provenance.transformed_models OUT --texts FOLDER [--steps 300]
        [--tuned MODEL] [--sources]

The bases are all-MiniLM-L6-v2, whose fine-tune is `--tuned` where it is given, and a small Llama
(RMSNorm, rotary positions, shared keys), trained here on `--texts` and fine-tuned. Decoys are
trained too: fresh initialisations for a few steps, and other seeds for as long as the Llama was.
Folders are `OUT/bert/NAME` and `OUT/llama/NAME`: `base`, `tuned`, `fresh` and `twin` are what the
others are made of, `decoy-*` are decoys, and `cases.json` beside them holds each case's layers and
changes. What is there is left alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    set_seed,
)

from ..families.base import base_folder
from ..families.causal_base import POSITIONS, VOCABULARY, train_tokenizer
from ..families.text_sets import base_texts, read_set
from ..families.training import MAX_LENGTH, steps
from .transformations import Model, cases, decoys, read_model, write_model

SHORT = 0.1
"""Steps of a short training, as a share of the Llama's."""

RATE, BATCH, MASKED = 2e-3, 32, 0.15


def llama_config(vocabulary: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
    )


def train_llama(texts: Sequence[str], tokenizer: object, *, seed: int, n_steps: int) -> Model:
    set_seed(seed)
    model = LlamaForCausalLM(llama_config(VOCABULARY))
    steps(model, tokenizer, list(texts), None, np.random.default_rng(seed), n_steps, RATE, BATCH)
    return _in_memory(model)


def tune_llama(base: Path, texts: Sequence[str], tokenizer: object, *, n_steps: int) -> Model:
    set_seed(3)
    model = LlamaForCausalLM.from_pretrained(base)
    steps(model, tokenizer, list(texts), None, np.random.default_rng(3), n_steps, 5e-4, BATCH)
    return _in_memory(model)


def train_bert(base: Path, texts: Sequence[str], *, seed: int, n_steps: int) -> Model:
    """A BERT of the base's config and tokens, trained from scratch on masked tokens."""
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = BertForMaskedLM(BertConfig.from_pretrained(base))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(n_steps):
        rows = [texts[i] for i in rng.choice(len(texts), BATCH, replace=False)]
        inputs = tokenizer(
            rows, truncation=True, max_length=MAX_LENGTH, padding=True, return_tensors="pt"
        )
        ids = inputs["input_ids"]
        masked = (torch.rand(ids.shape, generator=generator) < MASKED) & (ids > 999)
        labels = ids.masked_fill(~masked, -100)
        inputs["input_ids"] = ids.masked_fill(masked, tokenizer.mask_token_id)
        loss = model(**inputs, labels=labels).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    state = {
        name.removeprefix("bert."): tensor.detach().clone()
        for name, tensor in model.state_dict().items()
        if name.startswith("bert.")
    }
    return Model(state=state, config=read_model(base).config)


def _in_memory(model: PreTrainedModel) -> Model:
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    state.pop("lm_head.weight")
    config = {"architectures": ["LlamaForCausalLM"], **model.config.to_dict()}
    return Model(state=state, config=config | {"dtype": "float32"})


def train_bert_family(out: Path, texts: Sequence[str], tuned: Path | None, n_steps: int) -> None:
    base = out / "base"
    if not base.exists():
        shutil.copytree(base_folder(), base)
    if tuned is not None and not (out / "tuned").exists():
        write_model(read_model(tuned), out / "tuned", base)
    for number, (name, share) in enumerate((("fresh", SHORT), ("twin", 3 * SHORT)), start=1):
        if not (out / name).exists():
            model = train_bert(base, texts, seed=number, n_steps=int(share * n_steps))
            write_model(model, out / name, base)


def train_llama_family(out: Path, texts: Sequence[str], other: Sequence[str], n_steps: int) -> None:
    base = out / "base"
    tokenizer = train_tokenizer(list(texts))
    if not base.exists():
        write_model(train_llama(texts, tokenizer, seed=0, n_steps=n_steps), base)
        tokenizer.save_pretrained(base)
    if not (out / "tuned").exists():
        tuned = tune_llama(base, other, tokenizer, n_steps=int(2 * SHORT * n_steps))
        write_model(tuned, out / "tuned", base)
    for number, (name, share) in enumerate((("fresh", SHORT), ("twin", 1.0)), start=1):
        if not (out / name).exists():
            model = train_llama(texts, tokenizer, seed=number, n_steps=int(share * n_steps))
            write_model(model, out / name, base)


def read_family(family: Path) -> tuple[Model, Model | None, Model, Model]:
    """The base, a fine-tune of it where there is one, a fresh initialisation, another seed's."""
    base, fresh, twin = (read_model(family / name) for name in ("base", "fresh", "twin"))
    tuned = read_model(family / "tuned") if (family / "tuned").exists() else None
    return base, tuned, fresh, twin


def write_family(family: Path) -> None:
    base, tuned, fresh, twin = read_family(family)
    described = {}
    for name, case, changed in cases(base, tuned):
        order = list(case.order or range(base.layers))
        described[name] = {"layers": order, "changes": case.changes}
        if not (family / name).exists():
            write_model(changed, family / name, family / "base")
    for name, decoy in decoys(base, fresh, twin).items():
        if not (family / f"decoy-{name}").exists():
            write_model(decoy, family / f"decoy-{name}", family / "base")
    (family / "cases.json").write_text(json.dumps(described, indent=1), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--tuned", type=Path, help="a fine-tune of all-MiniLM-L6-v2")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sources", action="store_true", help="train only, write no case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = base_texts(options.texts)
    other = [text for text, _ in read_set(options.texts, "mr-long")]
    train_llama_family(options.out / "llama", texts, other, options.steps)
    train_bert_family(options.out / "bert", texts, options.tuned, options.steps)
    for family in ("llama", "bert"):
        if not options.sources:
            write_family(options.out / family)


if __name__ == "__main__":
    main()
