"""Training of the demo's base and its fine-tunes, saved as their users save them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, set_seed
from transformers.utils import logging

from .tasks import CLS, FIRST_LEVEL, MASK, MAX_LENGTH, PAD, VOCABULARY, Task

BATCH = 32

logging.set_verbosity_error()  # type: ignore[no-untyped-call]
logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def train_base(folder: Path, tasks: list[Task], *, steps: int, seed: int = 0) -> None:
    """A small BERT, pretrained to fill in masked tokens of all tasks' sequences."""
    set_seed(seed)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=PAD,
    )
    model = BertForMaskedLM(config)
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    model.train()
    for _ in range(steps):
        task = tasks[rng.integers(len(tasks))]
        tokens = torch.from_numpy(task.tokens[rng.integers(0, len(task.tokens), BATCH)])
        tokens = tokens[:, : int((tokens != PAD).sum(1).max())]
        hidden = (torch.rand(tokens.shape) < 0.25) & (tokens >= FIRST_LEVEL)
        labels = torch.where(hidden, tokens, -100)
        inputs = torch.where(hidden, MASK, tokens)
        loss = model(input_ids=inputs, attention_mask=tokens != PAD, labels=labels).loss
        _step(loss, model, optimizer)
        schedule.step()
    model.save_pretrained(folder)


def fine_tune(base: Path, folder: Path, task: Task, *, seed: int, steps: int, lora: bool) -> float:
    """Fine-tune the base on one task and save it; returns the accuracy on the rest of the data.

    Runs of one task differ in their head, half of the data, batch order and learning rate.
    """
    set_seed(seed)
    rng = np.random.default_rng(seed)
    model: torch.nn.Module = BertForSequenceClassification.from_pretrained(
        base, num_labels=task.n_classes
    )
    if lora:
        model = get_peft_model(
            model,
            LoraConfig(
                task_type=TaskType.SEQ_CLS,
                r=int(rng.choice([4, 8])),
                lora_alpha=16,
                target_modules=["query", "value"],
            ),
        )
    order = rng.permutation(len(task.tokens))
    half = len(order) // 2
    rate = float(np.exp(rng.uniform(np.log(5e-4), np.log(1.5e-3)))) * (4 if lora else 1)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    model.train()
    for rows in _batches(order[:half], steps, rng):
        tokens, classes = _batch(task, rows)
        loss = model(input_ids=tokens, attention_mask=tokens != PAD, labels=classes).loss
        _step(loss, model, optimizer)
    accuracy = _accuracy(model, task, order[half : half + 400])
    model.save_pretrained(folder)  # type: ignore[operator]
    return accuracy


def _accuracy(model: torch.nn.Module, task: Task, rows: np.ndarray) -> float:
    model.eval()
    tokens, classes = _batch(task, rows)
    with torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=tokens != PAD).logits
    return float((logits.argmax(1) == classes).float().mean())


def _batches(rows: np.ndarray, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    for _ in range(steps):
        yield rng.choice(rows, BATCH)


def _batch(task: Task, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.from_numpy(task.tokens[rows])
    length = int((tokens != PAD).sum(1).max())
    assert int(tokens[0, 0]) == CLS
    return tokens[:, :length], torch.from_numpy(task.classes[rows])


def _step(loss: torch.Tensor, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
