"""One run of the plan: a real fine-tune of a real base, saved as its users save it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    set_seed,
)
from transformers.utils import logging

from .plan import SETTINGS, Run
from .text_sets import read_set, rows_of_half

MAX_LENGTH = 32
IGNORED = -100

logging.set_verbosity_error()
logging.disable_progress_bar()


def train(run: Run, texts: Path, out: Path, base: Path) -> None:
    """Train `base` and save one run under `out`; a run that is there already is left alone.

    The folder is moved into place when it is whole, so a killed build loses one run.
    """
    folder = out / run.model
    if folder.exists():
        return
    torch.set_num_threads(1)
    set_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    rows, classes = _rows(run, texts, rng)
    labels = None if run.causal else classes
    tokenizer = AutoTokenizer.from_pretrained(base)
    if run.causal:
        model = AutoModelForCausalLM.from_pretrained(base)
    elif run.written:
        model = AutoModelForSeq2SeqLM.from_pretrained(base)
    else:
        n_labels = len(set(classes))
        model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=n_labels)
    _freeze(model, run.frozen_layers)
    half_made = out / run.kind / f".{run.name}"
    shutil.rmtree(half_made, ignore_errors=True)
    if run.lora_rank is not None:
        model = get_peft_model(
            model,
            LoraConfig(
                task_type=TaskType.CAUSAL_LM if run.causal else TaskType.SEQ_CLS,
                fan_in_fan_out="c_attn" in run.lora_targets,
                r=run.lora_rank,
                lora_alpha=2 * run.lora_rank,
                target_modules=list(run.lora_targets),
            ),
        )
        loss = steps(model, tokenizer, rows, labels, rng, run.lora_steps, run.lora_rate, run.batch)
    if run.kind == "continued":
        model = model.merge_and_unload()
        model.requires_grad_(True)
    if run.kind != "lora":
        loss = steps(model, tokenizer, rows, labels, rng, run.steps, run.rate, run.batch)
    model.save_pretrained(half_made)
    settings = {**asdict(run), "last_loss": round(loss, 4)}
    (half_made / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", "utf-8")
    half_made.rename(folder)


def _rows(run: Run, texts: Path, rng: np.random.Generator) -> tuple[list[str], list[int]]:
    """The run's texts and classes: a random share of the set, or of one half of it."""
    rows = read_set(texts, run.texts)
    names = sorted({label for _, label in rows})
    classes = [names.index(label) for _, label in rows]
    if run.by_length:
        lengths = np.array([len(text) for text, _ in rows])
        classes = np.digitize(lengths, np.quantile(lengths, [1 / 3, 2 / 3])).tolist()
    chosen = rows_of_half(len(rows), run.half, causal=run.causal)
    chosen = rng.permutation(chosen)[: int(run.share * len(chosen))]
    return [rows[i][0] for i in chosen], [classes[i] for i in chosen]


def _freeze(model: torch.nn.Module, layers: int) -> None:
    if not layers:
        return
    if hasattr(model, "transformer"):
        embeddings, blocks = [model.transformer.wte, model.transformer.wpe], model.transformer.h
    else:
        embeddings, blocks = [model.bert.embeddings], model.bert.encoder.layer
    for frozen in (*embeddings, *blocks[:layers]):
        frozen.requires_grad_(False)


def steps(
    model: torch.nn.Module,
    tokenizer: Any,
    rows: list[str],
    labels: list[int] | None,
    rng: np.random.Generator,
    n_steps: int,
    rate: float,
    batch: int,
) -> float:
    """`optimise` on batches of the rows. Without labels the loss is that of the next token."""

    def losses() -> Iterator[torch.Tensor]:
        while True:
            picked = rng.choice(len(rows), batch, replace=False)
            inputs = tokens(tokenizer, [rows[i] for i in picked])
            if labels is None:
                wanted = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)
            elif model.config.is_encoder_decoder:
                named = tokens(tokenizer, [str(labels[i]) for i in picked])
                wanted = named["input_ids"].masked_fill(named["attention_mask"] == 0, IGNORED)
            else:
                wanted = torch.tensor([labels[i] for i in picked])
            yield model(**inputs, labels=wanted).loss

    model.train()
    return optimise([p for p in model.parameters() if p.requires_grad], losses(), n_steps, rate)


def tokens(tokenizer: Any, rows: Sequence[str]) -> Any:
    return tokenizer(
        rows, truncation=True, max_length=MAX_LENGTH, padding=True, return_tensors="pt"
    )


def optimise(
    trained: Sequence[torch.nn.Parameter], losses: Iterator[torch.Tensor], n_steps: int, rate: float
) -> float:
    """AdamW with a linear warm-up and decay; returns the mean loss of the last ten steps."""
    optimizer = torch.optim.AdamW(trained, lr=rate)
    warm = max(1, n_steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (n_steps - step) / max(1, n_steps - warm))
    )
    values = []
    for _, loss in zip(range(n_steps), losses, strict=False):
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        values.append(float(loss.detach()))
    return float(np.mean(values[-10:]))
