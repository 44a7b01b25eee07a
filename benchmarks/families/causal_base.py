"""The base of the causal family: a small GPT-2, trained on a slice of the sets' files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

from .text_sets import base_texts
from .training import steps

VOCABULARY = 4000
LAYERS, WIDTH, HEADS = 4, 192, 6
POSITIONS = 128
STEPS, RATE, BATCH = 900, 2e-3, 32
END = "<|endoftext|>"


def train_base(texts: Path, folder: Path) -> None:
    """Train the base and save it; a base that is there already is left alone."""
    if folder.exists():
        return
    torch.set_num_threads(1)
    set_seed(0)
    rows = base_texts(texts)
    tokenizer = train_tokenizer(rows)
    end = tokenizer.convert_tokens_to_ids(END)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=POSITIONS,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            bos_token_id=end,
            eos_token_id=end,
        )
    )
    rng = np.random.default_rng(0)
    loss = steps(model, tokenizer, rows, None, rng, STEPS, RATE, BATCH)
    half_made = folder.with_name(f".{folder.name}")
    shutil.rmtree(half_made, ignore_errors=True)
    model.save_pretrained(half_made)
    tokenizer.save_pretrained(half_made)
    half_made.rename(folder)
    print(f"base: loss {loss:.2f} after {STEPS} steps", flush=True)


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE; ends with the mark of an end."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        model_max_length=POSITIONS,
    )
