"""Small bases of families, trained on a slice of the sets' files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

from .base import base_folder
from .text_sets import base_texts
from .training import IGNORED, MAX_LENGTH, optimise, steps, tokens

VOCABULARY = 4000
LAYERS, WIDTH, HEADS = 4, 192, 6
POSITIONS = 128
STEPS, RATE, BATCH = 900, 2e-3, 32
END = "<|endoftext|>"

STUDENT_LAYERS, STUDENT_WIDTH, STUDENT_HEADS = 4, 256, 8
STUDENT_STEPS, STUDENT_RATE = 1500, 1e-3

SENTINELS = 16
SPAN, HIDDEN_SHARE = 3, 0.15
DENOISING_STEPS = 3000
"""T5's; a span of three tokens is hidden, so that 15 % of a text are."""


def train_base(name: str, texts: Path, folder: Path) -> None:
    """Train the base and save it; a base that is there already is left alone."""
    if folder.exists():
        return
    torch.set_num_threads(1)
    set_seed(0)
    rows = base_texts(texts)
    model, tokenizer, loss = BASES[name](rows, np.random.default_rng(0))
    half_made = folder.with_name(f".{folder.name}")
    shutil.rmtree(half_made, ignore_errors=True)
    model.save_pretrained(half_made)
    tokenizer.save_pretrained(half_made)
    half_made.rename(folder)
    print(f"base: loss {loss:.3g}", flush=True)


Trained = tuple[PreTrainedModel, Any, float]
"""A base, its tokenizer and the mean loss at the end."""


def _gpt2(rows: list[str], rng: np.random.Generator) -> Trained:
    tokenizer = train_tokenizer(rows)
    end = tokenizer.convert_tokens_to_ids(END)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        bos_token_id=end,
        eos_token_id=end,
    )
    model = GPT2LMHeadModel(config)
    return model, tokenizer, steps(model, tokenizer, rows, None, rng, STEPS, RATE, BATCH)


def _llama(rows: list[str], rng: np.random.Generator) -> Trained:
    tokenizer = train_tokenizer(rows, 3000)
    end = tokenizer.convert_tokens_to_ids(END)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=POSITIONS,
        hidden_size=WIDTH,
        intermediate_size=512,
        num_hidden_layers=5,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        bos_token_id=end,
        eos_token_id=end,
    )
    model = LlamaForCausalLM(config)
    return model, tokenizer, steps(model, tokenizer, rows, None, rng, STEPS, RATE, BATCH)


def _student(rows: list[str], rng: np.random.Generator) -> Trained:
    """An encoder of other depth and width, which gives MiniLM's hidden states of every token, after
    a linear map."""
    teacher = AutoModel.from_pretrained(base_folder()).eval()
    tokenizer = AutoTokenizer.from_pretrained(base_folder())
    model = BertModel(
        BertConfig(
            vocab_size=teacher.config.vocab_size,
            max_position_embeddings=POSITIONS,
            hidden_size=STUDENT_WIDTH,
            intermediate_size=4 * STUDENT_WIDTH,
            num_hidden_layers=STUDENT_LAYERS,
            num_attention_heads=STUDENT_HEADS,
        )
    )
    words = teacher.embeddings.word_embeddings.weight.detach()
    _, _, directions = torch.pca_lowrank(words, q=STUDENT_WIDTH, niter=4)
    model.embeddings.word_embeddings.weight.data = (words @ directions).contiguous()
    outlet = torch.nn.Linear(STUDENT_WIDTH, teacher.config.hidden_size)

    def losses() -> Iterator[torch.Tensor]:
        while True:
            picked = rng.choice(len(rows), BATCH, replace=False)
            inputs = tokens(tokenizer, [rows[i] for i in picked])
            with torch.no_grad():
                wanted = teacher(**inputs).last_hidden_state
            given = outlet(model(**inputs).last_hidden_state)
            counted = inputs["attention_mask"].bool()
            yield torch.nn.functional.mse_loss(given[counted], wanted[counted])

    weights = [*model.parameters(), *outlet.parameters()]
    model.train()
    loss = optimise(weights, losses(), STUDENT_STEPS, STUDENT_RATE)
    return model, tokenizer, loss


def _t5(rows: list[str], rng: np.random.Generator) -> Trained:
    """Trained to fill hidden spans (Raffel et al. 2020)."""
    sentinels = [f"<extra_id_{number}>" for number in range(SENTINELS)]
    tokenizer = train_tokenizer(rows)
    tokenizer.add_special_tokens({"additional_special_tokens": sentinels})
    places = [tokenizer.convert_tokens_to_ids(name) for name in sentinels]
    end = tokenizer.convert_tokens_to_ids(END)
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=len(tokenizer),
            d_model=WIDTH,
            d_kv=WIDTH // HEADS,
            d_ff=512,
            num_layers=LAYERS,
            num_heads=HEADS,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            pad_token_id=end,
            eos_token_id=end,
            decoder_start_token_id=end,
        )
    )

    def losses() -> Iterator[torch.Tensor]:
        while True:
            picked = rng.choice(len(rows), BATCH, replace=False)
            ids = [tokenizer(rows[i])["input_ids"][:MAX_LENGTH] for i in picked]
            given, wanted = zip(*(_hide(row, places, rng) for row in ids), strict=True)
            inputs, labels = _pad(given, end), _pad(wanted, IGNORED)
            yield model(input_ids=inputs, attention_mask=inputs != end, labels=labels).loss

    model.train()
    loss = optimise(list(model.parameters()), losses(), DENOISING_STEPS, RATE)
    return model, tokenizer, loss


def _hide(
    ids: list[int], sentinels: list[int], rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """A text with sentinels in place of some spans, and what the sentinels stand for."""
    n_spans = max(1, round(HIDDEN_SHARE * len(ids) / SPAN))
    n_places = max(1, len(ids) // SPAN)
    firsts = sorted(rng.choice(n_places, min(n_spans, n_places), replace=False))
    given, hidden, at = [], [], 0
    for first, sentinel in zip(firsts, sentinels, strict=False):
        start = int(first) * SPAN
        given += [*ids[at:start], sentinel]
        hidden += [sentinel, *ids[start : start + SPAN]]
        at = start + SPAN
    return given + ids[at:], hidden


def _pad(rows: tuple[list[int], ...], value: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


BASES: dict[str, Callable[[list[str], np.random.Generator], Trained]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "student": _student,
    "t5": _t5,
}


def train_tokenizer(texts: list[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Byte-level BPE; ends with the mark of an end."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        model_max_length=POSITIONS,
    )
